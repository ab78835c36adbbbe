"""Levels over epochs: nodes that count whole epochs, for streams without end.

May import: ``dphist.tree``, ``dphist.laws`` and the leaves.
Start at: ``levels.py`` (the design), then ``counter.py`` (release once).
Must stay true: a node over epochs is noised once, inside the same epsilon as the epochs.
"""
