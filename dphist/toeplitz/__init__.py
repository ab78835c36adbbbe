"""The approximate mechanism: a Toeplitz strategy with discrete Gaussian noise, exact on a lattice.

May import: ``noise``, ``composition``, ``caps``, ``privacy``, ``arrays``, ``certified``, ``units``,
``snapshots``.
Start at: ``strategy.py`` (the matrix), then ``design.py`` (its budget), ``counter.py``, ``estimate.py``.
Must stay true: released values are multiples of one lattice step, every bound that privacy rests on is an
exact fraction rounded to the safe side, and estimates come from released values alone.
"""

from dphist.toeplitz.counter import ToeplitzCounter, ToeplitzSnapshot
from dphist.toeplitz.design import ToeplitzDesign, plan_toeplitz
from dphist.toeplitz.estimate import RunningCounts
from dphist.toeplitz.strategy import ToeplitzStrategy
from dphist.toeplitz.table import optimal_strategy

__all__ = [
    "RunningCounts",
    "ToeplitzCounter",
    "ToeplitzDesign",
    "ToeplitzSnapshot",
    "ToeplitzStrategy",
    "optimal_strategy",
    "plan_toeplitz",
]
