"""Windows beside a tree: a histogram by any mechanism, once a window.

May import: ``dphist.mechanisms``, ``dphist.tree``, ``dphist.product`` and the leaves.
Start at: ``design.py``, then ``options.py`` and ``error.py``.
Must stay true: a window is released once, at the windows' part of epsilon.
"""
