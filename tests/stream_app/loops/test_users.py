"""With users as the unit, all events of a user change at most ``max_events`` counts of each cap window.

``tests/world`` recounts what counts of each user. Here: what happens to the windows when a store is lost or
set back, what it costs, and a unit of a user's hour.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from fractions import Fraction

import pytest

from stream_app.core.costs import cost_of
from stream_app.core.counting.bounding import PerUser
from stream_app.core.ledger import statement
from stream_app.core.records import EpochRecord, WitnessRow
from stream_app.core.releases.restored import ENDED_EARLY, WitnessedStream
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from tests.simulator.memory_sinks import MemoryKeys
from tests.stream_app.declared import BIN_US, SOURCE, STREAM, changed, strategy_of
from tests.world import Struck, World
from tests.world.features import Arrivals

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
    monkeypatch.setattr("stream_app.core.counting.choosing.MOST_AMOUNTS", 0)  # as if its bins had many places
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
