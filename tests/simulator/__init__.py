"""The simulator: real loops, an in-memory log and store, virtual time, and a fault at any await.

May import: everything of ``stream_app`` and ``dphist``; nothing imports it but tests.
Start at: world.py (one schedule from a seed), then checks.py (what must hold), mutants.py (what must fail).
Must stay true: a seed decides everything; the same seed gives the same trace, byte for byte.
"""
