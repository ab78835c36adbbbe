"""A k-ary tree over time: released once as bins close, answered by least squares.

May import: numpy, scipy, ``dphist.noise``, ``dphist.privacy``, ``dphist.workloads``.
Start at: ``shape.py`` (geometry), ``design.py`` (scales), ``counter.py`` (release), ``estimate.py``; with
noise drawn ahead: ``decoder.py``, ``anticipating.py``; a share per node: ``node_design.py``, ``node_shares.py``.
Must stay true: a node is noised once; only the counters ever see an exact count; every estimate carries its
variance.
"""
