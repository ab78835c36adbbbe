"""What rules see in a stream's released values: the distance past a threshold, and the required margin."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dphist.laws.interval import half_width, half_widths
from dphist.laws.inversion import tail_bounds
from dphist.laws.law import LawTable
from dphist.tree.estimate import Estimate
from stream_app.core.alerts.ranges import Question, Ranges, question_of
from stream_app.core.alerts.rules import OF_VALUES, Rule
from stream_app.core.answered import QueryError
from stream_app.core.query import StreamView

_FEW = 16
Shown = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Margin:
    """An exact margin, or an interval known not to contain the decision threshold."""

    least: float
    most: float

    def for_distance(self, beyond: float) -> float:
        """Return a number that leads to the same decision about a distance as the exact margin."""
        return self.most if beyond >= self.most else math.inf


_UNKNOWN = Margin(0.0, math.inf)


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
    """

    beyond: float
    margin: float
    beyond_clear: float
    show: Callable[[], Shown]

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

    Cost: one estimate per length of window; a product of columns per different sum, and a millisecond for
        each sum that is past a rule's threshold; two bands for each distance that is past its threshold.
    """
    ranges = Ranges(view)
    questions = [question_of(rule.condition, view, ranges.span) for rule in rules]
    beyond = [_beyond(rule, question, ranges) for rule, question in zip(rules, questions, strict=True)]
    asked: dict[float, dict[Question, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rule, question, far in zip(rules, questions, beyond, strict=True):
        if question is not None and far is not None and far[0] >= 0 and rule.condition.measure != "ks":
            asked[rule.confidence][question].append(far[0])
    margin_of = {
        (confidence, question): margin
        for confidence, some in asked.items()
        for question, margin in _decisive_margins(some, confidence, ranges).items()
    }
    return [
        None if question is None or far is None else _reading(rule, question, far, margin_of, ranges)
        for rule, question, far in zip(rules, questions, beyond, strict=True)
    ]


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
    asked: Mapping[Question, Sequence[float]], confidence: float, ranges: Ranges
) -> dict[Question, Margin]:
    """Return margins that lead to the same decisions about these distances as the exact margins.

    A distance above the upper bound or below the lower bound needs no inversion of a law. So an alert that
    has been firing for hours costs nothing.
    """
    questions = list(asked)
    estimates = [ranges.estimate(question) for question in questions]
    low, high = margin_bounds(estimates, confidence)
    found = {
        question: Margin(least, most) for question, least, most in zip(questions, low, high, strict=True)
    }
    open_ones = [
        place
        for place, distances in enumerate(asked.values())
        if any(low[place] <= far <= high[place] for far in distances)
    ]
    exact = margins([estimates[place] for place in open_ones], confidence)
    return found | {questions[place]: Margin(one, one) for place, one in zip(open_ones, exact, strict=True)}


def margin_bounds(estimates: Sequence[Estimate], confidence: float) -> tuple[list[float], list[float]]:
    """Return a lower and an upper bound on each estimate's margin.

    Guarantee: the upper bound is Chernoff's. The lower bound is that of Paley and Zygmund for the square of
        the error S, whose fourth moment is known exactly: P(|S| > t sd) >= (1 - t^2)^2 sd^4 / E S^4.
    """
    beyond, known = 1.0 - confidence, list(dict.fromkeys(one.law for one in estimates))
    laws, place = LawTable.of(known), {law: row for row, law in enumerate(known)}
    rounding = np.array([one.rounding for one in estimates], np.float64)
    variance = laws.deviations() ** 2
    fourth = 3.0 * variance**2 + (
        laws.copies * laws.weights**4 * (laws.variances + 3.0 * laws.variances**2)
    ).sum(axis=1)
    kurtosis = np.divide(fourth, variance**2, out=np.full_like(variance, np.inf), where=variance > 0)
    # The law is symmetric, so half of it lies on each side.
    part = 1.0 - np.sqrt(np.minimum(2.0 * beyond * kurtosis, 1.0))
    low, high = np.sqrt(part * variance), np.where(variance > 0, np.inf, 0.0)
    noisy = np.flatnonzero(variance > 0)
    if len(noisy) and beyond < 0.5:
        high[noisy] = tail_bounds(laws.take(noisy), (2.0 * beyond,))[0]
    rows = [place[one.law] for one in estimates]
    return (low[rows] - rounding).tolist(), (high[rows] + rounding).tolist()


def _beyond(rule: Rule, question: Question | None, ranges: Ranges) -> tuple[float, float] | None:
    """Return how far the estimate is past the threshold and past the clearing value; None if unknown."""
    condition, threshold = rule.condition, rule.condition.threshold
    if question is None or threshold is None:
        return None
    clear = threshold if rule.clear is None else rule.clear
    try:
        if condition.measure == "ks":
            distance = ranges.distance(question)
            found = [distance - threshold, distance - clear]
        elif condition.measure in OF_VALUES:
            back = question if rule.clear is None else question_of(condition, ranges.view, ranges.span, clear)
            assert back is not None
            found = [ranges.value(question), ranges.value(back)]
        else:
            value = ranges.value(question)
            found = [value - condition.events(threshold), value - condition.events(clear)]
    except QueryError:
        return None  # some of its bins were never measured: an epoch ended early
    # A quantile is above a point if fewer events than its part lie below: larger means upward for all.
    return (found[0], found[1]) if condition.upward else (-found[0], -found[1])


def _reading(
    rule: Rule,
    question: Question,
    far: tuple[float, float],
    margin_of: Mapping[tuple[float, Question], Margin],
    ranges: Ranges,
) -> Reading:
    beyond, back = far
    if rule.condition.measure != "ks":
        margin = margin_of.get((rule.confidence, question), _UNKNOWN).for_distance(beyond)
    elif beyond > 0:
        certain = ranges.certain_distance(question, rule.confidence)
        value = ranges.distance(question)
        margin = max(0.0, value - certain.lower if rule.condition.upward else certain.upper - value)
    else:
        margin = math.inf
    return Reading(beyond, margin, back, lambda: ranges.shown(rule.condition, question))
