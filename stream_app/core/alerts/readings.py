"""What rules see in a stream's released values: estimates, and how far past a threshold is far enough."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dphist.tree.estimate import Estimate
from dphist.tree.interval import half_width, half_widths
from dphist.tree.law import LawTable
from stream_app.core.alerts.rules import Rule
from stream_app.core.epoch_view import Span
from stream_app.core.query import QueryError, StreamView

_FEW = 16


@dataclass(frozen=True, slots=True)
class Reading:
    """What a rule sees at one release, in events.

    ``margin`` is the least distance from the threshold that noise alone crosses with probability at most
    1 - confidence; infinite where nobody needs it, as the estimate is on the threshold's near side.
    """

    value: float
    stderr: float
    margin: float

    def past(self, rule: Rule) -> bool:
        """Return whether the true value is past the threshold with the rule's confidence.

        Guarantee: while it is not, this is True with probability at most 1 - confidence, at each release.
        """
        beyond = _beyond(rule, self.value)
        return beyond >= self.margin if rule.condition.comparison in (">=", "<=") else beyond > self.margin

    def cleared(self, rule: Rule) -> bool:
        """Return whether the estimate is back where a firing alert ends."""
        condition = rule.condition
        clear = condition.threshold if rule.clear is None else rule.clear
        assert clear is not None
        beyond = self.value - condition.events(clear)
        return beyond <= 0 if condition.upward else beyond >= 0


def readings(rules: Sequence[Rule], view: StreamView) -> list[Reading | None]:
    """Return what each rule over a stream sees now; None where its window was not all measured.

    Cost: one estimate for each length of window, and a millisecond for each pair of window and confidence of
        which some rule's estimate is past its threshold.
    """
    windows = [window_bins(rule, view) for rule in rules]
    estimates = {bins: found for bins in set(windows) if (found := _estimate(view, bins)) is not None}
    margin_of: dict[tuple[float, int | None], float] = {}
    asked: dict[float, set[int | None]] = defaultdict(set)
    for rule, bins in zip(rules, windows, strict=True):
        if bins in estimates and _beyond(rule, float(estimates[bins].value)) >= 0:
            asked[rule.confidence].add(bins)
    for confidence, some in asked.items():
        known = list(some)
        least = margins([estimates[bins] for bins in known], confidence)
        margin_of |= {(confidence, bins): margin for bins, margin in zip(known, least, strict=True)}
    return [
        Reading(
            float(estimates[bins].value),
            estimates[bins].stderr,
            margin_of.get((rule.confidence, bins), math.inf),
        )
        if bins in estimates
        else None
        for rule, bins in zip(rules, windows, strict=True)
    ]


def margins(estimates: Sequence[Estimate], confidence: float) -> list[float]:
    """Return for each estimate the least m >= 0 with P(error > m) <= 1 - confidence, by its exact law.

    The law is symmetric, so P(error > m) is half of P(|error| > m): m is the half width of the interval that
    holds with 2 * confidence - 1, and what integer arithmetic adds.
    """
    two_sided = 2 * confidence - 1
    if not estimates or two_sided <= 0:
        return [one.rounding for one in estimates]
    if len(estimates) <= _FEW:  # one by one they are remembered: the laws of a tree come back
        return [half_width(one.law, two_sided).value + one.rounding for one in estimates]
    halves, _ = half_widths(LawTable.of([one.law for one in estimates]), two_sided)
    return [float(m) for m in halves + np.array([one.rounding for one in estimates])]


def window_bins(rule: Rule, view: StreamView) -> int | None:
    """Return how many bins a rule's window has; None for all."""
    window_us = rule.condition.window_us
    return None if window_us is None else window_us // view.binning.bin_us


def _beyond(rule: Rule, value: float) -> float:
    """Return how far past its threshold an estimate is, in events; negative on its near side."""
    condition = rule.condition
    assert condition.threshold is not None
    beyond = value - condition.events(condition.threshold)
    return beyond if condition.upward else -beyond


def _estimate(view: StreamView, bins: int | None) -> Estimate | None:
    first, stop = view.span
    if stop == first:
        return None
    if bins is None:
        return view.running()
    if stop - bins < first:
        return None
    try:
        return view.count(Span(stop - bins, stop))
    except QueryError:
        return None  # some of its bins were never measured: an epoch ended early
