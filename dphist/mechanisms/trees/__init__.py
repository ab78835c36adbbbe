"""Mechanisms that measure a tree over the bins, and their common least squares.

May import: the rest of ``dphist.mechanisms`` and the leaves.
Start at: ``weighted_tree.py``, then ``hierarchical.py``.
Must stay true: what ``dphist.mechanisms`` promises.
"""
