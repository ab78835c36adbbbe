"""Models in memory of what runs elsewhere: the store, its readers, alerts."""
