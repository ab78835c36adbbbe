"""With users as the unit, all events of a user change at most ``max_events`` counts of each cap window."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

from stream_app.core.costs import cost_of
from stream_app.core.ledger import statement
from stream_app.core.records import Apply, EpochRecord, Reply, WitnessRow
from stream_app.core.releases.restored import ENDED_EARLY, epochs_of
from stream_app.ports import OperatorError, Store
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryKeys
from tests.stream_app.declared import BIN_US, SOURCE, STREAM, strategy_of
from tests.stream_app.one_source import OneSource

MOST = 2
EPOCH_BINS = 6
LAST = 111  # two epochs
Event = tuple[float, int, str | None]  # an event's time in bins, the bin in which it arrives, its user


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneSource]:
    """Yield a service with one stream. At most two events of a user count in an epoch of six bins."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    with closing(OneSource(tmp_path, strategy_of(max_events=MOST))) as one:
        yield one


async def binned(one: OneSource, events: list[Event], step_every: int = 3) -> Counter[int]:
    """Let events arrive and bins close; return the exact counts of all bins."""
    ingest, closer = one.ingest(), one.closer()
    await closer.reconcile()
    for bin in range(100, LAST + 1):
        arriving = [(time, user) for time, arrival, user in events if arrival == bin]
        for start in range(0, len(arriving), step_every):
            one.append_of(*arriving[start : start + step_every])
            await ingest.step()
        one.clock.set_bin(bin + 1)
        await ingest.step()
        await ingest.step()
        await closer.close_due()
    return Counter(await one.released())


def drawn(rng: random.Random) -> list[Event]:
    """Draw a log in order of arrival. Some events are late, some early, some have no user."""
    events: list[Event] = []
    for bin in range(100, LAST + 1):
        for _ in range(rng.randrange(6)):
            time = bin + rng.choice([0, 0, 0, -1, -3, 1]) + rng.random()
            events.append((time, bin, rng.choice(["ann", "ann", "bob", "eve", None])))
    return events


@pytest.mark.parametrize("seed", range(8))
def test_a_user_less_changes_so_many_counts_of_each_epoch(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    rng = random.Random(seed)
    events = drawn(rng)
    neighbours = [event for event in events if event[2] != "ann"]
    counts = []
    for name, log in (("all", events), ("without", neighbours)):
        (tmp_path / name).mkdir()
        with closing(OneSource(tmp_path / name, strategy_of(max_events=MOST))) as one:
            counts.append(asyncio.run(binned(one, log, rng.choice([1, 2, 50]))))
    for first in (100, 100 + EPOCH_BINS):
        moved = [counts[0][bin] - counts[1][bin] for bin in range(first, first + EPOCH_BINS)]
        assert min(moved) >= 0
        assert sum(moved) <= MOST
    assert sum((counts[0] - counts[1]).values()) > 0


def test_events_of_the_earliest_bins_count_in_every_epoch(one: OneSource) -> None:
    events: list[Event] = [(bin, bin, user) for bin in range(100, LAST + 1) for user in ("ann", "bob")]
    counts = asyncio.run(binned(one, events))
    assert counts == Counter({100: 2, 101: 2, 106: 2, 107: 2})


def test_users_count_once_in_each_epoch_where_they_are_first_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    for seed in range(3):
        rng = random.Random(seed)
        events: list[Event] = [
            (bin + rng.random(), bin, f"user {rng.randrange(12)}")
            for bin in range(100, LAST + 1)
            for _ in range(rng.randrange(8))
        ]
        first_seen: dict[tuple[int, str | None], int] = {}
        for _, bin, user in events:
            first_seen.setdefault(((bin - 100) // EPOCH_BINS, user), bin)
        (tmp_path / str(seed)).mkdir()
        with closing(OneSource(tmp_path / str(seed), strategy_of(max_events=1, count="users"))) as one:
            found = asyncio.run(binned(one, events))
        assert +found == Counter(first_seen.values())


def test_an_event_of_nobody_is_refused(one: OneSource) -> None:
    counts = asyncio.run(binned(one, [(100, 100, None), (100, 100, ""), (100, 100, "ann")]))
    assert counts == Counter({100: 1})
    assert one.letters.reasons() == ["no_user", "no_user"]


def test_after_a_restored_backup_the_epoch_fills_its_window(one: OneSource) -> None:
    """If an epoch lay across two windows of the cap, it could count a user four times."""

    async def set_back() -> None:
        ingest, closer = one.ingest(), one.closer()
        await closer.reconcile()
        backup = one.store.copy()
        for bin in range(100, 103):
            one.append_of((bin, "ann"))
            one.clock.set_bin(bin + 1)
            await ingest.step()
            await ingest.step()
            await closer.close_due()
        await closer.publisher.publish()
        one.store.restore(backup)
        await one.closer().reconcile()
        assert await one.epochs() == [(0, 100, 1), (1, 103, 4)]
        await binned_on(one, 103)
        assert await one.epochs() == [(0, 100, 1), (1, 103, 4), (2, 106, 7)]

    async def binned_on(one: OneSource, first: int) -> None:
        ingest, closer = one.ingest(), one.closer()
        for bin in range(first, 108):
            one.clock.set_bin(bin + 1)
            await ingest.step()
            await ingest.step()
            await closer.close_due()

    asyncio.run(set_back())


def test_epochs_come_back_as_they_were_however_often_the_store_is_lost(one: OneSource) -> None:
    """After a loss an epoch fills the rest of its window. Where it ends follows from the witness's rows."""

    async def lose_twice() -> None:
        await release_until(one, 102)
        one.store.restore(MemoryStore())
        await release_until(one, 109)
        before, reserved = await records(one), await one.store.ledger(SOURCE)
        assert [(e.epoch, e.first_bin, e.bins, e.end_reason) for e in before] == [
            (0, 100, 6, ENDED_EARLY),
            (1, 102, 4, "complete"),
            (2, 106, 6, None),
        ]
        one.store.restore(MemoryStore())
        await release_until(one, 110)
        after = await records(one)
        assert after[:2] == before[:2]
        assert (after[2].bins, after[2].last_bin, after[2].end_reason) == (6, 108, ENDED_EARLY)
        assert (after[3].first_bin, after[3].bins) == (109, 3)
        assert (await one.store.ledger(SOURCE))[:3] == reserved

    asyncio.run(lose_twice())


async def release_until(one: OneSource, bin: int) -> None:
    """Count an event in each bin, release every bin before ``bin``, and make it visible."""
    closer = one.closer()
    await closer.reconcile()
    while one.clock.now_us < bin * BIN_US:
        now_bin = one.clock.now_us // BIN_US
        one.append_of((now_bin, "ann"))
        one.clock.set_bin(now_bin + 1)
    ingest = one.ingest(start="latest")
    await ingest.step()
    while await ingest.step():
        pass
    await closer.close_due()
    await closer.publisher.publish()


async def records(one: OneSource) -> tuple[EpochRecord, ...]:
    state = await one.store.reader().public_state(STREAM)
    assert state is not None
    return state.epochs


def test_an_epoch_over_two_windows_is_an_older_version_s() -> None:
    places = [(0, 100), (0, 101), *((1, bin) for bin in range(102, 108)), (2, 108)]
    rows = [
        WitnessRow(seq, json.dumps({"epoch": epoch, "bin": bin, "strategy": "h"}).encode())
        for seq, (epoch, bin) in enumerate(places, 1)
    ]
    found = epochs_of({"h": strategy_of(max_events=MOST)}, rows)
    assert [(one.epoch, one.first_bin, one.bins, one.first_seq) for one in found] == [
        (0, 100, 6, 1),
        (1, 102, 6, 3),
        (2, 108, 6, 9),
    ]


def test_epochs_add_up_in_the_ledger(one: OneSource) -> None:
    async def two_epochs() -> None:
        await binned(one, [])
        entries = await one.store.ledger(SOURCE)
        told = statement(SOURCE, entries)
        assert {(entry.unit, entry.user) for entry in entries} == {("user", "user")}
        assert told.epsilon == sum(type(told.epsilon)(entry.epsilon) for entry in entries)

    asyncio.run(two_epochs())


class OtherKeys(MemoryKeys):
    """Another key for the hashes of users."""

    def user_key(self, stream: str, mark: bytes = b"") -> bytes:
        return b"\1" * 32


def test_another_key_stops_the_worker(one: OneSource) -> None:
    async def other_key() -> None:
        await one.closer().reconcile()
        one.append_of((100, "ann"))
        await one.ingest().step()
        one.append_of((100, "ann"))
        other = one.ingest()
        other.counting.ingest._keys = OtherKeys()
        with pytest.raises(
            OperatorError, match=f"stream {STREAM}: the users of this cap window were counted under"
        ):
            await other.step()

    asyncio.run(other_key())


def test_one_more_event_costs_no_more_than_stated_after_a_store_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event takes the place of another one before the set-back, and of a third one after it."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)

    async def counted(one: OneSource, bins: list[int]) -> Counter[int]:
        ingest, closer, backup = one.ingest(), one.closer(), None
        await closer.reconcile()
        for bin in range(100, 106):
            one.append_of(*((each, "ann") for each in bins if each == bin))
            one.clock.set_bin(bin + 1)
            for _ in range(3):
                await ingest.step()
            await closer.close_due()
            await closer.publisher.publish()
            if bin == 100:
                backup = one.store.copy()
            if bin == 102:
                assert backup is not None
                one.store.restore(backup)
                ingest, closer = one.ingest(), one.closer()
                await closer.reconcile()
        return Counter(await one.released())

    counts = []
    for name, bins in (("with", [100, 102, 104]), ("without", [102, 104])):
        (tmp_path / name).mkdir()
        with closing(OneSource(tmp_path / name, strategy_of(max_events=1))) as one:
            counts.append(asyncio.run(counted(one, bins)))
            ledger = asyncio.run(one.store.ledger(SOURCE))
    moved = sum(((counts[0] - counts[1]) + (counts[1] - counts[0])).values())
    stated = cost_of(ledger, "event", "add_remove").epsilon
    assert [entry.end_us for entry in ledger].count(ledger[0].end_us) == 2  # in one cap window
    assert 2 * Fraction(ledger[0].epsilon) < moved * Fraction(ledger[0].epsilon) <= stated


def test_the_store_learns_how_many_places_of_a_user_may_count(
    one: OneSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both with records that count at once, and with a cut that accepts records set aside."""
    monkeypatch.setattr("stream_app.core.counting.choosing.MOST_AMOUNTS", 0)  # as if its bins had many places
    told: dict[str, int] = {}

    class Noting:
        def __getattr__(self, name: str) -> Any:
            return getattr(one.store, name)

        async def apply(self, stream: str, change: Apply) -> Reply:
            told["apply"] = change.most_places
            return await one.store.apply(stream, change)

        async def take_cuts(self, *args: Any) -> Reply:
            told["take_cuts"] = args[6]
            return await one.store.take_cuts(*args)

    async def count() -> None:
        await one.closer().reconcile()
        ingest = one.ingest(cast(Store, Noting()))
        one.append_of((100, "ann"), (103, "ann"))
        await ingest.step()
        one.clock.set_bin(103)
        await ingest.cut()

    asyncio.run(count())
    assert told == {"apply": MOST, "take_cuts": MOST}
