"""DAWA in its three stages: partition, query tree, expansion.

May import: ``dphist.mechanisms`` except its registry, ``dphist.arrays``, numpy.
Start at: ``dawa`` in ``mechanism.py`` (all stages), then ``partition.py`` and ``query_tree.py``.
Must stay true: stage 1 releases only the partition; in stage 2, every path down the tree spends its epsilon.
"""
