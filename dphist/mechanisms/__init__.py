"""Every histogram mechanism of the papers behind one call, ``release``, and one list, ``names``.

May import: ``dphist.noise``, ``dphist.tree``, ``dphist.consistency``, numpy, scipy; nothing with I/O.
Start at: ``registry.py`` (the table of names), then ``base.py`` (what a mechanism is given and gives back).
Must stay true: a mechanism touches counts only through its request's exact integer noise, and spends
exactly the epsilon it was given.
"""

from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.budget import BudgetLedger
from dphist.mechanisms.registry import Mechanism, describe, names, prepare, release

__all__ = [
    "BudgetLedger",
    "HistogramRelease",
    "Mechanism",
    "Request",
    "describe",
    "names",
    "prepare",
    "release",
]
