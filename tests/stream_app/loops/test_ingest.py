"""Counting events: each event counts once, in the bin that its position in the log decides."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.incoming import Reason
from stream_app.core.records import Apply, Reply
from stream_app.ports import OperatorError, Store
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping
from tests.patience import ended
from tests.stream_app.declared import BIN_US, STREAM, changed, strategy_of
from tests.stream_app.files import event_line
from tests.stream_app.one_source import OneSource, eventually


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OneSource]:
    """Yield a service with one stream. Its first bin is 100, and events may be dated one bin ahead."""
    with closing(OneSource(tmp_path, strategy_of())) as one:
        yield one


class Between:
    """A store in which something happens once, just before a call of one kind."""

    def __init__(self, store: Store, call: str, happens: Any) -> None:
        self._store, self._call, self._happens = store, call, happens

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name != self._call or self._happens is None:
            return real

        async def call(*args: Any) -> Any:
            happens, self._happens = self._happens, None
            if happens is not None:
                await happens()
            return await real(*args)

        return call


def test_events_fall_into_their_bins(one: OneSource) -> None:
    async def count() -> None:
        await one.closer().reconcile()
        one.append(100, 100.5, 101)
        ingest = one.ingest()
        assert await ingest.step() == 3
        assert await ingest.step() == 0
        one.append(100.9)
        assert await ingest.step() == 1
        assert await one.cells(99) == {100: 3, 101: 1}

    asyncio.run(count())


def test_a_late_event_falls_into_the_first_bin_that_is_not_cut(one: OneSource) -> None:
    async def count() -> None:
        await one.closer().reconcile()
        ingest = one.ingest()
        one.append(100)
        one.clock.set_bin(102.5)
        await ingest.step()  # written before the cut, so it counts in its own bin, however late it is read
        one.append(100, 101)
        await ingest.step()
        assert await one.cells(99) == {100: 1, 102: 2}

    asyncio.run(count())


@pytest.mark.parametrize(("late", "letters"), [("drop", []), ("dead_letter", ["late"])])
def test_late_events_can_be_refused(one: OneSource, late: str, letters: list[str]) -> None:
    strategy = strategy_of()
    one.strategies = (replace(strategy, declared=changed(strategy.declared, late=late)),)

    async def count() -> None:
        await one.closer().reconcile()
        ingest = one.ingest()
        one.clock.set_bin(101)
        await ingest.step()
        one.append(100, 101)
        await ingest.step()
        assert await one.cells(99) == {101: 1}
        assert one.letters.reasons() == letters
        how_late = {"late_bins": 1, f"late_within_{BIN_US // 10**6}": 1}
        assert await one.store.operator_counts(STREAM) == {"late": 1} | how_late

    asyncio.run(count())


def test_broken_and_early_events_are_dead_letters(one: OneSource) -> None:
    async def count() -> None:
        await one.closer().reconcile()
        one.append(99.9, 100)
        with one.path.open("ab") as file:
            file.write(b'{"at": null}\nnonsense\n')
        one.append(100)
        await one.ingest().step()
        assert await one.cells(99) == {100: 2}
        refused = {Reason.NULL: 1, Reason.UNDECODABLE: 1, Reason.BEFORE_FIRST_BIN: 1}
        assert sorted(one.letters.reasons()) == sorted(refused)
        assert await one.store.operator_counts(STREAM) == refused
        assert {letter.record for letter in one.letters.kept} >= {b'{"at": null}', b"nonsense"}

    asyncio.run(count())


def test_a_refused_record_has_one_letter_per_stream_however_often_it_is_read(one: OneSource) -> None:
    """One stream starts again after an error, another is ahead of it, and both read the same records."""
    second = strategy_of(stream="second", late="next_bin")
    directory = one.directory / "letters"

    async def count() -> None:
        for strategy in (*one.strategies, second):
            await one.closer(strategy, accept="measured again").reconcile()
        one.append(99, 100)
        with one.path.open("ab") as file:
            file.write(b"nonsense\n")
        one.strategies = (*one.strategies, second)
        ingest = one.ingest(Between(one.store, "apply", lost))
        with pytest.raises(ConnectionError):
            await ingest.step()
        running = asyncio.create_task(ingest.run())  # reads all records again
        await eventually(all_counted)
        await ended(running)

    async def lost() -> None:
        raise ConnectionError("the reply was lost")

    async def all_counted() -> bool:
        return await one.cells(99) == await one.cells(99, "second") == {100: 1}

    with closing(DeadLetterFiles(directory, Keeping(60, 10**6, True))) as one.letters:  # type: ignore[assignment]
        asyncio.run(count())
    [file] = directory.iterdir()
    letters = [json.loads(line) for line in file.read_bytes().splitlines()]
    refused = ((letter["reason"], name) for letter in letters for name in letter.get("streams", [None]))
    assert Counter(refused) == {
        ("undecodable", None): 1,
        ("before_first_bin", STREAM): 1,
        ("before_first_bin", "second"): 1,
    }


def test_an_event_from_the_future_holds_up_nothing(one: OneSource) -> None:
    """The cut that contains the event decides whether it is too far ahead. Later records count at once."""

    async def count() -> None:
        await one.closer().reconcile()
        ingest = one.ingest()
        one.append(100, 103, 100)
        await ingest.step()
        assert await one.cells(99) == {100: 2}
        assert one.letters.reasons() == []
        one.clock.set_bin(101)  # the cut of bin 100 contains it: bin 103 is more than one ahead of bin 101
        await ingest.cut()
        assert await one.cells(99) == {100: 2}
        assert [(letter.reason, letter.position) for letter in one.letters.kept] == [
            ("future", len(event_line(100 * BIN_US)))
        ]
        assert await one.store.operator_counts(STREAM) == {"future": 1, "set_aside": 1}

    asyncio.run(count())


def test_a_late_cut_accepts_what_was_set_aside(one: OneSource) -> None:
    """The worker stops across closing instants. So records inside its cut may have arrived after them."""

    async def count() -> None:
        await one.closer().reconcile()
        ingest = one.ingest()
        one.append(100, 103, 103, 104, 105)
        await ingest.step()
        assert await one.cells(99) == {100: 1}
        one.clock.set_bin(103)
        await ingest.cut()
        assert await one.cells(99) == {100: 1, 103: 2, 104: 1}
        assert one.letters.reasons() == ["future"]

    asyncio.run(count())


@pytest.mark.parametrize("stall", ["before", "after"])
def test_a_stall_around_the_question_where_the_log_ends(one: OneSource, stall: str) -> None:
    """Records on time that arrive while the process is stopped are neither late nor from the future."""

    async def count() -> None:
        await one.closer().reconcile()
        counting = one.ingest()
        one.append(100)
        await counting.step()
        real = counting.source.positions_at

        async def stalled(*asked: Any) -> Any:
            ends = await real(*asked) if stall == "after" else None
            one.clock.set_bin(110.5)
            one.append(105, 110, 111)
            return ends or await real(*asked)

        one.clock.set_bin(101)
        counting.source.positions_at = stalled  # type: ignore[method-assign, assignment]
        await counting.cut()
        counting.source.positions_at = real  # type: ignore[method-assign]
        await counting.step()
        on_time = {100: 1, 105: 1, 110: 1, 111: 1}
        assert await one.cells(99) == on_time
        assert one.letters.reasons() == []

    asyncio.run(count())


def test_a_slice_waits_for_a_cut_that_is_due(one: OneSource) -> None:
    """The closing instant passes between reading and applying. The store refuses until the cut is taken."""
    calls: list[str] = []

    class Slow(Between):
        async def apply(self, stream: str, change: Apply) -> Reply:
            if not calls:
                one.clock.set_bin(101)
            reply = await self._store.apply(stream, change)
            calls.append(reply)
            return reply

        async def take_cuts(self, *args: Any) -> Reply:
            calls.append("cut")
            return await self._store.take_cuts(*args)

    async def count() -> None:
        await one.closer().reconcile()
        one.append(100)
        ingest = one.ingest(Slow(one.store, "", None))
        await ingest.step()
        assert calls[0] == Reply.CUTS_CHANGED
        assert calls[-2:] == ["cut", Reply.DONE]
        one.append(100)
        await ingest.step()
        assert await one.cells(99) == {100: 1, 101: 1}

    asyncio.run(count())


def test_a_worker_that_needs_a_bin_for_each_call_counts_what_lies_below_its_cuts(one: OneSource) -> None:
    """Whenever a call arrives, a later bin has closed, and its cut is due or taken."""
    calls: list[Reply] = []

    class Slow(Between):
        async def apply(self, stream: str, change: Apply) -> Reply:
            assert len(calls) < 30, "nothing is counted"
            one.clock.set_bin(one.clock.now_us // BIN_US + 1)
            await asyncio.sleep(0.01)  # meanwhile the cut is taken
            calls.append(await self._store.apply(stream, change))
            return calls[-1]

    async def count() -> None:
        await one.closer().reconcile()
        one.append(100, 100)
        ingest = one.ingest(Slow(one.store, "", None))
        await ingest.step()
        assert (calls[0], calls[-1]) == (Reply.CUTS_CHANGED, Reply.DONE)
        assert await one.cells(99) == {100: 2}
        await ingest.cut()
        one.append(102, 102, one.clock.now_us // BIN_US)
        await ingest.step()
        assert calls[-1] == Reply.DONE
        assert sum((await one.cells(99)).values()) == 5

    asyncio.run(count())


def test_a_read_that_takes_long_moves_no_cut(one: OneSource) -> None:
    """A record that takes long to read and decode must not move somebody else's record into another bin."""

    async def count() -> None:
        await one.closer().reconcile()
        counting = one.ingest()
        one.append(100)
        await counting.step()
        let_go = asyncio.Event()
        read = counting.source.read

        async def slow(*asked: Any) -> Any:
            await let_go.wait()
            return await read(*asked)

        counting.source.read = slow  # type: ignore[method-assign, assignment]
        running = asyncio.create_task(counting.run())
        await asyncio.sleep(0)
        one.append(101)
        one.clock.set_bin(101.5)

        async def cut() -> bool:
            state = await one.store.load(STREAM)
            return state is not None and state.partitions["0"].last_cut_bin == 100

        await eventually(cut)
        one.append(100.5)  # late: the cut of bin 100 is before it
        let_go.set()

        async def counted() -> bool:
            return sum((await one.cells(99)).values()) == 3

        await eventually(counted)
        await ended(running)
        assert await one.cells(99) == {100: 1, 101: 2}

    asyncio.run(count())


def test_two_workers_count_each_event_once(one: OneSource) -> None:
    async def count() -> None:
        await one.closer().reconcile()
        one.append(100, 101)
        second = one.ingest()

        async def rival() -> None:
            one.append(101)
            await second.step()

        first = one.ingest(Between(one.store, "apply", rival))
        await first.step()
        one.append(100)
        await first.step()
        await second.step()
        assert await one.cells(99) == {100: 2, 101: 2}

    asyncio.run(count())


@pytest.mark.parametrize("effect", [False, True])
def test_a_lost_reply_neither_loses_nor_doubles(one: OneSource, effect: bool) -> None:
    class Lossy(Between):
        async def apply(self, stream: str, change: Apply) -> Reply:
            if self._happens is None:
                return await self._store.apply(stream, change)
            self._happens = None
            if effect:
                await self._store.apply(stream, change)
            raise ConnectionError("the reply was lost")

    async def count() -> None:
        await one.closer().reconcile()
        one.append(100, 101)
        ingest = one.ingest(Lossy(one.store, "apply", True))
        with pytest.raises(ConnectionError):
            await ingest.step()
        running = asyncio.create_task(ingest.run())  # after an error, ``run`` loads the state and continues
        one.append(101)

        async def all_counted() -> bool:
            return sum((await one.cells(99)).values()) == 3

        await eventually(all_counted)
        await ended(running)
        assert await one.cells(99) == {100: 1, 101: 2}

    asyncio.run(count())


def test_many_cells_are_applied_in_parts(one: OneSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.core.counting.bins.split.__defaults__", (2,))
    monkeypatch.setattr("stream_app.loops.slices.LARGEST_APPLY_CELLS", 2)
    applied: list[int] = []

    class Counting(Between):
        async def apply(self, stream: str, change: Apply) -> Reply:
            applied.append(len(change.cells))
            return await self._store.apply(stream, change)

    async def count() -> None:
        await one.closer().reconcile()
        one.clock.set_bin(107)
        one.append(100, 101, 102, 100, 103, 104, 104)
        await one.ingest(Counting(one.store, "", None)).step()
        assert await one.cells(99) == {100: 2, 101: 1, 102: 1, 103: 1, 104: 2}
        assert applied[-3:] == [2, 2, 2]  # before them the store refused a call, because a cut was due

    asyncio.run(count())


def test_streams_of_one_source_keep_their_own_positions(one: OneSource) -> None:
    wide = strategy_of(stream="wide", bin_us=2 * BIN_US)

    async def count() -> None:
        await one.closer().reconcile()
        one.append(100, 101)
        await one.ingest().step()
        one.strategies = (*one.strategies, wide)
        await one.closer(wide, accept="measured again").reconcile()
        one.append(101)
        ingest = one.ingest()
        assert await ingest.step() == 3  # from the start of the newer stream
        assert await ingest.step() == 0
        assert await one.cells(99) == {100: 1, 101: 2}
        assert await one.cells(49, "wide") == {50: 3}

    asyncio.run(count())


def test_a_stream_can_begin_at_the_end_of_the_log(one: OneSource) -> None:
    async def count() -> None:
        await one.closer().reconcile()
        one.append(100, 100)
        ingest = one.ingest(start="latest")
        await ingest.step()
        one.append(100)
        await ingest.step()
        assert await one.cells(99) == {100: 1}

    asyncio.run(count())


def test_a_stream_that_is_not_open_is_refused(one: OneSource) -> None:
    with pytest.raises(OperatorError, match="not open"):
        asyncio.run(one.ingest().step())


def test_neither_errors_nor_logs_hold_a_position(one: OneSource, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse() -> None:
        raise ConnectionError("gone")

    async def count() -> None:
        await one.closer().reconcile()
        one.append(*[100] * 7919)
        running = asyncio.create_task(one.ingest(Between(one.store, "apply", refuse)).run())

        async def logged() -> bool:
            return bool(caplog.records)

        await eventually(logged)
        await ended(running)

    asyncio.run(count())
    assert caplog.messages == ["ingest: gone; trying again"]
