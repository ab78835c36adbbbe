"""In-memory models of the store, its readers and the store of alerts."""
