"""Choose the tree: the shape and the shares that give the least error.

Shapes are compared in batches: the shares of thousands of candidate trees are optimised at once, level by
level, with the exact variances of integer noise and the exact workload of the epoch. The search starts from
shares proportional to (k - 1)^(1/3) and a branching of about 17 (Rameshwar and Tandon).
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, TypedDict, get_args

import numpy as np

from dphist.arrays import FloatArray
from dphist.planning.range_uses import children_within, workload_uses
from dphist.privacy import Exact, Neighbours, exact
from dphist.privacy import sensitivity as level_sensitivity
from dphist.tree.design import LARGEST_SCALE, Release, TreeDesign
from dphist.tree.range_error import level_uniform_error
from dphist.tree.shape import TreeShape
from dphist.workloads import PREFIX, Workload, WorkloadText

# Denominator of shares: fine enough to add no error, coarse enough to read.
SHARE_DENOMINATOR = 10**6
# If a level's best share is smaller than this, the level is left out: the search takes a tree without it.
LEAST_SHARE = 1e-3
# A larger epsilon is planned as this one: the best shares are the same, and doubles would underflow.
_LARGEST_PLANNED_EPSILON = 20
# Candidates per height and round: keep a plan for 2^20 bins under a second.
_CANDIDATES = 7000
_WINDOW_CANDIDATES = 1500
_SEARCH_ROUNDS = 8
_FINALISTS = 60
# Up to this horizon, windows and ranges are evaluated exactly; in longer epochs, cut-off nodes matter little.
_FINALS_HORIZON = 2**10
_LEAST_COMPARED_RATE = 1e-6
# Try a root if the first trees with a root have at most this times the error; keep it if it gains this part.
_ROOT_IN_REACH = 1.1
_ROOT_GAIN = 0.005
# Up to this horizon, the exact error of any workload takes a few hundredths of a second.
_LARGEST_EXACT = 2**17


class TreeOptions(TypedDict, total=False):
    """The options of ``plan_tree`` besides the tree's horizon, its epsilon and ``max_events``."""

    workload: Workload | WorkloadText
    release: Release
    neighbours: Neighbours
    branching: Sequence[int] | None
    shares: Sequence[Exact] | None


def plan_tree(
    horizon: int,
    epsilon: Exact,
    workload: Workload | WorkloadText = PREFIX,
    release: Release = "causal",
    neighbours: Neighbours = "add_remove",
    max_events: int = 1,
    branching: Sequence[int] | None = None,
    shares: Sequence[Exact] | None = None,
) -> TreeDesign:
    """Return the level-uniform tree with the least expected error for the declared workload.

    Guarantee: the design's own (epsilon in total for one epoch); shares are rounded down to fractions.
    Args: horizon in bins; epsilon read by its decimal text; workload as ``Workload.of`` reads it, for example
        "prefix", "sliding(24)" or {"prefix": 0.7, "bins": 0.3}; max_events counted of one privacy unit in one
        epoch; branching root to leaf and shares per level, if they are given instead of searched.
    Raises: ValueError naming the argument: a bad number, shares beyond 1, an unknown release.
    Cost: under a second at a horizon of 2^20; repeated plans are cached.

    >>> design = plan_tree(horizon=1024, epsilon=1)
    >>> design.mean_squared_error("prefix") < 227
    True
    >>> plan_tree(horizon=1024, epsilon=1, release="anticipating").mean_squared_error("prefix") < 118.2
    True
    """
    checked_horizon(horizon)
    questions = Workload.of(workload)
    questions.check(horizon)
    if release not in get_args(Release):
        raise ValueError(f"release: {release!r} is unknown; write one of {', '.join(get_args(Release))}")
    budget = exact(epsilon)
    sensitivity = level_sensitivity(max_events, neighbours)
    if shares is not None and branching is None:
        raise ValueError("shares: given without branching; give both, or leave the shares to the search")
    rate = planning_rate(budget, sensitivity)
    found = best_branching(horizon, rate, release, questions) if branching is None else tuple(branching)
    shape = TreeShape(found)
    if horizon > shape.capacity:
        raise ValueError(f"horizon: {horizon} bins do not fit branching {shape.branching}; raise a factor")
    if shares is not None:
        parts = tuple(exact(share, "shares") for share in shares)
    else:
        best, _ = best_shares([shape.branching], horizon, rate, release=release, workload=questions)
        parts = _rounded_down(best[0])
    return TreeDesign(shape, horizon, budget, parts, neighbours, sensitivity, release)


def checked_horizon(horizon: int) -> int:
    """Return a number of bins. Raises: ValueError for anything else."""
    if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
        raise ValueError(f"horizon: {horizon!r} is not a whole number of at least 1 bin")
    return horizon


def planning_rate(epsilon: Fraction, sensitivity: int) -> float:
    """Return epsilon / sensitivity for planning. An epsilon above 20 is planned as 20: same optimum.

    Raises: ValueError if even a level with all of epsilon needs more noise than a design may have.
    """
    if epsilon * LARGEST_SCALE < sensitivity:
        raise ValueError(
            f"epsilon: {float(epsilon):g} needs noise beyond 2^38 per node; choose a larger epsilon"
        )
    return float(min(epsilon, Fraction(_LARGEST_PLANNED_EPSILON)) / sensitivity)


def best_shares(
    branchings: Sequence[tuple[int, ...]],
    horizon: int,
    rate: float,
    rounds: int = 200,
    release: Release = "causal",
    workload: Workload = PREFIX,
) -> tuple[FloatArray, FloatArray]:
    """Return the best shares of many trees of one height for a workload, and their errors.

    At the optimum every level gains the same from a little more epsilon. If nodes were not averaged with
    their children, the gain of level i would be proportional to digits_i / epsilon_i^3, and the papers' cube
    roots would be exact. Averaging changes the gradients slowly, so repeated steps converge: to 1e-5 in 3
    rounds for wide trees, in about 60 rounds for binary trees, whose upper levels are better left out.

    Args: branchings of shape (trees, height); rate = epsilon / sensitivity.
    Returns: shares (trees, height), with sum 1; mean squared errors (trees,), as exact as ``workload_uses``.
    Cost: O(trees * height) per round.
    """
    whole = np.array(branchings, dtype=np.int64)
    factors = children_within(whole, horizon)
    uses = workload_uses(whole, horizon, workload, release == "anticipating")
    shares = np.full_like(factors, 1.0 / factors.shape[1])
    for _ in range(rounds):
        _, gradient = _error_and_gradient(factors, uses, shares * rate)
        step = np.cbrt(gradient) * shares
        shares = np.maximum(step / step.sum(axis=1, keepdims=True), LEAST_SHARE)
        shares /= shares.sum(axis=1, keepdims=True)
    return shares, _error_and_gradient(factors, uses, shares * rate)[0]


def _error_and_gradient(
    factors: FloatArray, uses: FloatArray, rates: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mean squared error and minus its derivative by each level's rate (epsilon / sensitivity)."""
    height = factors.shape[1]
    half = rates / 2.0
    own = 0.5 / np.sinh(half) ** 2
    slope = own / np.tanh(half)
    below = np.empty_like(own)
    below[:, -1] = own[:, -1]
    for level in range(height - 2, -1, -1):
        children = factors[:, level + 1] * below[:, level + 1]
        below[:, level] = own[:, level] * children / (own[:, level] + children)
    gradient = np.empty_like(own)
    # The derivative of the error by this level's variance from below, by way of all levels above.
    adjoint = uses[:, 0].copy()
    for level in range(height - 1):
        children = factors[:, level + 1] * below[:, level + 1]
        gradient[:, level] = adjoint * (below[:, level] / own[:, level]) ** 2 * slope[:, level]
        weight = (below[:, level] / children) ** 2 * factors[:, level + 1]
        adjoint = uses[:, level + 1] + adjoint * weight
    gradient[:, -1] = adjoint * slope[:, -1]
    return (uses * below).sum(axis=1), gradient


@lru_cache(maxsize=256)
def best_branching(
    horizon: int, rate: float, release: Release = "causal", workload: Workload = PREFIX
) -> tuple[int, ...]:
    """Return the best branching factors: try balanced trees of every height, then trees near the best ones.

    Last it tries a root of the whole epoch, but not for running counts alone, which gain nothing from a root:
    the few nodes below it are nearly as accurate, and a causal root is complete only with the last bin.
    """
    search = _Search(horizon, rate, release, workload)
    plain = search.without_root()
    return plain if workload == PREFIX or horizon == 1 else search.with_root_if_better(plain)


class _Search(NamedTuple):
    """The search for the tree of least error for a workload; ``rate`` is epsilon / sensitivity."""

    horizon: int
    rate: float
    release: Release
    workload: Workload

    def without_root(self) -> tuple[int, ...]:
        """Return the best tree whose top nodes are smaller than the epoch."""
        if self.horizon <= 2:
            return (self.horizon,)
        starts = sorted((self._error(start), start) for start in self._starts())
        _, best = min((self._improved(start) for _, start in starts[:3]), key=itemgetter(0))
        lower = self._without_starved(best)
        return best if lower == best else self._improved(lower)[1]

    def with_root_if_better(self, plain: tuple[int, ...]) -> tuple[int, ...]:
        """Return the best tree with a root of the whole epoch, if it is better than the one without."""
        rooted = with_root(self._starts() | {plain}, self.horizon, self.release)
        starts = sorted((self._error(start), start) for start in rooted)
        without = self._error(plain)
        if starts[0][0] > _ROOT_IN_REACH * without:
            return plain
        error, best = min(self._improved(start) for _, start in starts[:2])
        if error < without * (1 - _ROOT_GAIN) and self.horizon <= _LARGEST_EXACT:
            # The errors found so far are approximate if the horizon cuts off nodes.
            (without,), (error,) = (self._exact_errors([tree]) for tree in (plain, best))
        return best if error < without * (1 - _ROOT_GAIN) else plain

    def _shares(self, trees: Sequence[tuple[int, ...]]) -> tuple[FloatArray, FloatArray]:
        """Return nearly best shares, and the errors, of trees that have the same height."""
        return best_shares(trees, self.horizon, self.rate, _SEARCH_ROUNDS, self.release, self.workload)

    def _error(self, tree: tuple[int, ...]) -> float:
        return float(self._shares([tree])[1][0])

    def _exact_errors(self, trees: Sequence[tuple[int, ...]]) -> list[float]:
        """Return the exact errors of trees that have the same height, with nearly best shares."""
        # A smaller rate only multiplies all errors by one factor, and a design would refuse it.
        rate = max(self.rate, _LEAST_COMPARED_RATE)
        shares, _ = self._replace(rate=rate)._shares(trees)
        return [
            TreeDesign(
                TreeShape(tree), self.horizon, Fraction(rate), _rounded_down(row), release=self.release
            ).mean_squared_error(self.workload)
            for tree, row in zip(trees, shares, strict=True)
        ]

    def _without_starved(self, branching: tuple[int, ...]) -> tuple[int, ...]:
        """Return the branching without levels whose best share is too small: they do not reduce the error."""
        shares, _ = best_shares(
            [branching], self.horizon, self.rate, release=self.release, workload=self.workload
        )
        factors: list[int] = []
        merged = 1
        for k, share in zip(branching[::-1], shares[0][::-1], strict=True):
            merged *= k
            if share > 1.5 * LEAST_SHARE:
                factors.insert(0, merged)
                merged = 1
        return (-(-self.horizon // math.prod(factors[1:])), *factors[1:])

    def _starts(self) -> set[tuple[int, ...]]:
        """Return balanced trees of every height, over the epoch or over one window below a wide top level."""
        starts = {balanced_branching(self.horizon, height) for height in _heights(self.horizon)}
        windows = {part.bins for part, _ in self.workload.parts if 2 < part.bins < self.horizon}
        for bins in windows:
            top = -(-self.horizon // bins)
            starts |= {(top, *balanced_branching(bins, height)) for height in _heights(bins)}
        return {start for start in starts if math.prod(start[1:]) < self.horizon}

    def _improved(self, branching: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        """Return the best tree and its error: it moves to a better neighbouring tree until there is none.

        Raises: ValueError if no tree has a finite error.
        """
        horizon, best_error = self.horizon, math.inf
        most = _CANDIDATES if self.workload == PREFIX else _WINDOW_CANDIDATES
        while True:
            if math.prod(branching[1:]) < horizon:
                candidates = sorted(_neighbourhood(branching, horizon, most))
            else:
                below = _neighbourhood(branching[1:], horizon, most)
                candidates = sorted(with_root(below, horizon, self.release))
            errors = self._shares(candidates)[1]
            position = int(np.argmin(errors))
            if not errors[position] < best_error * (1 - 1e-9):  # also stops if the error is NaN
                break
            best_error, branching = float(errors[position]), candidates[position]
        if not math.isfinite(best_error):
            raise ValueError(
                f"epsilon: {self.rate:g} an event leaves no tree a finite error; choose a larger epsilon"
            )
        # Errors are approximate if the horizon cuts off nodes, so evaluate the most promising trees exactly.
        finalists = [candidates[position] for position in np.argsort(errors)[:_FINALISTS]]
        if self.workload == PREFIX and self.release == "anticipating":
            variances = (0.5 / np.sinh(self._shares(finalists)[0] * (self.rate / 2.0)) ** 2).tolist()
            return min(
                (level_uniform_error(TreeShape(finalist), horizon, own) / horizon, finalist)
                for finalist, own in zip(finalists, variances, strict=True)
            )
        if self.workload != PREFIX and horizon <= _FINALS_HORIZON:
            return min(zip(self._exact_errors(finalists), finalists, strict=True))
        return best_error, branching


def with_root(trees: Iterable[tuple[int, ...]], horizon: int, release: Release) -> set[tuple[int, ...]]:
    """Return the trees with a measured root added: a top factor of 2, of which only the first node is used.

    A causal root must complete with the epoch's last bin, so trees that the horizon cuts off are left out.

    >>> sorted(with_root([(3, 8), (3, 9)], 24, "anticipating")), with_root([(3, 8), (3, 9)], 24, "causal")
    ([(2, 3, 8), (2, 3, 9)], {(2, 3, 8)})
    """
    return {(2, *tree) for tree in trees if release == "anticipating" or math.prod(tree) == horizon}


def _heights(bins: int) -> range:
    return range(1, max(2, math.ceil(math.log2(bins))) + 1)


def _neighbourhood(branching: tuple[int, ...], horizon: int, most: int) -> Iterable[tuple[int, ...]]:
    """Return trees of the same height with lower factors near these; the top factor covers the horizon."""
    lower = branching[1:]
    reach = 1 if not lower else max(1, int((most ** (1 / len(lower)) - 1) // 2))
    if len(lower) > 7:
        # Tall trees win only at tiny horizons or never: try one change at a time.
        moves = {lower} | {
            (*lower[:i], max(2, k + step), *lower[i + 1 :]) for i, k in enumerate(lower) for step in (-1, 1)
        }
    else:
        axes = [range(max(2, k - reach), k + reach + 1) for k in lower]
        moves = set(itertools.product(*axes))
    covered = {factors: math.prod(factors) for factors in moves}
    return {(-(-horizon // bins), *factors) for factors, bins in covered.items() if bins < horizon}


def balanced_branching(horizon: int, height: int) -> tuple[int, ...]:
    """Return nearly equal factors whose product is at least the horizon."""
    factors: list[int] = []
    rest = horizon
    for remaining in range(height, 0, -1):
        factor = max(2, math.ceil(round(rest ** (1 / remaining), 9)))
        factors.append(factor)
        rest = -(-rest // factor)
    return tuple(factors)


def _rounded_down(shares: FloatArray) -> tuple[Fraction, ...]:
    """Round shares down to fractions; the largest gets the remainder, so the sum is exactly 1."""
    parts = [max(1, int(share * SHARE_DENOMINATOR)) for share in shares]
    largest = parts.index(max(parts))
    parts[largest] += SHARE_DENOMINATOR - sum(parts)
    return tuple(Fraction(part, SHARE_DENOMINATOR) for part in parts)
