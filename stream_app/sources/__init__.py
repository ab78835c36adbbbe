"""sources: event logs as the loops see them, records as columns.

May import: core, ports, numpy, msgspec, the standard library; not the other adapters.
Start at: ``file.py`` (a growing file), then ``replay.py`` (a finished file), ``decode.py`` (records).
Must stay true: how a record is decoded depends on that record only, never on its neighbours in a batch.
"""
