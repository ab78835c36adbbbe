"""state: the durable state of all streams in Redis, and the public half of it that readers see.

May import: core, ports, redis; not the loops or the other adapters.
Start at: ``keys.py`` (every key), then ``redis_store.py`` and ``lua/`` (the atomic scripts).
Must stay true: every write that decides what is counted, released or shown compares first and may be
repeated; secrets stay under secret keys.
"""
