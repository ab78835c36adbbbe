"""Released history as Prometheus sees it: one sample a bin, at the instant at which the bin ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dphist.tree.estimate import Estimate
from dphist.tree.interval import half_widths
from dphist.tree.law import LawTable
from stream_app.api.answers import DEFAULT_CONFIDENCE
from stream_app.api.promql import NAME_LABEL, Selector
from stream_app.core.epoch_view import Span
from stream_app.core.query import StreamView

Quantity = Literal["running", "bin"]
Part = Literal["value", "lower", "upper", "stderr"]

SHORTEST_LOOKBACK_US = 300_000_000  # Prometheus' own

_QUANTITIES: dict[Quantity, str] = {
    "running": "events since the stream's first bin",
    "bin": "events in the bin that ended",
}
_PARTS: dict[Part, str] = {
    "value": "Estimated",
    "lower": f"Lower end of the {DEFAULT_CONFIDENCE:.0%} interval of",
    "upper": f"Upper end of the {DEFAULT_CONFIDENCE:.0%} interval of",
    "stderr": "Standard error of",
}
# Name: what it is. All are gauges: a noisy count may fall, so ``rate()`` does not apply.
METRICS: dict[str, tuple[Quantity, Part, str]] = {
    f"private_counts_{quantity}" + ("" if part == "value" else f"_{part}"): (
        quantity,
        part,
        f"{words} {what}",
    )
    for quantity, what in _QUANTITIES.items()
    for part, words in _PARTS.items()
}
# The same of each key, under names of their own: whoever adds up a metric must not count events twice.
KEY_METRICS = {
    name.replace("private_counts_", "private_counts_key_"): (quantity, part, f"{text}, of one key")
    for name, (quantity, part, text) in METRICS.items()
}


@dataclass(frozen=True)
class Series:
    """One series: a part of a quantity of a stream, or of one of its keys.

    Only what is asked of it reads the view.
    """

    view: StreamView
    key: str | None
    quantity: Quantity
    part: Part
    labels: dict[str, str]

    def bin_at(self, time_us: int, step_us: int = 0) -> int | None:
        """Return the last bin that had ended at a time; None before the first and long after the last.

        A sample holds until the next one, and the last one for as long as the next may take: two bins and
        the grace; never less than Prometheus' five minutes, nor than the step of the question.
        """
        view, binning = self.view, self.view.binning
        first, stop = view.span
        bin = int(binning.bin_of(np.array([time_us], dtype=np.int64))[0]) - 1
        last = min(bin, stop - 1)
        if last < first:
            return None
        patience_us = 2 * binning.bin_us + view.declaration.closing.grace_us
        age_us = time_us - binning.end_us(last)
        return last if age_us < max(SHORTEST_LOOKBACK_US, patience_us, step_us) else None

    def values(self, bins: Sequence[int]) -> dict[int, float]:
        """Return the value at each bin's end; bins that were never measured are left out."""
        spans = [epoch.span for epoch in self.view.epochs]
        known = [bin for bin in bins if any(span.start <= bin < span.stop for span in spans)]
        estimates = [self._estimate(bin) for bin in known]
        return dict(zip(known, part_of(estimates, self.part), strict=True))

    def _estimate(self, bin: int) -> Estimate:
        view = self.view.of_key(self.key)
        if self.quantity == "running":
            return view.running(stop=bin + 1)
        return view.count(Span(bin, bin + 1))


def part_of(estimates: Sequence[Estimate], part: Part) -> list[float]:
    """Return one part of many estimates. Cost: 50 microseconds each for ends of intervals."""
    if part == "stderr":
        return [one.stderr for one in estimates]
    values = np.array([one.value for one in estimates], dtype=np.float64)
    if part == "value" or not estimates:
        return [float(value) for value in values]
    halves, _ = half_widths(LawTable.of([one.law for one in estimates]), DEFAULT_CONFIDENCE)
    halves = halves + np.array([one.rounding for one in estimates])
    return [float(value) for value in (values - halves if part == "lower" else values + halves)]


def selected(views: Sequence[StreamView], selector: Selector | None) -> Iterator[Series]:
    """Yield the series that a selector wants; all without one."""
    for view in views:
        common = {"stream": view.strategy.stream, "private": str(view.declaration.private).lower()}
        keys = view.strategy.axes.keys
        of_keys = () if keys is None else keys.labels
        for metrics, labels in ((METRICS, (None,)), (KEY_METRICS, of_keys)):
            for name, (quantity, part, _) in metrics.items():
                for key in labels:
                    own = {NAME_LABEL: name, **common} | ({} if key is None else {"key": key})
                    if selector is None or selector.matches(own):
                        yield Series(view, key, quantity, part, own)
