"""Choose the levels over epochs: how much of epsilon they get, and how many epochs a node covers."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np

from dphist.arrays import FloatArray
from dphist.epochs import EpochLevels
from dphist.planning.tree import LEAST_SHARE, balanced_branching, plan_tree, planning_rate
from dphist.privacy import Exact, Neighbours, exact
from dphist.privacy import sensitivity as level_sensitivity
from dphist.tree.design import Release, TreeDesign
from dphist.tree.published_laws import published_prefix_variances

# Share of epsilon for levels above the planned ones: a stream may run longer than planned.
RESERVE = Fraction(1, 100)
# The highest reserved level's nodes hold at least this many epochs: half a million years of hours.
_ENDLESS_EPOCHS = 2**32
_RESERVED_BRANCHING = 16
_MOST_LEVELS = 3
_SHARE_DENOMINATOR = 10**6


def plan_epoch_levels(
    horizon: int,
    epochs: int,
    epsilon: Exact,
    release: Release = "anticipating",
    neighbours: Neighbours = "add_remove",
    reserve: Fraction = RESERVE,
) -> EpochLevels:
    """Return the levels over epochs, and the epoch's tree below, that have the least mean squared error.

    Guarantee: the design's own: epsilon in total, over the stream's whole life.
    Args: horizon in bins of an epoch; epochs, the number of epochs over which the mean error of the running
        count since the stream's start is minimised (better too many than too few: the error grows only with
        the cube of their logarithm); reserve, the part of epsilon kept for levels over even more epochs. The
        i-th of these levels gets 1 / (i (i + 1)) of the reserve. At 0, variance is linear beyond ``epochs``.
    Raises: ValueError naming the argument.
    Cost: a second.

    >>> design, totals = plan_epoch_levels(8, 100, 1), plan_tree(8, 1, release="anticipating")
    >>> chained = EpochLevels(totals, design.epsilon)
    >>> design.mean_squared_error(100) < 0.5 * chained.mean_squared_error(100)
    True
    """
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise ValueError(f"epochs: {epochs!r} is not a whole number of at least 1")
    if not 0 <= reserve < 1:
        raise ValueError(f"reserve: {reserve} is not a part of epsilon; write for example Fraction(1, 100)")
    budget, moved = exact(epsilon), level_sensitivity(1, neighbours)
    whole = plan_tree(horizon, budget, release=release, neighbours=neighbours)
    problem = _Problem(whole, epochs, planning_rate(budget, moved), 1.0 - float(reserve))
    _, branching, shares = min(problem.best(branching) for branching in _shapes(epochs))
    parts = [Fraction(int(share * _SHARE_DENOMINATOR), _SHARE_DENOMINATOR) * budget for share in shares]
    tail = _reserved(branching, reserve * budget)
    return EpochLevels(
        plan_tree(horizon, parts[0], release=release, neighbours=neighbours),
        budget,
        branching + (_RESERVED_BRANCHING,) * len(tail),
        (*parts[1:], *tail),
    )


class _Problem:
    """The error of levels over epochs, as a function of their shape and shares, for a fixed epoch tree."""

    def __init__(self, whole: TreeDesign, epochs: int, rate: float, spendable: float) -> None:
        variances = published_prefix_variances(whole)
        # With the share u of epsilon, an epoch's variances are about these divided by u squared.
        self.running, self.total = float(variances.mean()), float(variances[-1])
        self.epochs, self.rate, self.spendable = np.arange(epochs), rate, spendable

    def best(self, branching: tuple[int, ...]) -> tuple[float, tuple[int, ...], tuple[float, ...]]:
        """Return a shape's least error, the shape, and its best shares; the epoch's share comes first."""
        rest, uses = self.epochs, []
        for k in branching:
            rest, digit = np.divmod(rest, k)
            uses.append(float(digit.mean()))
        uses.append(float(rest.mean()))

        def error(logits: FloatArray) -> float:
            shares = self._shares(logits)
            below = self.total / shares[0] ** 2
            found = self.running / shares[0] ** 2 + uses[0] * below
            for k, use, share in zip(branching, uses[1:], shares[1:], strict=True):
                own = 0.5 / math.sinh(0.5 * self.rate * share) ** 2
                below = own * k * below / (own + k * below)
                found += use * below
            return found

        start = np.full(len(branching), -2.0)
        if not branching:
            return error(start), branching, (self.spendable,)
        from scipy.optimize import minimize  # imported here because only a search needs it

        found = minimize(error, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-3})
        return float(found.fun), branching, tuple(self._shares(found.x))

    def _shares(self, logits: FloatArray) -> list[float]:
        powers = np.exp(np.clip(np.append(0.0, logits), -20.0, 20.0))
        shares = np.maximum(powers / powers.sum(), LEAST_SHARE)
        return (self.spendable * shares / shares.sum()).tolist()  # type: ignore[no-any-return]


def _shapes(epochs: int) -> Iterator[tuple[int, ...]]:
    """Yield shapes to try, lowest level first: none, then nearly equal factors, with or without a 1."""
    yield ()
    for levels in range(1, _MOST_LEVELS + 1):
        if 2**levels >= epochs and levels > 1:
            return
        near = balanced_branching(epochs, levels + 1)[:0:-1]
        steps = sorted({-2, -1, 0, 1, 2, 4}) if levels < 3 else [-1, 0, 2]
        for moves in product(steps, repeat=levels):
            factors = tuple(max(2, k + move) for k, move in zip(near, moves, strict=True))
            if math.prod(factors) <= epochs:
                yield factors
    for levels in (1, 2):
        near = balanced_branching(epochs, levels + 1)[:0:-1]
        for moves in product((-2, 0, 3), repeat=levels):
            yield (1, *(max(2, k + move) for k, move in zip(near, moves, strict=True)))
    yield (1,)


def _reserved(branching: tuple[int, ...], epsilon: Fraction) -> tuple[Fraction, ...]:
    """Return the epsilons of the levels above the planned ones; their sum is less than the reserve."""
    if not epsilon:
        return ()
    epochs, shares = math.prod(branching), list[Fraction]()
    while epochs < _ENDLESS_EPOCHS:
        epochs *= _RESERVED_BRANCHING
        shares.append(epsilon / ((len(shares) + 1) * (len(shares) + 2)))
    return tuple(shares)
