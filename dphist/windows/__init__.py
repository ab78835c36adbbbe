"""Windows beside a tree: one histogram per window, released by any mechanism.

May import: ``dphist.mechanisms``, ``dphist.tree``, ``dphist.product`` and single modules of ``dphist``.
Start at: ``design.py``, then ``error.py``.
Must stay true: each window is released once, with the windows' share of epsilon.
"""
