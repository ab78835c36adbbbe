"""A k-ary tree over time: released once as bins close, answered by least squares.

May import: numpy, scipy, ``dphist.laws`` and the leaves; never ``dphist.planning``.
Start at: ``shape.py`` (geometry), ``design.py`` (scales), ``counter.py`` (release), ``estimate.py``; then
``decoder.py`` and ``anticipating.py`` (noise drawn ahead), ``published_laws.py`` (the laws
of its errors). Which tree to take is said in ``dphist/planning``.
Must stay true: a node is noised once; only the counters ever see an exact count; every estimate carries its
variance.
"""
