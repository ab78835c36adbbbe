"""The exact laws of errors, and their shortest intervals.

May import: numpy, ``dphist.arrays``.
Start at: ``law.py`` (weighted sums of discrete Laplace variables), then ``interval.py``.
Must stay true: an interval never holds the truth less often than its confidence says.
"""
