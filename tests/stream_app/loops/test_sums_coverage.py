"""The intervals of sums and means hold as often as they say, through the whole service and its noise."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.stats import binom

from dphist.laws.interval import half_widths
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, mean_series, sum_of, sum_series
from stream_app.core.kinds.tables import Span
from stream_app.core.strategy import Strategy
from tests.stream_app.declared import FIRST_BIN
from tests.stream_app.loops.test_count_users import ServiceNoise
from tests.stream_app.product_stream import view_of
from tests.stream_app.summed_stream import BINS, RELEASES, Sale, Sales, recounted, some_sales, sums_strategy

RUNS = int(os.environ.get("COVERAGE_RUNS", "24"))  # of all strategies together
RANGES = {"all": (0, BINS), "inside": (1, 5), "two epochs": (4, 8)}
KEYS = {"every key": (None, [0, 1, 2]), "DE": ("DE", [1])}
CHECKS = 2 * len(RANGES) * len(KEYS) + 2
FALSE_ALARM = 1e-6


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)


def released(directory: Path, strategy: Strategy, sales: list[Sale], seed: int) -> StreamView:
    """Count and release all sales with seeded noise; return what readers see."""
    directory.mkdir()
    one, noise = Sales(directory, strategy), ServiceNoise(seed)

    async def run() -> StreamView:
        for start in range(0, BINS, 3):
            one.append_sales([sale for sale in sales if start <= sale[0] - FIRST_BIN < start + 3])
            closer = one.closer(noise=noise)
            await closer.reconcile()
            ingest = one.ingest()
            one.clock.set_bin(FIRST_BIN + start + 3)
            while await ingest.step():
                pass
            await closer.close_due()
            await closer.publisher.publish()
        return await view_of(one.store)

    view = asyncio.run(run())
    one.close()
    return view


def held_in(folder: Path, runs: int) -> Counter[str]:
    """Return in how many runs the interval of each sum and mean holds the recounted number."""
    strategies = [
        sums_strategy(release, Fraction(1), total) for release in RELEASES for total in (False, True)
    ]
    held = Counter[str]()
    for seed in range(runs):
        sales = some_sales(seed)
        counts, cents = recounted(sales)
        view = released(folder / str(seed), strategies[seed % len(strategies)], sales, seed)
        for key, columns in KEYS.values():
            for name, (a, b) in RANGES.items():
                span, what = Span(FIRST_BIN + a, FIRST_BIN + b), f"{key} {name}"
                true = cents[a:b, columns].sum() / 100
                interval, mean = sum_of(view, span, key).interval(0.95), mean_over(view, span, key)
                held[f"sum {what}"] += bool(interval.lower - 1e-9 <= true <= interval.upper + 1e-9)
                held[f"mean {what}"] += bool(mean.lower <= true / counts[a:b, columns].sum() <= mean.upper)
        # One point of each series, another one in every run.
        place = seed % BINS
        number, true = counts[place].sum(), cents[place].sum() / 100
        points = sum_series(view, "bin", view.span)
        reach = (half_widths(points.laws, 0.95)[0] + points.roundings)[place]
        held["sum of a bin"] += bool(abs(points.values[place] - true) <= reach + 1e-9)
        mean = mean_series(view, "bin", view.span, points=BINS).means[place]
        held["mean of a bin"] += bool(mean.lower <= true / number <= mean.upper)
    assert len(held) == CHECKS
    return held


def least(runs: int) -> int:
    """Return how often every interval holds, with a false alarm in fewer than one of 10^6 choices of seeds.

    The checks are 14 binomial laws of p = 0.95.
    """
    return int(binom.ppf(FALSE_ALARM / CHECKS, runs, 0.95))


def test_intervals_hold_the_sums_and_means_in_enough_of_many_seeded_runs(tmp_path: Path) -> None:
    held = held_in(tmp_path, RUNS)
    assert min(held.values()) >= least(RUNS), held
