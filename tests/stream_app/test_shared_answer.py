"""Tasks that ask at the same time share one question. No answer is older than the call that gets it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.records import Cut
from stream_app.loops.clocks import LiveClock
from stream_app.together import SharedAnswer
from stream_app.wiring.pipeline import Counting
from tests.models.memory import MemoryStore
from tests.stream_app.declared import FIRST_BIN, STREAM, design_of, strategy_of
from tests.stream_app.one_source import OneSource


class Oracle:
    """Returns how often it was asked. Each answer waits until the test releases it."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Semaphore(0)

    async def __call__(self) -> int:
        self.asked += 1
        number = self.asked
        await self.go.acquire()
        return number


async def test_a_caller_during_a_question_gets_the_next_answer() -> None:
    oracle = Oracle()
    ask = SharedAnswer(oracle)
    first = [asyncio.create_task(ask()) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert oracle.asked == 1
    late = [asyncio.create_task(ask()) for _ in range(2)]
    oracle.go.release()
    assert await asyncio.gather(*first) == [1, 1, 1]
    oracle.go.release()
    assert await asyncio.gather(*late) == [2, 2]
    oracle.go.release()
    assert await ask() == 3


async def test_each_asker_hears_of_a_failure_and_the_next_question_is_put_anew() -> None:
    asked = 0

    async def fail_once() -> int:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ConnectionError("no answer")
        return asked

    ask = SharedAnswer(fail_once)
    outcomes = await asyncio.gather(ask(), ask(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionError] * 2
    assert await ask() == 2


async def test_cancelled_caller_does_not_cancel_the_shared_answer() -> None:
    oracle = Oracle()
    ask = SharedAnswer(oracle)
    leaving, staying = asyncio.create_task(ask()), asyncio.create_task(ask())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    oracle.go.release()
    assert await staying == 1


async def test_unobserved_failure_is_not_an_error_of_the_loop() -> None:
    errors: list[object] = []

    async def fail() -> int:
        await asyncio.sleep(0)
        raise ConnectionError("no answer")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    asking = asyncio.create_task(SharedAnswer(fail)())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.sleep(0.01)
    gc.collect()
    assert errors == []


async def test_streams_that_ask_the_clock_together_ask_the_store_once() -> None:
    asked = 0

    class CountingStore(MemoryStore):
        async def now_us(self, latest_us: int = 0) -> tuple[int, int]:
            nonlocal asked
            asked += 1
            return await super().now_us(latest_us)

    async def ask() -> list[int]:
        clock = LiveClock(CountingStore(lambda: 7))
        return await asyncio.gather(*(clock.now_us() for _ in range(20)))

    assert await ask() == [7] * 20
    assert asked == 1


class HeldClock:
    """A store whose answer about the time is delayed until the test releases it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.way_is_free = asyncio.Event()
        self.way_is_free.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def now_us(self, latest_us: int = 0) -> tuple[int, int]:
        answer = await self._store.now_us(latest_us)
        await self.way_is_free.wait()
        return answer


async def test_a_cut_never_takes_the_time_from_a_question_of_before_the_log_was_asked(tmp_path: Path) -> None:
    """Otherwise a record that arrived during a pause would be refused as a record from the future."""
    with closing(OneSource(tmp_path, strategy_of(design_of((2, 3))))) as one:

        async def run() -> list[Cut]:
            await one.closer().reconcile()
            await one.ingest().step()
            store = HeldClock(one.store)
            clock, source = LiveClock(store), one.source()
            ends_of = source.positions_at
            siblings: list[asyncio.Task[int]] = []

            async def positions_at(
                partitions: Sequence[str], instants_us: Sequence[int]
            ) -> Mapping[str, Sequence[int]]:
                store.way_is_free.clear()
                siblings.append(asyncio.create_task(clock.now_us()))  # another stream's loop
                await asyncio.sleep(0.01)  # the store has read its clock
                one.clock.set_bin(FIRST_BIN + 4)
                asyncio.get_running_loop().call_later(0.01, store.way_is_free.set)
                return await ends_of(partitions, instants_us)

            source.positions_at = positions_at  # type: ignore[method-assign]
            cutter = Counting.over(one.ports(source, store, clock), [STREAM]).cutter
            one.append(FIRST_BIN)
            one.clock.set_bin(FIRST_BIN + 1)
            await cutter.take_due(await source.owned())
            await asyncio.gather(*siblings)
            state = await one.store.load(STREAM)
            assert state is not None
            return [cut for partition in state.partitions.values() for cut in partition.cuts]

        first, *_ = await run()
        assert (first.bin, first.overdue) == (FIRST_BIN, 3)
