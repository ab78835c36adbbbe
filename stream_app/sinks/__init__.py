"""sinks: where rows and refused records go, outside the store.

May import: core, ports, ``durable``, the standard library; no other room of the rim.
Start at: ``witness_file.py`` (what was released), then ``dead_letter_file.py`` (what was not counted).
Must stay true: what a sink has returned from is on the disk, and only its owner may read it.
"""
