"""A total knows what every stream of the source has spent, even if the store was emptied or set back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.budget import Total
from stream_app.core.ledger import ACCEPTED, statement
from stream_app.core.strategy import Strategy
from stream_app.loops import opening, recovery
from stream_app.loops.closer import Closer
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import OperatorError
from stream_app.source_ledger import SourceLedger
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryLedger
from tests.stream_app.declared import NO_NOISE, SOURCE, design_of, strategy_of
from tests.stream_app.one_source import OneSource

NAMES = "ab"


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OneSource]:
    """Yield a service with two streams, whose epochs of six bins add up for a user. The first bin is 100."""
    with closing(OneSource(tmp_path, *(strategy_of(stream=name, max_events=9) for name in NAMES))) as one:
        yield one


def closers(one: OneSource, epochs: int, configured: Sequence[str] = NAMES, **ledger: Any) -> list[Closer]:
    """Return a worker's closers of both streams, each with a total of this many epochs of the source."""
    facts: dict[str, Any] = {"total": Total(epochs * NO_NOISE), "configured": configured} | ledger
    measuring = [
        Stream(strategy=strategy, ledger=SourceLedger(one.store, ACCEPTED, **facts))
        for strategy in one.strategies
    ]
    return [
        one.closer(strategy, ACCEPTED, facts, sharing={"measuring": measuring}) for strategy in one.strategies
    ]


async def release_until(one: OneSource, bin: int, running: Sequence[Closer]) -> None:
    """Count one event in each bin before ``bin``, and release what is due."""
    ingest = one.ingest()
    for closer in running:
        await closer.reconcile()
    while one.clock.now_us < bin * 10_000_000:
        now_bin = one.clock.now_us // 10_000_000
        one.append_of((now_bin, "ann"))
        one.clock.set_bin(now_bin + 1)
        for _ in range(3):
            await ingest.step()
        for closer in running:
            await closer.close_due()
            await closer.publisher.publish()


async def opened_of(one: OneSource) -> list[tuple[str, int]]:
    return sorted((stream, epoch) for stream, epoch, _ in await one.reserved())


async def spent(one: OneSource) -> float:
    """Return the number of epochs that the ledger adds up to."""
    return float(statement(SOURCE, await one.store.ledger(SOURCE)).epsilon / NO_NOISE)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0,), (1,)])
@pytest.mark.parametrize("at_start", [False, True])
async def test_no_stream_opens_before_all_are_back(
    one: OneSource, order: Sequence[int], at_start: bool
) -> None:
    """The store is emptied under a running worker, or before a start; one stream may not run at all."""
    running = closers(one, 2)
    await release_until(one, 104, running)
    one.store.restore(MemoryStore())
    if at_start:
        running = closers(one, 2)
    for place in order:
        with pytest.raises(OperatorError, match="and a new one would exceed"):
            await running[place].reconcile()
    assert await opened_of(one) == [("a", 0), ("b", 0)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_the_rest_of_a_total_is_spent_once(one: OneSource, order: Sequence[int]) -> None:
    running = closers(one, 3)
    await release_until(one, 104, running)
    one.store.restore(MemoryStore())
    state = await running[order[0]].reconcile()
    assert state.epoch.epoch == 1
    with pytest.raises(OperatorError, match="and a new one would exceed"):
        await running[order[1]].reconcile()
    assert await spent(one) == 3


async def test_a_stream_that_lost_nothing_knows_of_others(one: OneSource) -> None:
    """A backup is put in place that lacks epochs of one stream only. The other one's next epoch is due."""
    first, second = closers(one, 4)
    await release_until(one, 104, [first, second])
    backup = one.store.copy()
    await release_until(one, 108, [first])
    one.store.restore(backup)
    await release_until(one, 113, [second])
    assert await opened_of(one) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    state = await one.store.load("b")
    assert state is not None
    assert state.stopped


async def test_both_ledgers_of_a_group_are_filled_again(one: OneSource) -> None:
    running = closers(one, 2, logs=["file:log"])
    await release_until(one, 104, running)
    one.store.ledgers["file:log"].clear()
    with suppress(OperatorError):
        await release_until(one, 107, running)
    assert {entry.stream for entry in await one.store.ledger("file:log")} == {"a", "b"}


@pytest.mark.parametrize("tells", [True, False])
async def test_a_witness_of_another_strategy_is_refused_unless_its_rows_tell_the_cost(
    one: OneSource, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    """Where the cost is not known, the total may not be asked. Rows of older builds tell none."""
    if not tells:
        monkeypatch.setattr("stream_app.core.releases.release.settings_in_row", lambda text: {})
    await release_until(one, 104, closers(one, 3))
    before = {(entry.stream, entry.epoch): entry.epsilon for entry in await one.store.ledger(SOURCE)}
    one.store.restore(MemoryStore())
    one.strategies = (one.strategies[0], strategy_of(design_of((3, 2)), stream="b", max_events=9))
    if tells:
        await closers(one, 3)[0].reconcile()
        after = {(entry.stream, entry.epoch): entry.epsilon for entry in await one.store.ledger(SOURCE)}
        assert before.items() <= after.items()
        return
    with pytest.raises(OperatorError, match=r"^stream b: the witness holds releases of another strategy"):
        await closers(one, 3)[0].reconcile()
    assert await one.store.load("a") is None


async def test_a_stream_that_only_another_configuration_knows_is_refused(one: OneSource) -> None:
    await closers(one, 3, "b")[1].reconcile()
    with pytest.raises(OperatorError, match=r"^streams\.a\.privacy\.total: .* stream b, too, .*") as refusal:
        await closers(one, 3, "a")[0].reconcile()
    assert "\n" not in str(refusal.value)
    assert "write ledger: {file: ...} or {topic: ...}, or per: stream in the total" in str(refusal.value)
    assert await opened_of(one) == [("b", 0)]
    await closers(one, 3, "a", total=Total(3 * NO_NOISE, per="stream"))[0].reconcile()


async def test_a_stream_that_begins_elsewhere_meanwhile_is_noticed_by_the_next_epoch(one: OneSource) -> None:
    [first, _], [_, second] = closers(one, 9, "a"), closers(one, 9, "b", total=None)
    one.strategies = one.strategies[:1]
    await release_until(one, 104, [first])
    await second.reconcile()
    with pytest.raises(OperatorError, match=r"^streams\.a\.privacy\.total: "):
        await release_until(one, 107, [first])
    assert ("a", 1) not in await opened_of(one)


async def test_a_lost_ledger_is_filled_again_before_each_streams_next_epoch(one: OneSource) -> None:
    """In a cluster the ledger's node may be lost alone. No total has to be declared."""
    running = closers(one, 0, total=None)
    await release_until(one, 109, running)
    one.store.ledgers.clear()
    await release_until(one, 113, running)
    assert await opened_of(one) == [(name, epoch) for name in NAMES for epoch in range(3)]
    assert await spent(one) == 6


async def test_the_ledger_elsewhere_puts_back_streams_of_other_configurations(one: OneSource) -> None:
    outside = MemoryLedger()
    [first, _], [_, running] = (closers(one, 0, name, total=None, outside=outside) for name in NAMES)
    await first.reconcile()
    one.strategies = one.strategies[1:]
    await release_until(one, 104, [running])
    one.store.ledgers.clear()
    await release_until(one, 107, [running])
    known = {(entry.stream, entry.epoch): entry.lost for entry in await one.store.ledger(SOURCE)}
    assert known == {("a", 0): True, ("b", 0): False, ("b", 1): False}


class Dying(MemoryStore):
    """A store whose worker dies at its n-th entry in a ledger."""

    left = -1

    async def reserve(self, *arguments: Any) -> Any:
        reply = await super().reserve(*arguments)
        self.left -= 1
        if self.left == 0:
            raise asyncio.CancelledError
        return reply


@pytest.mark.parametrize("entries", range(1, 7))
async def test_a_worker_that_dies_between_the_ledgers_of_a_group_opens_nothing_too_many(
    one: OneSource, entries: int
) -> None:
    grouped = [strategy_of(stream=name, max_events=9, source="g") for name in NAMES]
    one.store = dying = Dying(one.clock)
    dying.left = entries

    def start(strategy: Strategy, logs: Sequence[str]) -> Closer:
        facts = {"total": Total(2 * NO_NOISE), "logs": logs, "configured": "abc"}
        return one.closer(strategy, ACCEPTED, facts)

    alone = start(strategy_of(stream="c", max_events=9, source="file:log"), [])
    for again in range(2):
        for strategy in grouped:
            with suppress(asyncio.CancelledError, OperatorError):
                await start(strategy, ["file:log"]).reconcile()
        if not again:
            with suppress(OperatorError):
                await alone.reconcile()
    begun = [name for name in "abc" if await one.store.load(name) is not None]
    assert len(begun) == 2


async def _own_only(ports: Ports, streams: Sequence[Stream]) -> None:
    """Put back this stream's entries only, as before."""
    await restore(ports, streams[-1:])


async def _nothing(ports: Ports, streams: Sequence[Stream]) -> None:
    """Put back nothing."""


async def _of_streams_without_any(store: Any, witnesses: Any, ledgers: Any) -> list[str]:
    """Look whether a stream has any entry, not whether it has all of the witness's epochs."""
    return [
        stream
        for stream, names in ledgers.items()
        if await witnesses[stream].head(stream) is not None
        and not any(entry.stream == stream for entry in await store.ledger(names[0]))
    ]


restore = recovery.restore_ledgers


async def emptied(one: OneSource) -> None:
    """Run one case of the test above."""
    await test_no_stream_opens_before_all_are_back(one, (0,), False)


@pytest.mark.parametrize(
    ("place", "mutant", "caught_by"),
    [
        ("restore_ledgers", _own_only, emptied),
        ("restore_ledgers", _nothing, emptied),
        ("restore_ledgers", _own_only, test_a_stream_that_lost_nothing_knows_of_others),
        (
            "with_lost_entries",
            _of_streams_without_any,
            test_a_stream_that_lost_nothing_knows_of_others,
        ),
        ("with_lost_entries", _of_streams_without_any, test_both_ledgers_of_a_group_are_filled_again),
    ],
)
async def test_mutants_are_caught(
    one: OneSource,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    mutant: Callable[..., Any],
    caught_by: Callable[[OneSource], Awaitable[None]],
) -> None:
    monkeypatch.setattr(opening if place == "restore_ledgers" else recovery, place, mutant)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await caught_by(one)
