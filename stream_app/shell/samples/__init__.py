"""A sample of a log: what ``init``, ``doctor`` and ``plan`` say about the events before any is counted."""
