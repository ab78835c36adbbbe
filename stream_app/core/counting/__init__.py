"""Which events count, in which bin and cell, and when bins close."""
