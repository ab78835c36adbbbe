"""A budget that ends: no epoch opens that would exceed its total, wherever a worker stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.budget import Total
from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import LedgerEntry, Reply, StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops import closer as closing_loop
from stream_app.outage import Outage
from stream_app.ports import OperatorError
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.source_ledger import SourceLedger, TotalSpent
from tests.models.memory import MemoryStore
from tests.patience import ended
from tests.stream_app.declared import BIN_US, NO_NOISE, SOURCE, design_of, strategy_of
from tests.stream_app.one_source import OneSource

TWO_EPOCHS = Total(2 * NO_NOISE)
ANTICIPATING = replace(design_of(), release="anticipating")


def users(stream: str = "visits", **facts: Any) -> Strategy:
    """Return a strategy whose epochs of six bins add up for a user."""
    return strategy_of(stream=stream, max_events=9, **facts)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneSource]:
    """Yield a service with one stream. Its first bin is 100."""
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    with closing(OneSource(tmp_path, users())) as one:
        yield one


async def count_until(one: OneSource, bin: int, total: Total = TWO_EPOCHS, **closer_options: Any) -> None:
    """Count one event in each bin before ``bin``, and release what is due."""
    ingest, closer = one.ingest(), one.closer(ledger={"total": total}, **closer_options)
    await closer.reconcile()
    while one.clock.now_us < bin * BIN_US:
        now_bin = one.clock.now_us // BIN_US
        one.append_of((now_bin, "ann"), (now_bin + 1, "bob"))
        one.clock.set_bin(now_bin + 1)
        for _ in range(3):
            await ingest.step()
        await closer.close_due()
    await closer.publisher.publish()


async def state_of(one: OneSource, stream: str = "visits") -> StreamState:
    state = await one.store.load(stream)
    assert state is not None
    return state


def secrets(one: OneSource) -> list[object]:
    """Return all exact counts of bins that are not released."""
    held = one.store._streams["visits"]
    return [held.cells, held.users, held.untallied, [part.ahead for part in held.partitions.values()]]


def test_the_epoch_beyond_the_total_never_opens(one: OneSource, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        with caplog.at_level(logging.WARNING):
            await count_until(one, 118)
        assert [epoch for epoch, _, _ in await one.epochs()] == [0, 1]
        assert [epoch for _, epoch, _ in await one.reserved()] == [0, 1]
        assert max(await one.released()) == 111
        assert (await state_of(one)).stopped
        told = [record.getMessage() for record in caplog.records if "total" in record.getMessage()]
        assert len(told) == 1
        assert "nothing is counted until a start with a larger streams.visits.privacy.total" in told[0]

    asyncio.run(run())


def test_generation_that_stops_names_the_key_of_the_configuration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(OneSource(tmp_path, users("visits@2"))) as one:
        asyncio.run(count_until(one, 118))
        assert asyncio.run(state_of(one, "visits@2")).stopped
    told = [record.getMessage() for record in caplog.records if "total" in record.getMessage()]
    assert [line.partition("larger ")[2] for line in told] == ["streams.visits.privacy.total"]


def test_no_exact_count_stays_of_a_time_without_an_epoch(one: OneSource) -> None:
    async def run() -> None:
        await count_until(one, 111)
        assert any(secrets(one))
        await count_until(one, 115)
        assert secrets(one) == [{}, {}, {}, [[]]]
        # The log is read on, so that nothing waits for it.
        [partition] = (await state_of(one)).partitions.values()
        assert partition.position == one.path.stat().st_size

    asyncio.run(run())


def test_a_larger_total_goes_on_with_the_next_bin(one: OneSource) -> None:
    async def run() -> None:
        await count_until(one, 115)
        await count_until(one, 123, Total(3 * NO_NOISE))
        assert [(epoch, first) for epoch, first, _ in await one.epochs()] == [(0, 100), (1, 106), (2, 116)]
        released = await one.released()
        assert sorted(released) == [*range(100, 112), 116, 117]  # the rest of the window of the cap
        assert released[117] == 2
        assert (await state_of(one)).stopped

    asyncio.run(run())


def test_other_streams_of_the_worker_go_on(one: OneSource) -> None:
    async def run() -> None:
        other = users("others", source="elsewhere")
        one.strategies = (users(), other)
        first, second = one.closer(ledger={"total": TWO_EPOCHS}), one.closer(other)
        for closer in (first, second):
            await closer.reconcile()
        ingest = one.ingest()
        for bin in range(100, 120):
            one.append_of((bin, "ann"))
            one.clock.set_bin(bin + 1)
            for _ in range(3):
                await ingest.step()
            for closer in (first, second):
                await closer.close_due()
        assert max(await one.released()) == 111
        assert await one.released("others") == dict.fromkeys(range(100, 120), 1)

    asyncio.run(run())


def test_a_first_epoch_beyond_the_total_is_refused_in_one_line(one: OneSource) -> None:
    async def run() -> None:
        with pytest.raises(OperatorError, match=r"first epoch would exceed streams\.visits\.privacy\.total"):
            await one.closer(ledger={"total": Total(NO_NOISE / 2)}).reconcile()
        assert await one.reserved() == []

    asyncio.run(run())


def test_epochs_of_events_do_not_use_up_a_total(one: OneSource) -> None:
    async def run() -> None:
        one.strategies = (strategy_of(),)
        await count_until(one, 130, Total(NO_NOISE))
        assert max(await one.released()) == 129

    asyncio.run(run())


def entry(stream: str, epoch: int, source: str = SOURCE) -> LedgerEntry:
    return LedgerEntry(
        source, stream, epoch, 10 * epoch, 10 * epoch + 10, "1", "user", stream, user="name", time="at us"
    )


def test_streams_of_a_source_share_its_total() -> None:
    async def run() -> None:
        store = MemoryStore()
        ledger = SourceLedger(store, ACCEPTED, total=Total(Fraction(2)))
        await ledger.begin(entry("a", 0))
        await ledger.begin(entry("b", 0))
        with pytest.raises(TotalSpent):
            await ledger.reserve_within_total(entry("a", 1))
        alone = SourceLedger(store, ACCEPTED, total=Total(Fraction(2), per="stream"))
        assert await alone.reserve_within_total(entry("a", 1)) is Reply.DONE
        with pytest.raises(TotalSpent):
            await alone.reserve_within_total(entry("a", 2))

    asyncio.run(run())


def test_what_other_logs_of_a_group_measured_counts() -> None:
    async def run() -> None:
        store = MemoryStore()
        await SourceLedger(store).reserve(entry("a", 0, "file:log"))
        grouped = SourceLedger(store, ACCEPTED, ["file:log"], total=Total(Fraction(1)))
        with pytest.raises(TotalSpent):
            await grouped.reserve_within_total(entry("b", 0, "group"))

    asyncio.run(run())


@pytest.mark.parametrize("known", ["outside only", "lost"])
def test_epochs_that_only_the_ledger_outside_knows_count(tmp_path: Path, known: str) -> None:
    async def run() -> None:
        store, outside = MemoryStore(), LedgerFile.create(tmp_path / "ledger.ndjson")
        await outside.append([entry("a", 0), entry("a", 1)])
        if known == "lost":
            for epoch in range(2):
                await store.reserve(replace(entry("a", epoch), lost=True))
        ledger = SourceLedger(store, ACCEPTED, outside=outside, total=Total(Fraction(2)))
        with pytest.raises(TotalSpent):
            await ledger.reserve_within_total(entry("b", 0))
        assert await ledger.fits(entry("a", 1))  # it is counted once

    asyncio.run(run())


class SlowStore(MemoryStore):
    """A store whose replies come late, so that all streams read the ledger before one writes."""

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        found = await super().ledger(source)
        await asyncio.sleep(0)
        return found

    async def reserve(self, entry: LedgerEntry, after: int | None = None) -> Reply:
        await asyncio.sleep(0)
        return await super().reserve(entry, after)


def test_streams_that_know_the_log_by_other_names_stay_within_the_total_together() -> None:
    async def opened() -> int:
        store, total = SlowStore(), Total(Fraction(1))
        grouped = SourceLedger(store, ACCEPTED, ["file:log"], total=total)
        alone = SourceLedger(store, ACCEPTED, total=total)

        async def asks(ledger: SourceLedger, stream: str, source: str) -> bool:
            try:
                return await ledger.reserve_within_total(entry(stream, 0, source)) is Reply.DONE
            except TotalSpent:
                return False

        asked = (asks(grouped, "a", "group:g"), asks(alone, "b", "file:log"), asks(grouped, "c", "group:h"))
        return sum(await asyncio.gather(*asked))

    assert asyncio.run(opened()) <= 1


def test_of_streams_that_ask_at_the_same_moment_only_those_open_that_fit() -> None:
    async def run() -> None:
        store = SlowStore()
        ledger = SourceLedger(store, ACCEPTED, total=Total(Fraction(3)))

        async def ask(number: int) -> bool:
            with suppress(TotalSpent):
                return await ledger.reserve_within_total(entry(f"s{number}", 0)) is Reply.DONE
            return False

        opened = await asyncio.gather(*map(ask, range(8)))
        assert sum(opened) == 3
        assert len(await store.ledger(SOURCE)) == 3

    asyncio.run(run())


class Dying:
    """A store whose worker dies at the n-th call, before or after the call takes effect."""

    def __init__(self, inner: MemoryStore, calls: int, after_effect: bool) -> None:
        self._inner, self.left, self._after_effect = inner, calls, after_effect

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self._after_effect:
                raise asyncio.CancelledError
            reply = await getattr(self._inner, name)(*arguments)
            if self.left == 0:
                raise asyncio.CancelledError
            return reply

        return call


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("bin", [105, 111])  # the next bin completes an epoch: one more opens, or none
def test_a_worker_that_dies_at_any_call_opens_no_epoch_twice_or_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_effect: bool, bin: int
) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)

    async def die_at(calls: int) -> bool:
        (directory := tmp_path / f"{calls}").mkdir()
        one = OneSource(directory, users())
        dying = Dying(one.store, calls, after_effect)
        try:
            await count_until(one, bin)
            with suppress(asyncio.CancelledError):
                await count_until(one, bin + 1, store=dying)
            await count_until(one, 114)
            assert [epoch for epoch, _, _ in await one.epochs()] == [0, 1]
            assert [epoch for _, epoch, _ in await one.reserved()] == [0, 1]
            assert secrets(one) == [{}, {}, {}, [[]]]
            return dying.left <= 0
        finally:
            for source in one._sources:
                await source.close()

    async def run() -> None:
        calls = 1
        while await die_at(calls):
            calls += 1
        assert calls > 15

    asyncio.run(run())


def test_noise_of_an_epoch_that_may_not_open_is_not_drawn(one: OneSource) -> None:
    async def run() -> None:
        one.strategies = (users(design=ANTICIPATING),)
        ingest = one.ingest()
        closer = one.closer(ledger={"total": TWO_EPOCHS})
        await closer.reconcile()
        drawing = asyncio.create_task(closer._draw_ahead(Outage(closing_loop.log, "test")))
        held = one.store._noise
        for bin in range(100, 114):
            one.clock.set_bin(bin + 1)
            for _ in range(3):
                await ingest.step()
            await closer.close_due()
            await asyncio.sleep(0.05)
            if bin == 105:
                assert len({nonce for nonce, _ in held["visits"]}) <= 2
        await ended(drawing)
        assert max(await one.released()) == 111
        assert closer._ahead._ready is None
        assert not held["visits"]

    asyncio.run(run())


def mutants() -> dict[str, Any]:
    """Return wrong ways to decide, by name."""

    async def of_this_stream_only(ledger: SourceLedger, new: LedgerEntry) -> bool:
        assert ledger._total is not None
        own = [one for one in await ledger._store.ledger(new.source) if one.stream == new.stream]
        return ledger._total.allows(new.stream, {(e.stream, e.epoch): e for e in [*own, new]}.values())

    async def without_lost_entries(ledger: SourceLedger, new: LedgerEntry) -> bool:
        assert ledger._total is not None
        known = [one for one in await ledger._store.ledger(new.source) if not one.lost]
        return ledger._total.allows(new.stream, {(e.stream, e.epoch): e for e in [*known, new]}.values())

    async def from_memory(ledger: SourceLedger, new: LedgerEntry) -> bool:
        return new.epoch < 2

    return {
        "this stream": of_this_stream_only,
        "lost ignored": without_lost_entries,
        "memory": from_memory,
    }


@pytest.mark.parametrize(
    ("mutant", "caught_by"),
    [
        ("this stream", lambda path: test_streams_of_a_source_share_its_total()),
        ("this stream", lambda path: test_what_other_logs_of_a_group_measured_counts()),
        ("lost ignored", lambda path: test_epochs_that_only_the_ledger_outside_knows_count(path, "lost")),
        (
            "lost ignored",
            lambda path: test_epochs_that_only_the_ledger_outside_knows_count(path, "outside only"),
        ),
        ("memory", lambda path: test_streams_of_a_source_share_its_total()),
    ],
)
def test_mutants_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str, caught_by: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(SourceLedger, "fits", mutants()[mutant])
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        caught_by(tmp_path)


@pytest.mark.parametrize("name", ["group", "log"])
def test_epochs_that_the_ledger_outside_knows_under_another_name_count(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        outside = LedgerFile.create(tmp_path / "ledger.ndjson")
        await outside.append([entry("a", 0, name), entry("a", 1, name)])
        ledger = SourceLedger(
            MemoryStore(), ACCEPTED, logs=("log",), outside=outside, total=Total(Fraction(2))
        )
        with pytest.raises(TotalSpent):
            await ledger.reserve_within_total(entry("b", 0, "group"))

    asyncio.run(run())
