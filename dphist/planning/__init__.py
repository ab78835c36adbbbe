"""Planning: choose trees, shares and levels, predict their cost, and compare with other ways to count.

May import: every other package of ``dphist``; none of them imports this one.
Start at: ``tree.py`` (one tree), ``product.py`` (keys and values), ``epochs.py`` (levels over epochs), then
``candidates.py`` (every way to count, side by side).
Must stay true: a plan sees public parameters only, and predicts the exact error of its release.
"""
