"""Levels over epochs: nodes that count whole epochs, for streams without end.

May import: ``dphist.tree``, ``dphist.laws`` and single modules of ``dphist``.
Start at: ``levels.py`` (the design), then ``counter.py`` (release once).
Must stay true: each node over epochs gets noise once, within the same epsilon as the epochs.
"""
