"""Every histogram mechanism of the papers behind one call, ``release``, and one list, ``names``.

May import: ``dphist.cdf``, ``dphist.consistency``, ``dphist.noise`` and the modules that they import; nothing
with I/O.
Start at: ``table.py`` (a row for each name), ``registry.py`` (the call), ``base.py`` (input and output).
Must stay true: a mechanism touches counts only through its request's exact integer noise, and spends
exactly the epsilon it was given.
"""

from dphist.mechanisms.base import BudgetLedger, HistogramRelease, Request
from dphist.mechanisms.registry import checked_options, describe, names, prepare, release
from dphist.mechanisms.table import Mechanism

__all__ = [
    "BudgetLedger",
    "HistogramRelease",
    "Mechanism",
    "Request",
    "checked_options",
    "describe",
    "names",
    "prepare",
    "release",
]
