"""Mechanisms for two-dimensional histograms: curves, grids and trees of rectangles.

May import: ``dphist.mechanisms``, ``dphist.noise``, numpy; ``dphist.mechanisms`` names them in its registry.
Start at: ``rectangles.py`` (partitions and their trees), then ``quadtree.py``; ``hilbert.py`` for DAWA.
Must stay true: cuts come from published values or from a private selection, never from exact counts.
"""
