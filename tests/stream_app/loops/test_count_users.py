"""A stream that counts users per country, through the service, compared with a recount of single records."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from dphist import plan_product
from dphist.noise import NoiseSource, SeededNoise
from dphist.tree.design import Release
from stream_app.api.answers.streams import users_of_epoch
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.bounding import user_ids
from stream_app.core.counting.cells import KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import Span
from stream_app.core.strategy import Strategy
from stream_app.sources.file import FileSource
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, strategy_of
from tests.stream_app.files import AT
from tests.stream_app.one_source import OneSource
from tests.stream_app.product_stream import view_of

COUNTRIES = ("FR", "DE", "IT")
EPOCH_BINS = 6
BINS = 15  # two epochs and a half
RELEASES: list[Release] = ["causal", "anticipating"]
RUNS = int(os.environ.get("COVERAGE_RUNS", "60"))  # of both releases together
CHECKS = 4  # ranges whose coverage is checked
FALSE_ALARM = 1e-6
Visit = tuple[float, str, str]  # place on the time line in bins, user, country


def users_strategy(release: Release, epsilon: Fraction = NO_NOISE) -> Strategy:
    """Return a strategy that counts users per country."""
    product = plan_product(EPOCH_BINS, epsilon, len(COUNTRIES), 1, release=release, branching=(2, 3))
    keys = KeyList("country", COUNTRIES, False, False)
    plain = strategy_of(product.time, keys=keys, max_events=1, count="users")
    return replace(plain, kind=kind_of(product))


class ServiceNoise(SeededNoise):
    """Seeded noise that the service accepts."""

    private = True  # stands in for the system source, which nobody can repeat


class Visits(OneSource):
    """A file of visits, a store and a witness."""

    def source(self) -> FileSource:
        """Open the file."""
        fields = ["user", "country"]
        self._sources.append(FileSource(self.path, "ndjson", AT, self.directory / "notes", fields))
        return self._sources[-1]

    def append_visits(self, visits: Iterable[Visit]) -> None:
        """Append visits."""
        lines = (
            json.dumps({"at": int(bin * BIN_US), "user": user, "country": country}).encode()
            for bin, user, country in visits
        )
        with self.path.open("ab") as file:
            file.writelines(line + b"\n" for line in lines)

    async def run_until(self, bin: int, noise: NoiseSource | None) -> None:
        """Count all visits and close the bins before ``bin``, with new loops."""
        closer = self.closer(noise=noise)
        await closer.reconcile()
        ingest = self.ingest()
        self.clock.set_bin(bin)
        while await ingest.step():
            pass
        await closer.close_due()
        await closer.publisher.publish()


def some_visits(seed: int) -> list[Visit]:
    """Return visits in order of time: of users who return, and who travel within a bin and between bins."""
    rng = random.Random(seed)
    users = [(f"user {n}", rng.choice(COUNTRIES)) for n in range(rng.randrange(5, 30))]
    visits: list[Visit] = []
    for place in sorted(rng.uniform(0, BINS) for _ in range(rng.randrange(20, 120))):
        user, home = rng.choice(users)
        visits.append((FIRST_BIN + place, user, home if rng.random() < 0.7 else rng.choice(COUNTRIES)))
    return visits


def released(
    directory: Path, strategy: Strategy, visits: list[Visit], noise: NoiseSource | None = None
) -> StreamView:
    """Count and release all visits, with new loops every three bins; return what readers see."""
    one = Visits(directory, strategy)

    async def run() -> StreamView:
        for start in range(0, BINS, 3):
            stop = FIRST_BIN + start + 3
            one.append_visits([visit for visit in visits if stop - 3 <= visit[0] < stop])
            await one.run_until(stop, noise)
        return await view_of(one.store)

    view = asyncio.run(run())
    one.close()
    return view


def recounted(visits: list[Visit]) -> np.ndarray:
    """Return the users first seen in each bin under each country, (bins, countries), user by user.

    In the first bin of a user in an epoch, a keyed hash of user and country chooses the country.
    """
    counts = np.zeros((BINS, len(COUNTRIES)), np.int64)
    for epoch in range(0, BINS, EPOCH_BINS):
        last = FIRST_BIN + epoch + EPOCH_BINS - 1
        own = [visit for visit in visits if epoch <= int(visit[0]) - FIRST_BIN < epoch + EPOCH_BINS]
        for user in {user for _, user, _ in own}:
            first = min(int(bin) for bin, name, _ in own if name == user)
            [identity], _ = user_ids([user], np.array([last]), lambda window: bytes(32))
            places = {
                COUNTRIES.index(country) for bin, name, country in own if (int(bin), name) == (first, user)
            }
            chosen = min(
                places, key=lambda place: hashlib.sha1(identity.tobytes() + place.to_bytes(4, "big")).digest()
            )
            counts[first - FIRST_BIN, chosen] += 1
    return counts


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", range(3))
def test_without_noise_each_user_counts_once_per_epoch_under_a_country_of_the_first_bin(
    tmp_path: Path, release: Release, seed: int
) -> None:
    visits = some_visits(seed)
    truth = recounted(visits)
    view = released(tmp_path, users_strategy(release), visits)
    for place, country in enumerate(COUNTRIES):
        bins = view.of_key(country).series("bin", view.span)
        assert np.rint(bins.values).astype(int).tolist() == truth[:, place].tolist()
    assert view.of_key(None).count(Span(FIRST_BIN + 2, FIRST_BIN + 5)).value == truth[2:5].sum()
    now = users_of_epoch(view)
    assert now is not None
    last = [user for bin, user, _ in visits if bin >= FIRST_BIN + 2 * EPOCH_BINS]
    assert now.value == len(set(last)) == truth[2 * EPOCH_BINS :].sum()
    epochs = [{user for bin, user, _ in visits if int(bin - FIRST_BIN) // EPOCH_BINS == n} for n in range(3)]
    assert view.running().value == sum(map(len, epochs)) > len(set().union(*epochs))


def held_in(folder: Path, runs: int) -> Counter[str]:
    """Return in how many runs the interval of each range holds the recounted number of users."""
    strategies, held = [users_strategy(release, Fraction(1)) for release in RELEASES], Counter[str]()
    for seed in range(runs):
        strategy = strategies[seed % len(strategies)]
        visits = some_visits(seed)
        truth = recounted(visits)
        (folder / str(seed)).mkdir()
        view = released(folder / str(seed), strategy, visits, ServiceNoise(seed))
        now = users_of_epoch(view)
        assert now is not None
        spans = {"inside": (7, 11), "two epochs": (3, 14), "one country": (0, 6)}
        held["this epoch"] += bool(now.interval[0] <= truth[2 * EPOCH_BINS :].sum() <= now.interval[1])
        for name, (start, stop) in spans.items():
            of_key = view.of_key("DE" if name == "one country" else None)
            interval = of_key.count(Span(FIRST_BIN + start, FIRST_BIN + stop)).interval(0.95)
            columns = [COUNTRIES.index("DE")] if name == "one country" else [0, 1, 2]
            held[name] += bool(interval.lower <= truth[start:stop, columns].sum() <= interval.upper)
    assert len(held) == CHECKS
    return held


def least(runs: int) -> int:
    """Return how often every interval holds, with a false alarm in fewer than one of 10^6 choices of seeds.

    The checks are 4 binomial laws of p = 0.95.
    """
    return int(binom.ppf(FALSE_ALARM / CHECKS, runs, 0.95))


def test_intervals_hold_the_number_of_users_in_enough_of_many_seeded_runs(tmp_path: Path) -> None:
    held = held_in(tmp_path, RUNS)
    assert min(held.values()) >= least(RUNS), held
