"""loops: read and bin events, take cuts, close bins, make rows visible, decide alerts.

May import: core, ports, dphist, ``vault.cipher`` (noise is stored encrypted) and modules that all packages
share (``outage``, ``together``, ``source_ledger``); no other adapter.
Start at: ``ingest.py`` (events in), ``cutting.py``, ``closer.py`` (releases out), ``opening.py``.
Must stay true: after any doubt a loop drops its view and loads the store again.
"""
