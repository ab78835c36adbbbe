"""A sample of a log, from which ``init``, ``doctor`` and ``plan`` judge events before any is counted."""
