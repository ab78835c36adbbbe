"""Mechanisms that measure a tree over the bins, and the least-squares fit that they share.

May import: the rest of ``dphist.mechanisms`` and single modules of ``dphist``.
Start at: ``weighted_tree.py``, then ``hierarchical.py``.
Must stay true: see ``dphist.mechanisms``.
"""
