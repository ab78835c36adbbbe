"""Forecast of a rule before it runs: how often it is wrong, and how long it takes to notice a change.

The error of an answer does not depend on the events, so noise is drawn once for many simulated runs. The rule
is tried on all runs: first with the truth at the threshold, then with a truth that moves past it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dphist.arrays import BoolArray, FloatArray
from dphist.noise import SeededNoise
from dphist.product.columns import ColumnSum
from dphist.tree.anticipating import AnticipatingCounter, new_counter
from dphist.tree.counter import TreeCounter
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from stream_app.core.alerts.axis_noise import SumNoise
from stream_app.core.alerts.readings import margins
from stream_app.core.alerts.rules import Rule
from stream_app.core.kinds.tables import TimeDesign

PATHS = 500  # simulated runs
_MOST_CELLS = 4_000_000  # bins times paths in memory
_LEAST_PATHS = 8
_SHIFTS = 8  # bins at which the truth shifts, on every path


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected behaviour of a rule.

    Args:
        stderr: the median standard error of the rule's value, in events.
        margin: the median distance past the threshold from which the rule's condition holds.
        false_alarm_rate: share of releases at which the condition holds, while the truth is at the threshold.
        false_firings: share of releases at which the rule begins to fire, with the truth at the threshold.
        shift: how far the truth moves past the threshold, in events: some standard errors.
        detected: share of the shifts that are noticed within the drawn bins.
        delay_bins: bins from the shift to the firing, median and 95th percentile; infinite beyond the drawn
            bins.
        paths, bins: how much noise was drawn.
    """

    stderr: float
    margin: float
    false_alarm_rate: float
    false_firings: float
    shift: float
    detected: float
    delay_bins: tuple[float, float]
    paths: int
    bins: int


def forecast(
    rule: Rule,
    design: TimeDesign,
    bin_us: int,
    noise: SeededNoise,
    shift_stderrs: float = 3.0,
    columns: ColumnSum | None = None,
) -> Forecast:
    """Return the forecast of a rule over a stream with this design.

    The rate shifts: a window wholly after the shift counts ``shift_stderrs`` standard errors more, a window
    that contains the shift counts its share of them. A running count moves at once.

    Args: design, over time; columns, the sum of columns that the rule sees, None for one tree over time.
    Cost: about a second, a few seconds for streams with many groups of columns.
    """
    window = None if rule.condition.window_us is None else rule.condition.window_us // bin_us
    bins, paths = _extent(design, window)
    # A counter without events, one cell per simulated run, or the sum's own noise: the counts are pure noise.
    drawn: AnticipatingCounter | TreeCounter | SumNoise
    if columns is not None:
        drawn = SumNoise(columns, noise, bins, paths)
    else:
        assert isinstance(design, TreeDesign)  # other designs have columns
        drawn = new_counter(design, noise, paths)
    errors, margin, stderr = _errors(rule, drawn, window, bins, paths)
    shift = shift_stderrs * float(np.median(stderr))

    def past(release: int, part: float) -> BoolArray:
        return np.asarray(errors[release] + shift * part > margin[release])

    return tried(rule, bin_us, past, _SHIFTS, stderr=stderr, margin=margin, shift=shift)


def tried(
    rule: Rule,
    bin_us: int,
    past: Callable[[int, float], BoolArray],
    shifts: int,
    *,
    stderr: FloatArray,
    margin: FloatArray,
    shift: float,
) -> Forecast:
    """Return the forecast of a rule from many simulated runs without events.

    Args: past, returns in which runs, shape (paths,), the rule is past its threshold at a release if the
        truth has moved by a part of the shift; shifts, the number of releases at which the truth begins to
        move; stderr and margin of each release.
    """
    releases, hold = len(margin), -(-rule.for_us // bin_us) + 1
    window = max(1, (rule.condition.window_us or 0) // bin_us)
    at_threshold = np.array([past(release, 0.0) for release in range(releases)])
    delays = []
    for start in np.linspace(0, releases // 2, shifts, dtype=int).tolist():
        parts = np.minimum(np.arange(1, releases - start + 1) / window, 1.0).tolist()
        holds = held(np.array([past(release, part) for release, part in enumerate(parts, start)]), hold)
        delays.append(np.where(holds.any(axis=0), holds.argmax(axis=0) + 1.0, np.inf))
    late = np.sort(np.concatenate(delays))
    return Forecast(
        stderr=float(np.median(stderr)),
        margin=float(np.median(margin)),
        false_alarm_rate=float(at_threshold.mean()),
        false_firings=float(_beginnings(held(at_threshold, hold)).mean()),
        shift=abs(shift),
        detected=float(np.isfinite(late).mean()),
        delay_bins=(_quantile(late, 0.5), _quantile(late, 0.95)),
        paths=at_threshold.shape[1],
        bins=releases,
    )


def _extent(design: TimeDesign, window: int | None) -> tuple[int, int]:
    bins = min(design.horizon, max(512, 6 * (window or 0)))
    drawn_bins = design.drawn_nodes(bins)[-1] if isinstance(design, TreeDesign) else bins
    return bins, max(_LEAST_PATHS, min(PATHS, _MOST_CELLS // drawn_bins))


def _errors(
    rule: Rule,
    drawn: AnticipatingCounter | TreeCounter | SumNoise,
    window: int | None,
    bins: int,
    paths: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the errors, shape (releases, paths), and the margin and the standard error of every release."""
    counts = np.zeros(paths, np.int64)
    estimates: list[Estimate] = []
    for bin in range(bins):
        drawn.push(counts)  # push before asking: a causal answer uses the nodes that are complete by now
        start = bin + 1 - window if window else 0
        if start >= 0:
            estimates.append(drawn.range(start, bin + 1))
    if not estimates:
        raise ValueError(f"{rule.name}: its window is longer than an epoch; shorten it")
    errors = np.array([one.value for one in estimates], np.float64).reshape(len(estimates), paths)
    stderrs = np.array([one.stderr for one in estimates])
    return errors, np.array(margins(estimates, rule.confidence)), stderrs


def held(past: BoolArray, hold: int) -> BoolArray:
    """Return where a condition has held for ``hold`` releases in a row, this one included."""
    found = past.copy()
    for back in range(1, hold):
        found[back:] &= past[:-back]
        found[:back] = False
    return found


def _beginnings(holds: BoolArray) -> BoolArray:
    """Return where a condition holds but did not hold at the release before."""
    before = np.vstack([np.zeros((1, holds.shape[1]), bool), holds[:-1]])
    return np.asarray(holds & ~before)


def _quantile(rising: FloatArray, part: float) -> float:
    """Return the delay that a share ``part`` of the delays does not exceed."""
    return float(rising[min(len(rising) - 1, int(np.ceil(part * len(rising))) - 1)])
