"""What rules see in a stream's released values: the distance past a threshold, and the required margin."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dphist.laws.interval import half_width, half_widths
from dphist.laws.inversion import tail_bounds
from dphist.laws.law import LawTable
from dphist.tree.estimate import Estimate
from stream_app.core.alerts.conditions import OF_VALUES, Condition
from stream_app.core.alerts.ranges import AskedSum, Ranges
from stream_app.core.alerts.rules import Rule
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView

_FEW = 16
Shown = tuple[float | None, float | None]


class Now(NamedTuple):
    """The value of a condition at the last release, in the condition's unit.

    Args: value and stderr, None where there is none; against, as of ``Reading``; missing, why the condition
        cannot be decided: bins that were never measured, or a past that is not known.
    """

    value: float | None = None
    stderr: float | None = None
    against: float | None = None
    missing: str = ""


@dataclass(frozen=True)
class Reading:
    """The value that a rule sees at one release, in events (ks: in shares).

    Args:
        beyond: how far the estimate is past the threshold; negative if it is not past it.
        margin: the smallest distance past the threshold that noise alone exceeds with probability at most
            1 - confidence; infinite if the estimate is within it, a bound if the estimate is far beyond it.
        beyond_clear: how far the estimate is past the value at which a firing alert ends.
        show: the value and its standard error in the condition's own unit, for notifications; None if
            there is none.
        reach: half the width of the value's 95 % interval, in the same unit; None if there is none.
        against: the estimate of the past with which the value is compared, times the factor; None if there is
            none.
    """

    beyond: float
    margin: float
    beyond_clear: float
    show: Callable[[], Shown]
    reach: Callable[[], float | None] = lambda: None
    against: Callable[[], float | None] = lambda: None

    def past(self, rule: Rule) -> bool:
        """Return whether the true value is past the threshold with the rule's confidence.

        Guarantee: if the true value is not past it, this returns True with probability at most 1 -
            confidence, at each release.
        """
        loose = rule.condition.comparison in (">=", "<=")
        return self.beyond >= self.margin if loose else self.beyond > self.margin

    @property
    def cleared(self) -> bool:
        """Return whether the estimate is back at the value that ends a firing alert."""
        return self.beyond_clear <= 0


def readings(rules: Sequence[Rule], view: StreamView) -> list[Reading | None]:
    """Return each rule's reading of a stream now; None if part of its window was never measured.

    Args: view, with its earlier segments if rules compare with them.
    Cost: one estimate per length of window; a product of columns per different sum, and a millisecond for
        each sum that is past a rule's threshold; two bands for each distance that is past its threshold.
    """
    ranges = Ranges(view)
    seen: dict[int, tuple[AskedSum, tuple[float, float]]] = {}  # by the rule's place
    past: dict[float, list[int]] = defaultdict(list)  # places of rules past their threshold, by confidence
    for place, rule in enumerate(rules):
        try:
            question = ranges.question(rule.condition)
            far = None if question is None else _beyond(rule, question, ranges)
        except QueryError:  # some of its bins were never measured, or its past is not known
            continue
        if question is not None and far is not None:
            seen[place] = question, far
            if far[0] >= 0 and rule.condition.measure != "ks":
                past[rule.confidence].append(place)
    margin_of: dict[int, float] = {}
    for confidence, places in past.items():
        estimates = [ranges.estimate(seen[place][0]) for place in places]
        distances = [seen[place][1][0] for place in places]
        margin_of |= zip(places, _decisive_margins(estimates, distances, confidence), strict=True)
    return [
        _reading(rule, *seen[place], margin_of.get(place, math.inf), ranges) if place in seen else None
        for place, rule in enumerate(rules)
    ]


def shown_now(conditions: Sequence[Condition], view: StreamView) -> list[Now]:
    """Return the present value of each condition, in its own unit.

    Args: view, as of ``readings``.
    Cost: one estimate per length of window, one product of columns per different sum.
    """
    ranges, found = Ranges(view), list[Now]()
    for condition in conditions:
        try:
            question = None if condition.measure == "no_data" else ranges.question(condition)
            if question is None:
                found.append(Now())
                continue
            against = ranges.past(condition, question)
            found.append(Now(*ranges.shown(condition, question), against))
        except QueryError as missing:
            found.append(Now(missing=missing.line))
    return found


def margins(estimates: Sequence[Estimate], confidence: float) -> list[float]:
    """Return for each estimate the least m >= 0 with P(error > m) <= 1 - confidence, by its exact law.

    The law is symmetric, so P(error > m) is half of P(|error| > m). So m is the half width of the interval
    with confidence 2 * confidence - 1, plus the rounding of integer arithmetic.
    """
    two_sided = 2 * confidence - 1
    if not estimates or two_sided <= 0:
        return [one.rounding for one in estimates]
    laws = list(dict.fromkeys(one.law for one in estimates))
    if len(laws) <= _FEW:  # single laws are cached: the laws of a tree recur
        halves = [half_width(law, two_sided).value for law in laws]
    else:
        halves = half_widths(LawTable.of(laws), two_sided)[0].tolist()
    half_of = dict(zip(laws, halves, strict=True))
    return [half_of[one.law] + one.rounding for one in estimates]


def _decisive_margins(
    estimates: Sequence[Estimate], distances: Sequence[float], confidence: float
) -> list[float]:
    """Return margins that lead to the same decisions about these distances as the exact margins.

    They are infinite for distances within the margin. A distance outside both bounds of its margin needs no
    inversion of a law, so an alert that has been firing for hours costs nothing.
    """
    low, found = margin_bounds(estimates, confidence)
    close = [place for place, far in enumerate(distances) if low[place] <= far <= found[place]]
    for place, exact in zip(close, margins([estimates[one] for one in close], confidence), strict=True):
        found[place] = exact
    return [margin if far >= margin else math.inf for far, margin in zip(distances, found, strict=True)]


def margin_bounds(estimates: Sequence[Estimate], confidence: float) -> tuple[list[float], list[float]]:
    """Return a lower and an upper bound on each estimate's margin.

    Guarantee: the upper bound is Chernoff's. The lower bound is that of Paley and Zygmund for the square of
        the error S, whose fourth moment is known exactly: P(|S| > t sd) >= (1 - t^2)^2 sd^4 / E S^4.
    """
    beyond, known = 1.0 - confidence, list(dict.fromkeys(one.law for one in estimates))
    laws, place = LawTable.of(known), {law: row for row, law in enumerate(known)}
    rounding = np.array([one.rounding for one in estimates], np.float64)
    variance = laws.deviations() ** 2
    fourth = laws.fourth_moments()
    kurtosis = np.divide(fourth, variance**2, out=np.full_like(variance, np.inf), where=variance > 0)
    # The law is symmetric, so half of it lies on each side.
    part = 1.0 - np.sqrt(np.minimum(2.0 * beyond * kurtosis, 1.0))
    low, high = np.sqrt(part * variance), np.where(variance > 0, np.inf, 0.0)
    noisy = np.flatnonzero(variance > 0)
    if len(noisy) and beyond < 0.5:
        high[noisy] = tail_bounds(laws.take(noisy), (2.0 * beyond,))[0]
    rows = [place[one.law] for one in estimates]
    return (low[rows] - rounding).tolist(), (high[rows] + rounding).tolist()


def _beyond(rule: Rule, question: AskedSum, ranges: Ranges) -> tuple[float, float]:
    """Return how far the estimate is past the threshold and past the clearing value. Raises: QueryError."""
    condition, threshold = rule.condition, rule.condition.threshold
    assert threshold is not None  # only rules on silence have none
    clear = threshold if rule.clear is None else rule.clear
    if condition.measure == "ks":
        distance = ranges.distance(question)
        found = [distance - threshold, distance - clear]
    elif condition.measure in OF_VALUES or condition.measure == "mean" or condition.against_past:
        back = question if rule.clear is None else ranges.question(condition, clear)
        assert back is not None
        found = [ranges.value(question), ranges.value(back)]
    else:
        value = ranges.value(question)
        found = [value - condition.events(threshold), value - condition.events(clear)]
    # Every reading is positive if the measure is above the threshold. The q-quantile is above a point if
    # less than a part q of the events lies below the point. A mean is above a point if the sum is more than
    # the point times the count.
    return (found[0], found[1]) if condition.upward else (-found[0], -found[1])


def _reading(
    rule: Rule, question: AskedSum, far: tuple[float, float], margin: float, ranges: Ranges
) -> Reading:
    """Return a rule's reading. Args: far, as ``_beyond`` returns it; margin, except for ks."""
    beyond, back = far
    if rule.condition.measure == "ks" and beyond > 0:
        certain = ranges.certain_distance(question, rule.confidence)
        value = ranges.distance(question)
        margin = max(0.0, value - certain.lower if rule.condition.upward else certain.upper - value)
    return Reading(
        beyond,
        margin,
        back,
        lambda: ranges.shown(rule.condition, question),
        lambda: ranges.reach(rule.condition, question),
        lambda: ranges.past(rule.condition, question),
    )
