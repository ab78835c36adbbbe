"""Consistent views of published values: non-negative, monotone, whole numbers. Biased, never the default.

May import: numpy, scipy; nothing else of dphist.
Start at: ``isotonic.py`` (monotone sequences and CDFs), then ``top_down.py`` (trees).
Must stay true: these functions read published values only, so they cost no epsilon and see no exact count.
"""
