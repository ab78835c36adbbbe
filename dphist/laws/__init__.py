"""The exact laws of errors, and their shortest intervals.

May import: numpy, ``dphist.arrays``.
Start at: ``law.py`` (weighted sums of discrete Laplace variables), then ``interval.py``.
Must stay true: an interval contains the true value at least as often as its confidence says.
"""
