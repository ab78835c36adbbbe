"""sources: event logs as the loops see them, records as columns.

May import: core, ports, numpy, msgspec, the standard library; no other room of the rim.
Start at: ``file.py`` (one that grows), then ``replay.py`` (one of the past), ``decode.py`` (its records).
Must stay true: what becomes of a record depends on that record alone, never on its neighbours in a batch.
"""
