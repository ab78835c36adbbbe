"""Grace, late policy and how early events may be change at an announced bin: each event counts as it says."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.arrival import Arrival, ArrivalChange, LatePolicy
from stream_app.core.ledger import statement
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import Closer
from stream_app.loops.configured import changes_in_words
from tests.models.memory import MemoryStore
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, SOURCE, strategy_of
from tests.stream_app.loops.test_total import Dying
from tests.stream_app.one_source import ByHand, OneSource

SWITCH = 106  # the end of the first epoch, and a bin of the second one
ANNOUNCED = 4 * FIRST_BIN + 2  # in quarters of a bin: when the worker starts with the changed settings
LAST = 122


def settings(grace: float, ahead: int, late: LatePolicy) -> Strategy:
    """Return the stream with these settings. Args: grace, in bins."""
    return strategy_of(grace_us=int(grace * BIN_US), max_ahead_bins=ahead, late=late)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneSource]:
    """Yield a service with one stream."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    with closing(OneSource(tmp_path, settings(0, 1, "next_bin"))) as one:
        yield one


def drawn(seed: int) -> dict[int, list[float]]:
    """Return events by the quarter of a bin in which they arrive: on time, late, or ahead."""
    chance = random.Random(seed)
    found: dict[int, list[float]] = {}
    for quarter in range(4 * FIRST_BIN, 4 * (LAST - 4)):
        at = quarter / 4 + 0.125
        times = [
            at - chance.choice((0, 0.2, 0.6, 1.3, 2.7, -1, -2.5, -5)) for _ in range(chance.randrange(5))
        ]
        found[quarter] = [time for time in times if time >= FIRST_BIN]
    return found


@dataclass
class Recount:
    """What a stream must count, event by event, from the definition of both settings."""

    before: Arrival
    after: Arrival
    switch: int = SWITCH

    def closes(self, bin: int) -> float:
        """Return when a bin closes, in bins."""
        if bin < self.switch:
            return bin + 1 + self.before.grace_us / BIN_US
        return max(bin + 1 + self.after.grace_us / BIN_US, self.closes(self.switch - 1))

    def of(self, events: dict[int, list[float]], until: int = 10**6) -> tuple[Counter[int], Counter[str]]:
        """Return the events of each bin, and the dead letters."""
        counted, letters = Counter[int](), Counter[str]()
        for quarter, times in events.items():
            earliest = FIRST_BIN
            while self.closes(earliest) <= quarter / 4:
                earliest += 1
            next_open = earliest
            while self.closes(next_open) <= self.closes(earliest):
                next_open += 1
            newest = next_open + self.before.max_ahead_bins
            if next_open >= self.switch:
                floor = self.switch - 1 + self.before.max_ahead_bins
                newest = max(next_open + self.after.max_ahead_bins, floor)
            late = (self.before if earliest < self.switch else self.after).late
            for time in times:
                if int(time) > newest:
                    letters["future"] += 1
                elif int(time) >= earliest or late == "next_bin":
                    counted[max(int(time), earliest)] += 1
                elif late == "dead_letter":
                    letters["late"] += 1
        return Counter({bin: n for bin, n in counted.items() if bin < until}), letters


def recount(before: Strategy, after: Strategy, switch: int = SWITCH) -> Recount:
    """Return the recount of a stream whose settings change at a bin."""
    return Recount(before.declared.arrival, after.declared.arrival, switch)


class Workers:
    """A reader and a closer over one store, restarted with other settings."""

    def __init__(self, one: OneSource, strategy: Strategy, store: Any = None, witness: Any = None) -> None:
        self.one, self.store, self.witness = one, store or one.store, witness
        self.start(strategy)

    also: ByHand | None = None

    def start(self, strategy: Strategy) -> None:
        """Start both anew."""
        self.ingest: ByHand = self.one.ingest(self.store)
        self.closer: Closer = self.one.closer(strategy, store=self.store, witness=self.witness)

    async def run(
        self,
        last: float,
        events: dict[int, list[float]],
        restarts: dict[int, Strategy] | None = None,
    ) -> None:
        """Move the clock in quarters of a bin; write the events that arrive then, count and release them."""
        await self.closer.reconcile()
        while self.one.clock.now_us < last * BIN_US:
            quarter = 4 * self.one.clock.now_us // BIN_US
            if restarts and quarter in restarts:
                self.start(restarts[quarter])
                await self.closer.reconcile()
            self.one.append(*events.get(quarter, ()))
            await self.ingest.step()
            self.one.clock.set_bin((quarter + 1) / 4)
            if self.also is not None:
                await self.also.step()
            for _ in range(2):
                await self.ingest.step()
            await self.closer.close_due()


CHANGES = [
    (settings(0, 1, "next_bin"), settings(1.5, 3, "next_bin")),
    (settings(2.5, 4, "next_bin"), settings(0, 1, "drop")),
    (settings(3.25, 5, "dead_letter"), settings(0.5, 1, "next_bin")),
    (settings(0.5, 2, "drop"), settings(0.5, 2, "dead_letter")),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("restart", [None, 4 * SWITCH])
def test_every_event_counts_by_the_settings_of_the_bin_that_was_open(
    one: OneSource, before: Strategy, after: Strategy, restart: int | None
) -> None:
    async def run() -> None:
        one.strategies = (before,)
        events = drawn(restart or 0)
        restarts = {ANNOUNCED: after} | ({} if restart is None else {restart: after})
        await Workers(one, before).run(LAST, events, restarts)
        released = await one.released()
        counted, letters = recount(before, after).of(events, max(released) + 1)
        assert max(released) > SWITCH + 6
        assert +Counter(released) == counted
        assert Counter(one.letters.reasons()) == letters
        first, second, *_ = one.store.streams["visits"].epochs
        assert (first.strategy_hash, second.strategy_hash) == (before.hash, after.hash)
        assert (second.first_bin, second.changed_from) == (SWITCH, before.hash)
        assert statement(SOURCE, await one.store.ledger(SOURCE)).epsilon == NO_NOISE

    asyncio.run(run())


def test_a_change_is_said_and_can_be_taken_back_until_its_bins_close(
    one: OneSource, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        before, after = CHANGES[0]
        other = settings(0, 1, "drop")
        workers = Workers(one, before)
        with caplog.at_level(logging.WARNING):
            await workers.run(FIRST_BIN + 1, {})
            for changed, held in ((after, after), (other, other), (before, None), (after, after)):
                workers.start(changed)
                state = await workers.closer.reconcile()
                expected = held and ArrivalChange(SWITCH, before.declared.arrival, held.declared.arrival)
                assert state.change == expected
            first = list(caplog.messages)
            here, now_us = workers.closer._strategy, one.clock.now_us
            [back] = changes_in_words(here, before, state, now_us)
            assert "visits: this file takes back the change announced for 1970-01-01T00:17:40Z" in back
            [again] = changes_in_words(here, after, state, now_us)
            caplog.clear()
            workers.start(after)
            await workers.closer.reconcile()  # each start says it again
            assert caplog.messages == [f"stream {again}"]
            await workers.run(SWITCH - 2, {})
            workers.start(before)  # too late: the bins that may have met the change are about to close
            caplog.clear()
            assert (await workers.closer.reconcile()).change is not None
            late = again.partition("; until")[0] + "; it is too late to change this, and this file's "
            assert caplog.messages == [f"stream {late}settings follow later"]
            await workers.run(SWITCH + 1, {})
        said = [line for line in first if "with a new epoch" in line]
        assert len(said) == len(set(said)) + 1  # the same change was announced twice, each time in one line
        assert said[0] == (
            "stream visits: from 1970-01-01T00:17:40Z on, with a new epoch: time.grace 15s instead of 0s, "
            "time.max_ahead 3 bins instead of 1 bin; until 1970-01-01T00:17:20Z, "
            "the old settings can be put back"
        )
        assert sum("the announced change is taken back" in line for line in first) == 1
        epochs = one.store.streams["visits"].epochs
        assert [epoch.strategy_hash for epoch in epochs] == [before.hash, after.hash]
        state = await workers.closer.reconcile()  # the settings before come back with the epoch after
        assert state.change is not None
        assert state.change.after == before.declared.arrival

    asyncio.run(run())


def test_a_change_that_comes_too_late_for_one_epoch_begins_with_the_next(one: OneSource) -> None:
    async def run() -> None:
        before, after = CHANGES[0]
        events = drawn(5)
        await Workers(one, before).run(LAST, events, {4 * (SWITCH - 2): after})
        counted, _ = recount(before, after, SWITCH + 6).of(events)
        released = await one.released()
        assert +Counter(released) == Counter({b: n for b, n in counted.items() if b <= max(released)})
        hashes = [epoch.strategy_hash for epoch in one.store.streams["visits"].epochs]
        assert hashes[:3] == [before.hash, before.hash, after.hash]

    asyncio.run(run())


def test_workers_with_different_settings_count_alike(one: OneSource) -> None:
    async def run() -> None:
        before, after = CHANGES[1]
        events = drawn(7)
        other = Workers(one, before)
        await other.closer.reconcile()

        both = Workers(one, after)
        both.also = other.ingest  # the other worker reads, too, with what it knows
        await both.run(LAST, events)
        released = await one.released()
        counted, _ = recount(before, after).of(events, max(released) + 1)
        assert +Counter(released) == counted

    asyncio.run(run())


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("at", [ANNOUNCED, 4 * SWITCH - 1, 4 * SWITCH + 9])
def test_a_worker_that_dies_at_any_call_changes_no_count(one: OneSource, after_effect: bool, at: int) -> None:
    before, after = CHANGES[1] if at != ANNOUNCED else CHANGES[0]
    events = drawn(9)

    async def run() -> None:
        one.strategies = (before,)
        first = {} if at == ANNOUNCED else {ANNOUNCED: after}
        await Workers(one, before).run(at / 4, events, first)
        begun_us, size = one.clock.now_us, one.path.stat().st_size
        [note] = (one.directory / "notes").iterdir()
        noted = note.read_bytes()
        expected: dict[int, int] | None = None
        for calls in range(1, 200, 2):
            one.clock.now_us = begun_us
            with one.path.open("r+b") as file:
                file.truncate(size)
            note.write_bytes(noted)
            store, witness = one.store.copy(), deepcopy(one.witness)
            dying = Dying(store, calls, after_effect)
            with suppress(asyncio.CancelledError):
                await Workers(one, after, dying, witness).run(at / 4 + 0.25, events)
            if dying.left > 0:
                break
            await one_quarter(one, at, events, store, witness, size)
            released = await released_of(one, store)
            expected = expected or released
            assert released == expected
        assert calls > 5
        assert expected is not None
        counted, _ = recount(before, after).of(events)
        assert {b: n for b, n in expected.items() if n} == {
            b: n for b, n in counted.items() if b <= max(expected)
        }

    async def one_quarter(
        one: OneSource, at: int, events: dict[int, list[float]], store: MemoryStore, witness: Any, size: int
    ) -> None:
        """Go on after the death; write the quarter's events unless the dead worker did."""
        quarter = 4 * one.clock.now_us // BIN_US
        rest = dict(events)
        if quarter == at and one.path.stat().st_size > size:
            rest[quarter] = []
        await Workers(one, after, store, witness).run(SWITCH + 8, rest)

    asyncio.run(run())


async def released_of(one: OneSource, store: MemoryStore) -> dict[int, int]:
    """Return the count of every bin that this store has released."""
    one_store, one.store = one.store, store
    try:
        return await one.released()
    finally:
        one.store = one_store


@pytest.mark.parametrize("back_to", [FIRST_BIN + 0.25, SWITCH - 2, SWITCH + 1])
def test_a_store_that_was_set_back_counts_by_the_settings_that_it_knows(
    one: OneSource, back_to: float
) -> None:
    async def run() -> None:
        before, after = CHANGES[1]
        events = drawn(11)
        workers = Workers(one, before)
        await workers.run(back_to, events, {ANNOUNCED: after})
        backup = one.store.copy()
        await workers.run(SWITCH + 5, events, {ANNOUNCED: after})
        seen = await one.released()
        one.store.restore(backup)
        await Workers(one, after).run(LAST, events)
        released = await one.released()
        assert {bin: released[bin] for bin in seen} == seen
        state = await one.store.load("visits")
        assert state is not None
        assert Strategy.from_json(state.strategy).declared == after.declared
        epochs = one.store.streams["visits"].epochs
        assert all(a.first_bin < b.first_bin for a, b in pairwise(epochs))
        assert sum(released.values()) <= sum(map(len, events.values()))

    asyncio.run(run())
