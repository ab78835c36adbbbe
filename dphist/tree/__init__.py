"""A k-ary tree over time: released once as bins close, answered by least squares.

May import: numpy, scipy, ``dphist.noise``, ``dphist.privacy``, ``dphist.workloads``.
Start at: ``shape.py`` (geometry), ``design.py`` (scales), ``counter.py`` (release), ``estimate.py``.
Must stay true: a node is noised once; only ``counter.py`` ever sees an exact count; every estimate carries
its variance.
"""
