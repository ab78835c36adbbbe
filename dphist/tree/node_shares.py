"""The best share of epsilon for every node of a tree.

From the top down, every node takes a part of what its ancestors left and hands the rest on; leaves take all.
The parts are the unknowns (as logits, so every path adds up to 1 whatever they are), the exact error of the
workload the objective, its derivative comes from ``node_error.py`` or ``question_error.py``, and L-BFGS goes
downhill from the best shares per level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dphist.noise import Int64Array
from dphist.privacy import Exact, Neighbours, exact
from dphist.privacy import sensitivity as level_sensitivity
from dphist.tree.design import Release
from dphist.tree.epoch_nodes import by_parent, node_counts, to_children
from dphist.tree.node_design import WHOLE, NodeDesign, Uint16Array, single_children
from dphist.tree.node_error import anticipating_error, causal_error
from dphist.tree.planner import (
    balanced_branching,
    best_branching,
    best_shares,
    checked_horizon,
    planning_rate,
    with_root,
)
from dphist.tree.question_error import questions_error
from dphist.tree.shape import TreeShape
from dphist.workloads import PREFIX, Workload, WorkloadPart, WorkloadText

FloatArray = NDArray[np.float64]

# Parts of the rest stay inside (6e-6, 0.98): beyond, a line search can starve everything below a node.
_LOGIT_BOUNDS = (-12.0, 4.0)
_ITERATIONS = 300
_TRIAL_ITERATIONS = 40
# Above this horizon hardly any shape but the best level-uniform one is tried.
_LARGEST_SEARCHED = 2**12
# A trial costs hardly anything up to here.
_WIDELY_SEARCHED = 2**7
# All ranges are looked at up to this horizon, so many for each bin beyond it.
_ALL_RANGES = 64
_RANGES_A_BIN = 8


def plan_node_shares(
    horizon: int,
    epsilon: Exact,
    release: Release = "anticipating",
    neighbours: Neighbours = "add_remove",
    max_events: int = 1,
    branching: Sequence[int] | None = None,
    workload: Workload | WorkloadText = PREFIX,
    iterations: int = _ITERATIONS,
    total_weight: float = 0.0,
) -> NodeDesign:
    """Return the tree with a share per node that has the least expected error for the declared workload.

    Guarantee: the design's own (epsilon in total for one epoch); shares are whole 4096ths.
    Args: as ``plan_tree``; branching root to leaf, where it is not to be searched;
        iterations of L-BFGS at most: 40 leave less than 0.1 % of the error to be gained; total_weight, of the
        squared error of the epoch's total, added to that of the workload: counts over many epochs add totals.
    Raises: ValueError naming the argument.
    Cost: a few seconds up to 2^16 bins, a minute at 2^20: plan once and store the design.

    >>> round(plan_node_shares(64, "0.01", branching=(4, 16)).mean_squared_error() / 100**2, 2)
    32.95
    """
    budget, sensitivity = exact(epsilon), level_sensitivity(max_events, neighbours)
    rate, asked = planning_rate(budget, sensitivity), Workload.of(workload)
    asked.check(checked_horizon(horizon))
    if branching is None:
        branching = _best_branching(horizon, rate, release, asked)
    shape = TreeShape(tuple(branching))
    if horizon > shape.capacity:
        raise ValueError(f"horizon: {horizon} bins do not fit branching {shape.branching}; raise a factor")
    problem = _Problem(shape, horizon, rate, release, asked, total_weight)
    return NodeDesign(
        shape,
        horizon,
        budget,
        problem.rounded(problem.solve(iterations)[1]),
        neighbours,
        sensitivity,
        release,
    )


class _Problem:
    """One shape's objective: logits of the inner nodes' parts to the error and its derivative."""

    def __init__(
        self,
        shape: TreeShape,
        horizon: int,
        rate: float,
        release: Release,
        workload: Workload = PREFIX,
        total_weight: float = 0.0,
    ) -> None:
        self.total_weight = total_weight
        self.shape, self.horizon, self.rate, self.release = shape, horizon, rate, release
        self.workload = workload
        self.counts = node_counts(shape, horizon)
        self.measured = [self._measured(level) for level in shape.levels[:-1]]
        self.questions = {part: _questions(part, horizon) for part, _ in workload.parts}

    def _measured(self, level: int) -> NDArray[np.bool_]:
        measured = np.ones(self.counts[level - 1], np.bool_)
        cut_off = len(measured) * self.shape.widths[level] > self.horizon
        if self.release == "causal":
            measured[-1] = not cut_off
        else:
            measured[-1] = not single_children(self.shape, self.horizon, level)
        return measured

    def solve(self, iterations: int = _ITERATIONS) -> tuple[float, list[FloatArray]]:
        """Return the least mean squared error found and its shares per level, root side first."""
        if self.shape.height == 1:
            return self.value_and_gradient(np.zeros(0))[0], [np.ones(self.horizon)]
        from scipy.optimize import minimize  # here and not above: only a search needs it

        start = self.level_uniform()
        found = minimize(
            self.value_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[_LOGIT_BOUNDS] * len(start),
            options={"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 20, "ftol": 1e-10},
        )
        return float(found.fun), self.shares(found.x)[0]

    def trial(self) -> float:
        """Return about how small the error gets, in few steps."""
        return self.solve(_TRIAL_ITERATIONS)[0]

    def level_uniform(self) -> FloatArray:
        """Return the logits of the best shares per level."""
        branching = [self.shape.branching]
        found, _ = best_shares(
            branching, self.horizon, self.rate, release=self.release, workload=self.workload
        )
        shares = found[0]
        parts = shares[:-1] / np.cumsum(shares[::-1])[::-1][:-1]
        logits = np.clip(np.log(parts / (1.0 - parts)), *_LOGIT_BOUNDS)
        return np.repeat(logits, [int(rows.sum()) for rows in self.measured])

    def shares(self, logits: FloatArray) -> tuple[list[FloatArray], list[FloatArray], list[FloatArray]]:
        """Return per level the shares, and for inner levels the parts and what ancestors left."""
        rest, shares, parts, rests, start = np.ones(self.counts[0]), [], [], [], 0
        for level, measured in zip(self.shape.levels, self.measured, strict=False):
            stop = start + int(measured.sum())
            part = np.zeros(len(measured))
            part[measured] = 1.0 / (1.0 + np.exp(-logits[start:stop]))
            shares.append(rest * part)
            parts.append(part)
            rests.append(rest)
            rest = to_children(rest * (1.0 - part), self.shape.branching[level], self.counts[level])
            start = stop
        return [*shares, rest], parts, rests

    def value_and_gradient(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean squared error, in counts squared, and its derivative by the logits."""
        shares, parts, rests = self.shares(logits)
        variances, slopes = zip(*(self._noise(rows) for rows in shares), strict=True)
        error, by_variance = self.error(variances)
        by_share = [rows * slope for rows, slope in zip(by_variance, slopes, strict=True)]
        by_rest, gradient = by_share[-1], []
        for level in range(self.shape.height - 1, 0, -1):
            part, measured = parts[level - 1], self.measured[level - 1]
            handed_on = by_parent(by_rest, self.shape.branching[level]).sum(axis=1)
            by_part = rests[level - 1] * (by_share[level - 1] - handed_on)
            gradient.append((by_part * part * (1.0 - part))[measured])
            by_rest = by_share[level - 1] * part + handed_on * (1.0 - part)
        flat = np.concatenate(gradient[::-1]) if gradient else np.zeros(0)
        return error, flat

    def error(self, variances: Sequence[FloatArray]) -> tuple[float, list[FloatArray]]:
        """Return the workload's mean squared error and its derivative by the nodes' variances."""
        anticipating, total = self.release == "anticipating", 0.0
        gradient = [np.zeros(count) for count in self.counts]
        for part, weight in self.workload.parts:
            questions = self.questions[part]
            scale = float(weight) / (self.horizon if questions is None else len(questions))
            if questions is None:
                running = anticipating_error if anticipating else causal_error
                error, by_variance = running(self.shape, self.horizon, variances)
            else:
                error, by_variance = questions_error(
                    self.shape, self.horizon, variances, questions, anticipating
                )
            total += scale * error
            gradient = [own + scale * more for own, more in zip(gradient, by_variance, strict=True)]
        if self.total_weight:
            whole = np.array([[0, self.horizon]])
            error, by_variance = questions_error(self.shape, self.horizon, variances, whole, anticipating)
            total += self.total_weight * error
            added = zip(gradient, by_variance, strict=True)
            gradient = [own + self.total_weight * more for own, more in added]
        return total, gradient

    def _noise(self, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the discrete variances and their derivatives; infinite and 0 for a share of 0."""
        half = np.where(shares > 0, shares, 1.0) * (self.rate / 2.0)
        variance = 0.5 / np.sinh(half) ** 2
        slope = -self.rate * variance / np.tanh(half)
        return np.where(shares > 0, variance, np.inf), np.where(shares > 0, slope, 0.0)

    def rounded(self, shares: list[FloatArray]) -> tuple[Uint16Array, ...]:
        """Round inner shares to whole 4096ths and give leaves the rest: every path adds up to 1 exactly.

        The optimum starves some nodes; those that round to nothing are not measured.
        """
        rest, rounded = np.full(self.counts[0], WHOLE, np.int64), []
        for level, rows in enumerate(shares[:-1], start=1):
            part = np.minimum(np.rint(rows * WHOLE).astype(np.int64), rest - 1)
            rounded.append(part)
            rest = to_children(rest - part, self.shape.branching[level], self.counts[level])
        return tuple(part.astype(np.uint16) for part in (*rounded, rest))


def _questions(part: WorkloadPart, horizon: int) -> Int64Array | None:
    """Return a part's questions, None for prefixes; of very many ranges an even spread."""
    if part.question == "prefix":
        return None
    if part.question == "sliding" or horizon <= _ALL_RANGES:
        return part.ranges(horizon)
    # Additive sequences of the plastic number cover the square of edges evenly.
    steps = np.arange(1.0, _RANGES_A_BIN * horizon + 1.0)
    edges = np.stack([steps * 0.7548776662466927, steps * 0.5698402909980532], axis=1) % 1.0
    spread = np.sort((edges * (horizon + 1)).astype(np.int64), axis=1)
    return np.asarray(spread[spread[:, 0] < spread[:, 1]])


@lru_cache(maxsize=64)
def _best_branching(
    horizon: int, rate: float, release: Release, workload: Workload = PREFIX
) -> tuple[int, ...]:
    """Take the best level-uniform tree or, where trying is quick, a better one with one factor changed."""
    best = best_branching(horizon, rate, release, workload)
    if horizon <= 2:
        return best
    shapes = {best}
    if horizon <= _LARGEST_SEARCHED:
        shapes |= _neighbours(best, horizon, 4 if horizon <= _WIDELY_SEARCHED else 1, release)
    elif release == "causal" and workload == PREFIX:
        # Shares per node make levels cheaper there: the best tree tends to be one level taller.
        shapes.add(balanced_branching(horizon, len(best) + 1))
    if len(shapes) == 1:
        return best
    return min(
        sorted(shapes),
        key=lambda shape: _Problem(TreeShape(shape), horizon, rate, release, workload).trial(),
    )


def _neighbours(
    branching: tuple[int, ...], horizon: int, reach: int, release: Release
) -> set[tuple[int, ...]]:
    """Return trees with one lower factor changed by at most ``reach``; the top one covers the horizon.

    A root of the epoch stays one.
    """
    if math.prod(branching[1:]) >= horizon:
        return with_root(_neighbours(branching[1:], horizon, reach, release), horizon, release)
    lower, shapes = branching[1:], set()
    for i, k in enumerate(lower):
        for changed in range(max(2, k - reach), k + reach + 1):
            factors = (*lower[:i], changed, *lower[i + 1 :])
            bins = math.prod(factors)
            if bins < horizon:
                shapes.add((-(-horizon // bins), *factors))
    return shapes
