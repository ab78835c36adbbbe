"""Counts over time x keys x values: one strategy, CDFs and quantiles of any key over any past range.

May import: numpy, scipy, ``dphist.noise``, ``dphist.privacy``, ``dphist.tree``, ``dphist.consistency``.
Start at: ``design.py`` (the noise of each cell), then ``counter.py``, ``forest.py``, ``answers.py``.
Must stay true: an event is in one column of every group, and the groups' epsilons add up to the stated one.
"""
