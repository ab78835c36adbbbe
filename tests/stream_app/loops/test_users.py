"""With users as the unit, all events of a user change at most ``max_events`` counts of each cap window.

``tests/world`` recounts what counts of each user. Here: what happens to the windows when a store is lost or
set back, what it costs, a unit of a user's hour, and the histogram of users that each whole epoch releases.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from dphist.users import BUCKETS
from stream_app.core.costs import cost_of
from stream_app.core.counting.bounding import PerUser
from stream_app.core.kinds.tables import USERS
from stream_app.core.ledger import statement
from stream_app.core.records import EpochRecord, WitnessRow
from stream_app.core.releases.restored import ENDED_EARLY, WitnessedStream
from stream_app.core.releases.tiles import TileGeometry, join_slices
from stream_app.core.store_writes import TileKey
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import NOISE_LOST
from stream_app.ports import OperatorError
from tests.simulator.memory_sinks import MemoryKeys
from tests.stream_app.declared import BIN_US, FIRST_BIN, SOURCE, STREAM, changed, strategy_of
from tests.world import Struck, World, deaths
from tests.world.features import FEATURES, Arrivals
from tests.world.settings import EPOCH_BINS, configured

pytestmark = pytest.mark.slow

MOST = 2
PERIOD_BINS = 3  # an epoch has six bins, and the stream begins at bin 100, the second of its hour


def ann_in_each_bin(world: World, until: int) -> None:
    """Count an event of one user in each bin before ``until``, with one new worker."""
    worker = world.start(start="latest")
    for bin in range(int(world.now), until):
        world.until(bin + 0.4)
        world.arrive(bin, user="ann")
    world.until(until + 0.35)
    world.end(worker)


def test_after_a_restored_backup_the_epoch_fills_its_window() -> None:
    """If an epoch lay across two windows of the cap, it could count a user four times."""
    with World(strategy_of(max_events=MOST)) as world:
        world.run_until(100)
        backup = world.backup()
        ann_in_each_bin(world, 103)
        world.restore(backup)
        ann_in_each_bin(world, 108)
        assert world.epochs() == [(0, 100, 1), (1, 103, 4), (2, 106, 7)]


def test_epochs_come_back_as_they_were_however_often_the_store_is_lost() -> None:
    """After a loss an epoch fills the rest of its window. Where it ends follows from the witness's rows."""
    with World(strategy_of(max_events=MOST)) as world:
        ann_in_each_bin(world, 102)
        world.restore()
        ann_in_each_bin(world, 109)
        before, reserved = world.public().epochs, world.ledger()
        assert [(e.epoch, e.first_bin, e.bins, e.end_reason) for e in before] == [
            (0, 100, 6, ENDED_EARLY),
            (1, 102, 4, "complete"),
            (2, 106, 6, None),
        ]
        world.restore()
        ann_in_each_bin(world, 110)
        after = world.public().epochs
        assert after[:2] == before[:2]
        assert (after[2].bins, after[2].last_bin, after[2].end_reason) == (6, 108, ENDED_EARLY)
        assert (after[3].first_bin, after[3].bins) == (109, 3)
        assert world.ledger()[:3] == reserved


def rows(*places: tuple[int, int]) -> list[WitnessRow]:
    """Return rows of a chain. Args: places, the epoch and the bin of each."""
    return [
        WitnessRow(seq, json.dumps({"epoch": epoch, "bin": bin, "strategy": "h"}).encode())
        for seq, (epoch, bin) in enumerate(places, 1)
    ]


def test_an_epoch_over_two_windows_is_an_older_version_s() -> None:
    older = rows((0, 100), (0, 101), *((1, bin) for bin in range(102, 108)), (2, 108))
    found = WitnessedStream(older, {"h": strategy_of(max_events=MOST)})
    assert [(one.epoch, one.first_bin, one.bins, one.first_seq) for one in found.epochs] == [
        (0, 100, 6, 1),
        (1, 102, 6, 3),
        (2, 108, 6, 9),
    ]


def test_epochs_add_up_in_the_ledger() -> None:
    with World(strategy_of(max_events=MOST)) as world:
        world.run_until(112)
        entries = world.ledger()
    assert len(entries) == 3
    assert {(entry.unit, entry.user) for entry in entries} == {("user", "user")}
    assert statement(SOURCE, entries).epsilon == sum(Fraction(entry.epsilon) for entry in entries)


class OtherKeys(MemoryKeys):
    """Another key for the hashes of users."""

    def user_key(self, stream: str, mark: bytes = b"") -> bytes:
        return b"\1" * 32


def test_another_key_stops_the_worker() -> None:
    with World(strategy_of(max_events=MOST)) as world:
        world.arrive(100, user="ann")
        world.start()
        world.until(100.2)
        world.end()
        world.arrive(100, user="ann")
        with pytest.raises(
            OperatorError, match=f"stream {STREAM}: the users of this cap window were counted under"
        ):
            world.run_until(100.5, keys=OtherKeys())


def test_one_more_event_costs_no_more_than_stated_after_a_store_was_set_back() -> None:
    """The event takes the place of another one before the set-back, and of a third one after it."""
    counts = []
    for bins in ([100, 102, 104], [102, 104]):
        with World(strategy_of(max_events=1)) as world:
            backup = None
            for bin in range(100, 106):
                if bin in bins:
                    world.arrive(bin, user="ann")
                world.run_until(bin + 1)
                if bin == 100:
                    backup = world.backup()
                if bin == 102:
                    world.restore(backup)
            counts.append(Counter(world.counts()))
            ledger = world.ledger()
    moved = sum(((counts[0] - counts[1]) + (counts[1] - counts[0])).values())
    stated = cost_of(ledger, "event", "add_remove").epsilon
    assert [entry.end_us for entry in ledger].count(ledger[0].end_us) == 2  # in one cap window
    assert 2 * Fraction(ledger[0].epsilon) < moved * Fraction(ledger[0].epsilon) <= stated


def test_the_store_learns_how_many_places_of_a_user_may_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both with records that count at once, and with a cut that accepts records set aside."""
    monkeypatch.setattr("stream_app.core.counting.bounding.MOST_AMOUNTS", 0)  # as if its bins had many places
    with World(strategy_of(max_events=MOST)) as world:
        store = Struck(world.store)
        world.arrive(100, 103, user="ann")
        world.start(store=store)
        world.until(100.5)
        world.end()
        world.until(103)
        world.run_until(103, store=store)
    assert {change.waiting.most for _, change in store.calls("apply") if len(change.cells)} == {MOST}
    assert {arguments[6].most for arguments in store.calls("take_cuts")} == {MOST}


# -- a user's hour ----------------------------------------------------------------------------------


@pytest.fixture
def hourly(monkeypatch: pytest.MonkeyPatch) -> Strategy:
    """Return a strategy whose unit is a user's hour, of three bins of ten seconds."""
    monkeypatch.setattr("stream_app.core.declaration.PERIODS", {"1h": PERIOD_BINS * BIN_US})
    plain = strategy_of(late="drop")
    unit = PerUser("user", MOST, per="1h")
    return Strategy(plain.stream, changed(plain.declared, privacy={"unit": unit}), plain.kind)


@pytest.mark.parametrize("seed", range(4))
def test_an_hour_of_a_user_changes_so_many_counts_of_this_hour_alone(seed: int, hourly: Strategy) -> None:
    rng = random.Random(seed)
    hour = range(PERIOD_BINS * rng.randrange(34, 37), 1000)[:PERIOD_BINS]
    visits = [
        (bin + 0.2 * rng.randrange(1, 5), bin + rng.choice([0, 0, 0, -1, -3, 1]), user)
        for bin in range(100, 112)
        for user in rng.choices(["ann", "ann", "bob", "eve", None], k=rng.randrange(6))
    ]
    visits += [(bin + 0.5, bin, "ann") for bin in hour for _ in range(2)]
    counts = []
    for kept in (visits, [one for one in visits if one[2] != "ann" or one[1] not in hour]):
        arrivals: Arrivals = {}
        for instant, own, user in kept:
            arrivals.setdefault(instant, []).append({"at": own * BIN_US, **({"user": user} if user else {})})
        with World(hourly) as world:
            world.play(arrivals, 112, step=rng.choice([1, 2, 5]))
            counts.append(Counter(world.counts()))
    moved = {bin: counts[0][bin] - counts[1][bin] for bin in counts[0] if counts[0][bin] != counts[1][bin]}
    assert set(moved) <= set(hour)
    assert 0 < sum(moved.values()) <= MOST
    assert min(moved.values()) > 0


def test_caps_begin_anew_in_every_hour_and_epochs_end_with_one(hourly: Strategy) -> None:
    arrivals: Arrivals = {bin + 0.5: [{"at": bin * BIN_US, "user": "ann"}] * 3 for bin in range(100, 112)}
    with World(hourly) as world:
        world.play(arrivals, 112)
        assert world.counts() == dict.fromkeys([100, 102, 105, 108, 111], MOST)
        assert [(one.first_bin, one.bins) for one in world.public().epochs] == [(100, 5), (105, 6), (111, 6)]
        assert world.secrets().windows_of_users <= {113}  # users of earlier hours are forgotten
        stated = statement(SOURCE, world.ledger())
        assert [entry.periods for entry in world.ledger()] == [2, 2, 2]
    assert (stated.unit, stated.epsilon) == ("user per 1h", hourly.declared.privacy.epsilon)


def test_epochs_of_hours_are_put_back_as_they_began(hourly: Strategy) -> None:
    found = rows((0, 100), (0, 101), (1, 103), (1, 104), (2, 108))
    assert WitnessedStream(found, {"h": hourly}).epochs == [
        EpochRecord(0, 100, 5, 1, "h"),
        EpochRecord(1, 103, 5, 3, "h"),
        EpochRecord(2, 108, 6, 5, "h"),
    ]


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
