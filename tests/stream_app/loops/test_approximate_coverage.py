"""An approximate stream's answers over HTTP, compared with recounts in many seeded runs.

Each run counts other visits with other noise through the real loops, with restarts, and asks the API.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.stats import binom

from stream_app.api.app import create_app
from stream_app.core.strategy import Strategy
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import SHARED
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM
from tests.stream_app.loops.test_approximate import approximate
from tests.stream_app.loops.test_count_users import (
    BINS,
    COUNTRIES,
    EPOCH_BINS,
    ServiceNoise,
    Visits,
    recounted,
    some_visits,
)

RUNS = int(os.environ.get("COVERAGE_RUNS", "40"))
FALSE_ALARM = 1e-6
CONFIDENCE = 0.95
QUESTIONS = ("a bin", "a range", "two epochs", "a key", "running", "by key")


class Louder(ServiceNoise):
    """Noise of six times the stated scale: the intervals hold the truth in a quarter of all runs."""

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Any:
        """Draw with a larger variance than asked for."""
        return super().discrete_gaussian(36 * variance, shape)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)


def answered(directory: Path, strategy: Strategy, seed: int, noise: ServiceNoise) -> dict[str, bool]:
    """Return for each question whether the interval that the API answers holds the true number.

    "running" and "by key" are each about one bin or key, which the seed chooses.
    """
    directory.mkdir()
    one, visits = Visits(directory, strategy), some_visits(seed)

    async def run() -> dict[str, bool]:
        for start in range(0, BINS, 3):
            stop = FIRST_BIN + start + 3
            one.append_visits([visit for visit in visits if stop - 3 <= visit[0] < stop])
            await one.run_until(stop, noise)
        return await _held(one.store, recounted(visits), seed)

    try:
        return asyncio.run(run())
    finally:
        one.close()


async def _held(store: MemoryStore, truth: np.ndarray, seed: int) -> dict[str, bool]:
    app = create_app(store.reader(), apart=SHARED)
    await app.state.replicas.refresh()
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

        async def asked(path: str, start: int, stop: int, **more: str) -> Any:
            edges = {"start": _instant(start), "end": _instant(stop)}
            answer = await client.get(f"/v1/streams/{STREAM}/{path}", params=edges | more)
            assert answer.status_code == 200, answer.text
            return answer.json()

        async def count(start: int, stop: int, **more: str) -> bool:
            key = more.get("key")
            columns = [COUNTRIES.index(key)] if key else [0, 1, 2]
            lower, upper = (await asked("count", start, stop, **more))["interval"]
            return bool(lower <= truth[start:stop, columns].sum() <= upper)

        bin, place = seed % BINS, seed % len(COUNTRIES)
        running = await asked("series", 0, BINS, kind="running")
        so_far = truth[: bin + 1].sum()
        keys = (await asked("keys", 2, 13, step="11"))["keys"]
        of_key, exact = keys[place], truth[2:13, place].sum()
        return {
            "a bin": await count(bin, bin + 1),
            "a range": await count(1, EPOCH_BINS - 1),
            "two epochs": await count(3, BINS - 1),
            "a key": await count(1, EPOCH_BINS, key=COUNTRIES[place]),
            "running": bool(running["lower"][bin] <= so_far <= running["upper"][bin]),
            "by key": bool(of_key["interval"][0] <= exact <= of_key["interval"][1]),
        }


def _instant(bin: int) -> str:
    return datetime.fromtimestamp((FIRST_BIN + bin) * BIN_US / 1e6, UTC).isoformat()


def coverage(directory: Path, runs: int, noise: type[ServiceNoise] = ServiceNoise) -> Mapping[str, int]:
    """Return how often each interval held the truth in seeded runs."""
    strategy, held = approximate(Fraction(1)), Counter[str](dict.fromkeys(QUESTIONS, 0))
    for seed in range(runs):
        held.update(answered(directory / str(seed), strategy, seed, noise(seed)))
    return held


def least(runs: int) -> int:
    """Return the least number of runs whose intervals must hold.

    A correct service falls below it in fewer than ``FALSE_ALARM`` of all choices of seeds: one binomial law
    of p = 0.95 for each question.
    """
    return int(binom.ppf(FALSE_ALARM / len(QUESTIONS), runs, CONFIDENCE))


def test_intervals_hold_the_truth_in_enough_of_many_seeded_runs(tmp_path: Path) -> None:
    held = coverage(tmp_path, RUNS)
    assert min(held.values()) >= least(RUNS), held


def test_noise_that_is_too_large_is_noticed(tmp_path: Path) -> None:
    runs = 12
    held = coverage(tmp_path, runs, Louder)
    assert max(held.values()) < least(runs), held
