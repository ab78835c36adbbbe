"""A k-ary tree over time: released once as bins close, answered by least squares.

May import: numpy, scipy, ``dphist.noise``, ``dphist.privacy``, ``dphist.workloads``.
Start at: ``shape.py`` (geometry), ``design.py`` (scales), ``counter.py`` (release), ``estimate.py``; then
``decoder.py`` and ``anticipating.py`` (noise drawn ahead), ``epoch_levels.py`` (streams without
end), ``planner.py`` and ``candidates.py`` (which tree).
Must stay true: a node is noised once; only the counters ever see an exact count; every estimate carries its
variance.
"""
