"""A k-ary tree over time: released once as bins close, answered by least squares.

May import: numpy, scipy, ``dphist.laws`` and single modules of ``dphist``; never ``dphist.planning``.
Start at: ``shape.py`` (geometry), ``design.py`` (scales), ``counter.py`` (release), ``estimate.py``; then
``decoder.py`` and ``anticipating.py`` (noise drawn ahead), ``published_laws.py`` (the laws
of its errors). ``dphist/planning`` chooses a tree.
Must stay true: each node gets its noise once; only counters see exact counts; estimates have variances.
"""
