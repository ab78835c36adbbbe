"""A budget that ends: no epoch opens that would exceed its total, wherever a worker stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stream_app.core.budget import Total
from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import LedgerEntry, Reply
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.source_ledger import SourceLedger, TotalSpent
from tests.models.memory import MemoryStore
from tests.stream_app.declared import NO_NOISE, SOURCE, design_of, strategy_of
from tests.world import World, deaths

pytestmark = pytest.mark.slow

TWO_EPOCHS = Total(2 * NO_NOISE)
ANTICIPATING = replace(design_of(), release="anticipating")


def users(stream: str = "visits", **facts: Any) -> Strategy:
    """Return a strategy whose epochs of six bins add up for a user."""
    return strategy_of(stream=stream, max_events=9, **facts)


@pytest.fixture
def world() -> Iterator[World]:
    """Yield a world with one stream, whose total allows two epochs. Its first bin is 100."""
    with World(users(), ledger={"total": TWO_EPOCHS}) as world:
        yield world


def count_until(world: World, bin: int, **changed: Any) -> None:
    """Count two events in each bin before ``bin``, and release what is due, with one new worker."""
    worker = world.start(**changed)
    for now in range(int(world.now), bin):
        world.until(now + 0.4)
        world.arrive(now, user="ann")
        world.arrive(now + 1, user="bob")
    world.until(bin + 0.35)
    world.end(worker)


def kept_exactly(world: World) -> list[object]:
    """Return all exact counts of bins that are not released."""
    return [*world.secrets().exact_counts.values(), *world.secrets().of_users]


def test_the_epoch_beyond_the_total_never_opens(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        count_until(world, 118)
    assert [epoch for epoch, _, _ in world.epochs()] == [0, 1]
    assert [epoch for _, epoch, _ in world.reserved()] == [0, 1]
    assert world.bins()[-1] == 111
    assert world.state().stopped
    told = [record.getMessage() for record in caplog.records if "total" in record.getMessage()]
    assert len(told) == 1
    assert "nothing is counted until a start with a larger streams.visits.privacy.total" in told[0]


def test_generation_that_stops_names_the_key_of_the_configuration(caplog: pytest.LogCaptureFixture) -> None:
    with World(users("visits@2"), ledger={"total": TWO_EPOCHS}) as world:
        count_until(world, 118)
        assert world.state("visits@2").stopped
    told = [record.getMessage() for record in caplog.records if "total" in record.getMessage()]
    assert [line.partition("larger ")[2] for line in told] == ["streams.visits.privacy.total"]


def test_no_exact_count_stays_of_a_time_without_an_epoch(world: World) -> None:
    count_until(world, 111)
    assert kept_exactly(world)
    count_until(world, 115)
    assert kept_exactly(world) == []
    # The log is read on, so that nothing waits for it.
    [partition] = world.state().partitions.values()
    assert partition.position == len(world.log.records["0"])


def test_a_larger_total_goes_on_with_the_next_bin(world: World) -> None:
    count_until(world, 115)
    count_until(world, 123, ledger={"total": Total(3 * NO_NOISE)})
    assert [(epoch, first) for epoch, first, _ in world.epochs()] == [(0, 100), (1, 106), (2, 116)]
    assert world.bins() == [*range(100, 112), 116, 117]  # the rest of the window of the cap
    assert world.counts()[117] == 2
    assert world.state().stopped


def test_other_streams_of_the_worker_go_on() -> None:
    limited = {"visits": {"total": TWO_EPOCHS}, "others": {}}
    with World(users(), users("others", source="elsewhere")) as world:
        count_until(world, 120, ledger=limited.get)
        assert world.bins()[-1] == 111
        assert world.bins("others") == [*range(100, 120)]


def test_a_first_epoch_beyond_the_total_is_refused_in_one_line(world: World) -> None:
    with pytest.raises(OperatorError, match=r"first epoch would exceed streams\.visits\.privacy\.total"):
        world.run_until(101, ledger={"total": Total(NO_NOISE / 2)})
    assert world.reserved() == []


def test_epochs_of_events_do_not_use_up_a_total() -> None:
    with World(strategy_of(), ledger={"total": Total(NO_NOISE)}) as world:
        world.run_until(130)
        assert world.bins()[-1] == 129


def entry(stream: str, epoch: int, source: str = SOURCE) -> LedgerEntry:
    return LedgerEntry(
        source, stream, epoch, 10 * epoch, 10 * epoch + 10, "1", "user", stream, user="name", time="at us"
    )


class Spent(NamedTuple):
    """A total that is spent. Args: asked, the entry that it does not allow; epochs, of the total."""

    asked: LedgerEntry
    epochs: int
    stored: Sequence[LedgerEntry] = ()
    outside: Sequence[LedgerEntry] = ()
    logs: Sequence[str] = ()


A0, A1, B0 = entry("a", 0), entry("a", 1), entry("b", 0)
OF_GROUP = entry("b", 0, "group")
SPENT = {
    "by a stream of the source": Spent(A1, 2, stored=[A0, B0]),
    "by a stream over another log": Spent(OF_GROUP, 1, stored=[entry("a", 0, "log")], logs=["log"]),
    "as the ledger outside knows": Spent(B0, 2, outside=[A0, A1]),
    "as an entry that was lost says": Spent(
        B0, 2, stored=[replace(one, lost=True) for one in (A0, A1)], outside=[A0, A1]
    ),
    "outside, under the log": Spent(
        OF_GROUP, 2, outside=[entry("a", epoch, "log") for epoch in range(2)], logs=["log"]
    ),
    "outside, under the group": Spent(
        OF_GROUP, 2, outside=[entry("a", epoch, "group") for epoch in range(2)], logs=["log"]
    ),
}


@pytest.mark.parametrize("case", SPENT)
async def test_a_total_counts_what_others_have_spent(tmp_path: Path, case: str) -> None:
    asked, epochs, stored, outside, logs = SPENT[case]
    store, elsewhere = MemoryStore(), LedgerFile.create(tmp_path / "ledger.ndjson")
    for one in stored:
        assert await store.reserve(one) is Reply.DONE
    await elsewhere.append(outside)
    total = Total(Fraction(epochs))
    ledger = SourceLedger(store, ACCEPTED, logs, elsewhere if outside else None, total)
    with pytest.raises(TotalSpent):
        await ledger.reserve_within_total(asked)
    assert all([await ledger.fits(one) for one in (*stored, *outside)]), "what is known is counted once"


async def test_a_total_of_a_stream_counts_its_own_epochs() -> None:
    store, total = MemoryStore(), Total(Fraction(2), per="stream")
    ledger = SourceLedger(store, ACCEPTED, total=total)
    for one in (A0, B0, A1):
        assert await ledger.reserve_within_total(one) is Reply.DONE
    with pytest.raises(TotalSpent):
        await ledger.reserve_within_total(entry("a", 2))


class SlowStore(MemoryStore):
    """A store whose replies come late, so that all streams read the ledger before one writes."""

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        found = await super().ledger(source)
        await asyncio.sleep(0)
        return found

    async def reserve(self, entry: LedgerEntry, after: int | None = None) -> Reply:
        await asyncio.sleep(0)
        return await super().reserve(entry, after)


async def test_streams_that_know_the_log_by_other_names_stay_within_the_total_together() -> None:
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

    assert await opened() <= 1


async def test_of_streams_that_ask_at_the_same_moment_only_those_open_that_fit() -> None:

    store = SlowStore()
    ledger = SourceLedger(store, ACCEPTED, total=Total(Fraction(3)))

    async def ask(number: int) -> bool:
        with suppress(TotalSpent):
            return await ledger.reserve_within_total(entry(f"s{number}", 0)) is Reply.DONE
        return False

    opened = await asyncio.gather(*map(ask, range(8)))
    assert sum(opened) == 3
    assert len(await store.ledger(SOURCE)) == 3


@pytest.mark.parametrize("bin", [105, 111])  # the next bin completes an epoch: one more opens, or none
def test_a_worker_that_dies_at_any_call_opens_no_epoch_twice_or_too_many(world: World, bin: int) -> None:
    count_until(world, bin)
    number = 0
    for death in deaths():
        number += 1
        with World(users(), ledger={"total": TWO_EPOCHS}, following=world) as after:
            count_until(after, bin + 1, death=death)
            count_until(after, 114)
            assert [epoch for epoch, _, _ in after.epochs()] == [0, 1]
            assert [epoch for _, epoch, _ in after.reserved()] == [0, 1]
            assert kept_exactly(after) == []
    assert number > 12


def test_noise_of_an_epoch_that_may_not_open_is_not_drawn() -> None:
    with World(users(design=ANTICIPATING), ledger={"total": TWO_EPOCHS}) as world:
        count_until(world, 106)
        assert len({nonce for nonce, _ in world.secrets().noise}) <= 2
        count_until(world, 114)
        assert world.bins()[-1] == 111
        assert not world.secrets().noise


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
    ("mutant", "case"),
    [
        ("this stream", "by a stream of the source"),
        ("this stream", "by a stream over another log"),
        ("lost ignored", "as an entry that was lost says"),
        ("lost ignored", "as the ledger outside knows"),
        ("memory", "by a stream of the source"),
    ],
)
async def test_mutants_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str, case: str
) -> None:
    monkeypatch.setattr(SourceLedger, "fits", mutants()[mutant])
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await test_a_total_counts_what_others_have_spent(tmp_path, case)
