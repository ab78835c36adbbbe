"""state: the durable state of all streams, in Redis or in memory, behind one contract.

May import: core, ports, redis; not the loops nor the other rooms of the rim.
Start at: ``keys.py`` (every key), ``memory.py`` (the semantics), ``lua/`` (the same, atomic in Redis).
Must stay true: every write is a compare-and-set that may be repeated; secrets stay under secret keys.
"""
