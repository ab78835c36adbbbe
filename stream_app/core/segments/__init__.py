"""How a stream begins, changes and ends: a sequence of segments, each with its settings."""
