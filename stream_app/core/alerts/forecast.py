"""What to expect of a rule before it runs: how often it is wrong, and how long it takes to notice.

The error of an answer does not depend on the events, so the noise of many streams is drawn once and the rule
is tried on all of them: first with the truth at the threshold, then with a truth that moves past it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dphist.noise import NoiseSource
from dphist.tree.anticipating import AnticipatingCounter
from dphist.tree.counter import TreeCounter
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from stream_app.core.alerts.readings import margins
from stream_app.core.alerts.rules import Rule

PATHS = 500  # streams whose noise is drawn
_MOST_CELLS = 4_000_000  # bins times paths that are held
_LEAST_PATHS = 8
_SHIFTS = 8  # bins at which the truth is made to move, on every path


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a rule is expected to do.

    Args:
        stderr: the middle standard error of its value, in events.
        margin: the middle distance from the threshold at which it holds.
        false_alarm_rate: part of releases at which it is past the threshold while the truth is at it.
        false_firings: part of releases at which it begins to fire while the truth is at it.
        shift: how far the truth moves past the threshold, in events: some standard errors.
        detected: part of the shifts that are noticed while the drawn noise lasts.
        delay_bins: bins from the shift to the firing, median and 95th percentile; infinite beyond what was
            drawn.
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
    rule: Rule, design: TreeDesign, bin_us: int, noise: NoiseSource, shift_stderrs: float = 3.0
) -> Forecast:
    """Return what to expect of a rule over a stream with this design.

    The shift is of the rate: a window that lies wholly behind it counts so many standard errors more, one
    that it cuts counts its part of them. A running count moves at once.

    Cost: about a second.
    """
    window = None if rule.condition.window_us is None else rule.condition.window_us // bin_us
    bins, paths = _extent(design, window)
    errors, margin, stderr = _errors(rule, design, window, bins, paths, noise)
    past = errors > margin[:, np.newaxis]
    hold = -(-rule.for_us // bin_us) + 1
    held = _held(past, hold)
    begins = held & ~np.vstack([np.zeros((1, paths), bool), held[:-1]])
    shift = shift_stderrs * float(np.median(stderr))
    delays = _delays(errors, margin, shift, window or 1, hold)
    finite = np.isfinite(delays)
    return Forecast(
        stderr=float(np.median(stderr)),
        margin=float(np.median(margin)),
        false_alarm_rate=float(past.mean()),
        false_firings=float(begins.mean()),
        shift=shift,
        detected=float(finite.mean()),
        delay_bins=(_quantile(delays, 0.5), _quantile(delays, 0.95)),
        paths=paths,
        bins=len(errors),
    )


def _extent(design: TreeDesign, window: int | None) -> tuple[int, int]:
    wanted = 512 if window is None else max(512, 6 * window)
    bins = min(design.horizon, wanted)
    drawn = design.horizon if design.release == "anticipating" else bins  # such an epoch is drawn whole
    return bins, max(_LEAST_PATHS, min(PATHS, _MOST_CELLS // drawn))


def _errors(
    rule: Rule, design: TreeDesign, window: int | None, bins: int, paths: int, noise: NoiseSource
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return errors, shape (releases, paths), and for every release the margin and the standard error.

    Each path is a cell of one counter over nothing: what it counts is its noise.
    """
    counts = np.zeros(paths, np.int64)
    anticipating = design.release == "anticipating"
    counter = AnticipatingCounter(design, noise, paths) if anticipating else TreeCounter(design, noise, paths)
    estimates: list[Estimate] = []
    for bin in range(bins):
        counter.push(counts)  # and then ask: a causal answer uses what is complete by now
        start = 0 if window is None else bin + 1 - window
        if start >= 0:
            estimates.append(counter.range(start, bin + 1))
    if not estimates:
        raise ValueError(f"{rule.name}: its window is longer than an epoch; shorten it")
    errors = np.array([one.value for one in estimates], np.float64).reshape(len(estimates), paths)
    stderrs = np.array([one.stderr for one in estimates])
    return errors, np.array(margins(estimates, rule.confidence)), stderrs


def _held(past: NDArray[np.bool_], hold: int) -> NDArray[np.bool_]:
    """Return where a condition has held at this release and the ones before it, ``hold`` in all."""
    held = past.copy()
    for back in range(1, hold):
        held[back:] &= past[:-back]
        held[:back] = False
    return held


def _delays(
    errors: NDArray[np.float64], margin: NDArray[np.float64], shift: float, window: int, hold: int
) -> NDArray[np.float64]:
    """Return the bins from each shift to the firing, for each start and path; infinite if there is none."""
    releases = len(errors)
    found = []
    for start in np.linspace(0, releases // 2, _SHIFTS, dtype=int):
        since = np.arange(1, releases - start + 1)
        moved = errors[start:] + shift * np.minimum(since / window, 1.0)[:, np.newaxis]
        held = _held(moved > margin[start:, np.newaxis], hold)
        found.append(np.where(held.any(axis=0), held.argmax(axis=0) + 1.0, np.inf))
    return np.concatenate(found)


def _quantile(delays: NDArray[np.float64], part: float) -> float:
    return float(np.sort(delays)[min(len(delays) - 1, int(np.ceil(part * len(delays))) - 1)])
