"""DAWA in its three stages: partition, query tree, expansion.

May import: ``dphist.mechanisms`` except its registry, numpy.
Start at: ``mechanism.py`` (the three stages in ten lines), then ``partition.py`` and ``query_tree.py``.
Must stay true: of stage 1 only the partition leaves, and every path of stage 2 spends its epsilon exactly.
"""
