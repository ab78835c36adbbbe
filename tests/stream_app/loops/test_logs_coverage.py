"""Intervals hold as often as they say where events come from files with a past, or over HTTP.

A list of files is history first: some of it is compressed, and the worker finds it all at its start. Then it
is followed. Events over HTTP are stored in a spool; listeners die, and senders repeat requests. Both logs are
read by the real loops, with seeded noise, over three epochs.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.stats import binom

from dphist.noise import NoiseSource
from dphist.tree.design import Release
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.tables import Span
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, design_of, strategy_of
from tests.stream_app.files import event_line
from tests.stream_app.loops.test_count_users import ServiceNoise
from tests.stream_app.loops.test_groups_coverage import LargeNoise
from tests.stream_app.loops.test_neighbouring_logs import LOGS
from tests.stream_app.product_stream import view_of

RUNS = int(os.environ.get("COVERAGE_RUNS", "12"))  # of each log, both releases together
PAST, BINS = 8, 15  # the bins of history; all bins. An epoch has six.
RANGES = {
    "all": (0, BINS),
    "history": (0, PAST),
    "inside an epoch of history": (1, 5),
    "over the moment at which history ends": (PAST - 3, PAST + 3),
    "live": (PAST, BINS),
}
FALSE_ALARM = 1e-6
RELEASES: tuple[Release, ...] = ("causal", "anticipating")


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)


def released(
    directory: Path, log: str, seed: int, epsilon: Fraction, noise: NoiseSource
) -> tuple[StreamView, list[int]]:
    """Count a log; return what readers see, and the events of each bin."""
    directory.mkdir()
    rng = random.Random(f"{log} {seed}")
    design = replace(design_of(epsilon=epsilon), release=RELEASES[seed % len(RELEASES)])
    bins = range(FIRST_BIN, FIRST_BIN + BINS)
    events = [
        [event_line(int((bin + rng.random()) * BIN_US), user="ann") for _ in range(rng.randrange(9))]
        for bin in bins
    ]
    with closing(LOGS[log](directory, strategy_of(design))) as one:

        async def close_until(bin: int) -> None:
            closer, ingest = one.closer(noise=noise), one.ingest()
            await closer.reconcile()
            one.clock.set_bin(bin)
            while await ingest.step():
                pass
            await closer.close_due()
            await closer.publisher.publish()

        for place, lines in enumerate(events):
            one.write(rng, lines)
            if place < PAST - 1:
                continue  # no worker has ever run
            asyncio.run(close_until(FIRST_BIN + place + 1))
            if rng.random() < 0.3:
                one.restart()
        return asyncio.run(view_of(one.store)), [len(lines) for lines in events]


def held_in(folder: Path, log: str, runs: int, noise_of: Callable[[int], NoiseSource]) -> Counter[str]:
    """Return in how many runs the interval of each range holds the number of its events."""
    held = Counter[str]()
    for seed in range(runs):
        view, events = released(folder / str(seed), log, seed, Fraction(1), noise_of(seed))
        for name, (start, stop) in RANGES.items():
            interval = view.count(Span(FIRST_BIN + start, FIRST_BIN + stop)).interval(0.95)
            held[name] += bool(interval.lower <= sum(events[start:stop]) <= interval.upper)
    assert len(held) == len(RANGES)
    return held


def least(runs: int) -> int:
    """Return how often every interval holds, with a false alarm in fewer than one of 10^6 choices of seeds.

    The checks are binomial laws of p = 0.95, one for each log and range.
    """
    return int(binom.ppf(FALSE_ALARM / (len(RANGES) * len(LOGS)), runs, 0.95))


@pytest.mark.parametrize("log", LOGS)
def test_without_noise_ranges_over_history_and_live_equal_the_recount(tmp_path: Path, log: str) -> None:
    for seed in range(2):
        view, events = released(tmp_path / str(seed), log, seed, NO_NOISE, ServiceNoise(seed))
        for start, stop in RANGES.values():
            count = view.count(Span(FIRST_BIN + start, FIRST_BIN + stop))
            assert count.value == pytest.approx(sum(events[start:stop]), abs=1e-6)


@pytest.mark.parametrize("log", LOGS)
def test_intervals_hold_the_events_in_enough_of_many_seeded_runs(tmp_path: Path, log: str) -> None:
    held = held_in(tmp_path, log, RUNS, ServiceNoise)
    assert min(held.values()) >= least(RUNS), held


def test_noise_that_is_larger_than_stated_is_caught(tmp_path: Path) -> None:
    runs = 12
    assert min(held_in(tmp_path, "files", runs, LargeNoise).values()) < least(runs)
