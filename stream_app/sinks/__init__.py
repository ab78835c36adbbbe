"""sinks: adapters that keep or send rows, alerts and refused records outside the store.

May import: core, ports, ``durable``, ``kafka``; not the other adapters.
Start at: ``witness_file.py`` (released rows), then ``dead_letter_file.py`` (records that were not counted).
Must stay true: data is on the disk when a sink's call returns, and only its owner may read it.
"""
