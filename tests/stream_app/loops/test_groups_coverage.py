"""The intervals of groups of keys and of rollups hold as often as they say, through the whole service."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource, Scale
from dphist.tree.design import Release
from stream_app.core.answers.asked_keys import AskedKeys
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.tables import Span
from stream_app.core.strategy import Strategy
from tests.stream_app.declared import FIRST_BIN
from tests.stream_app.fields_stream import BINS, Click, Clicks, fields_strategy, recounted, some_clicks
from tests.stream_app.loops.test_count_users import ServiceNoise
from tests.stream_app.product_stream import view_of

RUNS = int(os.environ.get("COVERAGE_RUNS", "16"))  # of all strategies together
RANGES = {"all": (0, BINS), "inside": (1, 5), "two epochs": (4, 8)}
# Each group, and the countries and devices whose counts it adds up by hand.
GROUPS: dict[str, tuple[AskedKeys, list[tuple[int, int]]]] = {
    "one key": (AskedKeys(("FR/mobile",)), [(0, 0)]),
    "two keys": (AskedKeys(("FR/mobile", "other/desk\\/top")), [(0, 0), (2, 1)]),
    "all but": (AskedKeys(("DE/mobile",), without=True), [(0, 0), (0, 1), (1, 1), (2, 0), (2, 1)]),
    "a country": (AskedKeys(("other/*",)), [(2, 0), (2, 1)]),
    "a device": (AskedKeys(("*/mobile",)), [(0, 0), (1, 0), (2, 0)]),
    "a country and a key": (AskedKeys(("FR/*", "DE/mobile")), [(0, 0), (0, 1), (1, 0)]),
    "every key": (AskedKeys(("*/*",)), [(country, device) for country in range(3) for device in range(2)]),
}
CHECKS = len(RANGES) * len(GROUPS)
FALSE_ALARM = 1e-6
RELEASES: tuple[Release, ...] = ("causal", "anticipating")
STRATEGIES = [(release, total) for release in RELEASES for total in (False, True)]


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)


class LargeNoise(ServiceNoise):
    """Noise of three times the scale that is asked for."""

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw at three times the scale."""
        return super().discrete_laplace(3 * Fraction(scale), shape)


def released(directory: Path, strategy: Strategy, clicks: list[Click], noise: NoiseSource) -> StreamView:
    """Count and release all clicks; return what readers see."""
    directory.mkdir()
    one = Clicks(directory, strategy)

    async def run() -> StreamView:
        for start in range(0, BINS, 4):
            one.append_clicks([click for click in clicks if start <= click[0] - FIRST_BIN < start + 4])
            closer = one.closer(noise=noise)
            await closer.reconcile()
            ingest = one.ingest()
            one.clock.set_bin(FIRST_BIN + start + 4)
            while await ingest.step():
                pass
            await closer.close_due()
            await closer.publisher.publish()
        return await view_of(one.store)

    view = asyncio.run(run())
    one.close()
    return view


def held_in(folder: Path, runs: int, noise_of: Callable[[int], NoiseSource]) -> Counter[str]:
    """Return in how many runs the interval of each group and range holds the recounted number."""
    held = Counter[str]()
    for seed in range(runs):
        release, total = STRATEGIES[seed % len(STRATEGIES)]
        clicks = some_clicks(seed, per_bin=20)
        exact, strategy = recounted(clicks), fields_strategy(release, Fraction(1), total)
        view = released(folder / str(seed), strategy, clicks, noise_of(seed))
        for group, (asked, cells) in GROUPS.items():
            of_group = view.of_key(asked)
            by_bin = np.sum([exact[:, country, device] for country, device in cells], axis=0)
            for name, (a, b) in RANGES.items():
                interval = of_group.count(Span(FIRST_BIN + a, FIRST_BIN + b)).interval(0.95)
                true = by_bin[a:b].sum()
                held[f"{group}, {name}"] += bool(interval.lower - 1e-9 <= true <= interval.upper + 1e-9)
    assert len(held) == CHECKS
    return held


def least(runs: int) -> int:
    """Return how often every interval holds, with a false alarm in fewer than one of 10^6 choices of seeds.

    The checks are 21 binomial laws of p = 0.95.
    """
    return int(binom.ppf(FALSE_ALARM / CHECKS, runs, 0.95))


def test_intervals_hold_the_counts_of_groups_in_enough_of_many_seeded_runs(tmp_path: Path) -> None:
    held = held_in(tmp_path, RUNS, ServiceNoise)
    assert min(held.values()) >= least(RUNS), held


def test_noise_that_is_larger_than_stated_is_caught(tmp_path: Path) -> None:
    runs = 12
    assert min(held_in(tmp_path, runs, LargeNoise).values()) < least(runs)
