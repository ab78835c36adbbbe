"""The histogram of users through the service: each whole epoch releases one, whatever happens to workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from dphist.users import BUCKETS
from stream_app.core.kinds.tables import USERS
from stream_app.core.records import TileKey
from stream_app.core.releases.restored import WitnessedStream
from stream_app.core.releases.tiles import TileGeometry, join_slices
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import NOISE_LOST
from tests.stream_app.declared import FIRST_BIN, STREAM
from tests.world import World, deaths
from tests.world.features import FEATURES
from tests.world.settings import EPOCH_BINS, configured


def strategy(release: str = "anticipating") -> Strategy:
    [found] = configured(**{STREAM: FEATURES["numbers-of-users"].settings_of(release, "1e9")})
    return found


@pytest.fixture(params=["causal", "anticipating"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Yield a world with one stream, whose noise is too small to be seen."""
    with World(strategy(request.param)) as world:
        yield world


def run_until(world: World, bin: int, **changed: Any) -> None:
    """Let user n visit in each bin that n divides, and ann five times in each; release with new workers."""
    for now in range(int(world.now), bin):
        for user in range(1, 5):
            if now % user == 0:
                world.arrive(now, user=f"user {user}")
        world.arrive(*[now] * 5, user="ann")
        world.run_until(now + 1, **changed)


def wanted(first_bin: int) -> list[int]:
    """Return the histogram of an epoch, by hand."""
    numbers = Counter[str]()
    for bin in range(first_bin, first_bin + EPOCH_BINS):
        numbers.update({f"user {user}": bin % user == 0 for user in range(1, 5)} | {"ann": 5})
    found = Counter(min(number.bit_length(), BUCKETS) - 1 for number in numbers.values() if number)
    return [found[bucket] for bucket in range(BUCKETS)]


def told(rows: list[dict[str, Any]]) -> dict[int, list[int]]:
    """Return the histograms in rows, by the first bin after their epoch."""
    return {row["bin"] + 1: row["users"] for row in rows if "users" in row}


def test_each_whole_epoch_releases_one_histogram(world: World) -> None:
    run_until(world, FIRST_BIN + 2 * EPOCH_BINS + 1)
    ends = [FIRST_BIN + number * EPOCH_BINS for number in (1, 2)]
    assert told(world.rows()) == {end: wanted(end - EPOCH_BINS) for end in ends}
    assert world.witnessed() == world.rows()
    assert [epoch.rows(USERS).tolist() for epoch in world.view().epochs][-1] == []


def test_a_worker_that_dies_at_any_call_leaves_one_histogram() -> None:
    """The calls run from the last bin but one of an epoch into the next one."""
    with World(strategy()) as before:
        run_until(before, FIRST_BIN + EPOCH_BINS - 1)
    number, end = 0, FIRST_BIN + EPOCH_BINS
    for death in deaths(step=3):
        number += 1
        with World(strategy(), following=before) as world:
            run_until(world, end + 1, death=death)
            seen = world.stored()
            run_until(world, end + 2)
            assert world.stored()[: len(seen)] == seen
            assert told(world.rows()) == {end: wanted(FIRST_BIN)}
    assert number > 10


def test_a_shorter_epoch_releases_no_histogram(world: World) -> None:
    """The second epoch ends early, the third one fills its cap window: nobody's buckets are whole there."""
    run_until(world, FIRST_BIN + EPOCH_BINS + 2)
    state = world.state()
    world.run(world.store.end_epoch(STREAM, state.epoch.epoch, state.seq, NOISE_LOST))
    run_until(world, FIRST_BIN + 3 * EPOCH_BINS + 1)
    assert len(world.epochs()) == 5
    ends = [FIRST_BIN + number * EPOCH_BINS for number in (1, 3)]
    assert told(world.rows()) == {end: wanted(end - EPOCH_BINS) for end in ends}


def test_a_store_that_was_set_back_releases_no_second_histogram(world: World) -> None:
    run_until(world, FIRST_BIN + EPOCH_BINS - 2)
    backup = world.backup()
    run_until(world, FIRST_BIN + EPOCH_BINS)
    world.restore(backup)
    run_until(world, FIRST_BIN + 2 * EPOCH_BINS + 1)
    ends = [FIRST_BIN + number * EPOCH_BINS for number in (1, 2)]
    assert told(world.witnessed()) == {end: wanted(end - EPOCH_BINS) for end in ends}


def test_a_witness_puts_histograms_back(world: World) -> None:
    run_until(world, FIRST_BIN + 2 * EPOCH_BINS)
    own, rows = world.strategy(STREAM), world.run(world.witness.rows(STREAM, 0))
    tiles = defaultdict[TileKey, bytes](bytes)
    for step in WitnessedStream.of(rows).restored(0, own.hash):
        for append in step.tiles:
            tiles[append.key] += append.data
    for number in range(2):
        slices = TileGeometry(BUCKETS).slices(number, USERS, 0, 1)
        pieces = ((piece, tiles[piece.key]) for piece in slices)
        assert join_slices(1, BUCKETS, pieces).tolist() == [wanted(FIRST_BIN + number * EPOCH_BINS)]
