"""Loops that run side by side: the first failure ends the others, and the caller gets this failure."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.records import Cut
from stream_app.loops.alert_delivery import deliver
from stream_app.loops.clocks import LiveClock
from stream_app.ports import OperatorError
from stream_app.sinks.alert_targets import LogTarget
from stream_app.together import SharedAnswer, until_all_end, until_one_ends
from stream_app.wiring.pipeline import Counting
from tests.models.memory import MemoryStore
from tests.stream_app.declared import FIRST_BIN, STREAM, design_of, strategy_of
from tests.stream_app.one_source import OneSource

REFUSAL = OperatorError("one line")


async def returns_soon() -> None:
    await asyncio.sleep(0.01)


async def refuses() -> None:
    await asyncio.sleep(0.01)
    raise REFUSAL


async def breaks() -> None:
    await asyncio.sleep(0)
    raise KeyError("unexpected")


async def is_cancelled_by_a_library() -> None:
    await asyncio.sleep(0.01)
    raise asyncio.CancelledError


class Endless:
    """A loop that notes its own end, and may then fail with an error of its own."""

    def __init__(self, last: BaseException | None = None) -> None:
        self.ended = False
        self.last = last

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True
            if self.last is not None:
                raise self.last


async def test_loops_are_awaited_until_all_or_until_one_has_ended() -> None:
    other = Endless()
    await until_all_end(returns_soon(), returns_soon())
    await until_one_ends(other.run(), returns_soon())
    assert other.ended


@pytest.mark.parametrize("until", [until_all_end, until_one_ends])
@pytest.mark.parametrize(
    ("loop", "failure"),
    [(refuses, OperatorError), (breaks, KeyError), (is_cancelled_by_a_library, RuntimeError)],
)
async def test_a_failure_ends_the_other_loops_and_is_raised(
    until: Callable[..., Awaitable[None]], loop: Callable[[], Awaitable[None]], failure: type[Exception]
) -> None:
    other = Endless()

    async def run() -> None:
        await until(other.run(), loop())

    with pytest.raises(failure):
        await run()
    assert other.ended


async def test_the_operators_line_comes_before_what_else_fails_as_loops_end() -> None:
    with pytest.raises(OperatorError, match="one line"):
        await until_all_end(Endless(ConnectionError()).run(), refuses(), Endless(KeyError()).run())
    with pytest.raises(OperatorError, match="one line"):
        await until_all_end(breaks(), Endless(REFUSAL).run())


async def test_the_waiting_task_is_not_marked_as_cancelled_by_a_failure() -> None:
    """Before Python 3.13 asyncio.TaskGroup leaves its parent marked as cancelled, and clean-up then fails."""

    async def run() -> int:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(OperatorError):
            await until_one_ends(until_all_end(Endless().run(), refuses()), Endless().run())
        return task.cancelling()

    assert await run() == 0


async def test_cancelling_ends_every_loop() -> None:
    loops = [Endless(), Endless(), Endless(KeyError())]

    async def run() -> None:
        await until_one_ends(loops[0].run(), until_all_end(*(loop.run() for loop in loops[1:])))

    async def cancelled() -> bool:
        task = asyncio.create_task(run())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert await cancelled()
    assert all(loop.ended for loop in loops)


class RefusingStore:
    """A store of alerts that raises an error for its operator."""

    def __getattr__(self, _name: str) -> Callable[..., Awaitable[None]]:
        async def refuse(*_: object) -> None:
            raise REFUSAL

        return refuse


async def test_a_refusal_of_a_delivery_of_alerts_reaches_the_process_as_one_line() -> None:
    with pytest.raises(OperatorError, match="one line"):
        await deliver(RefusingStore(), [LogTarget()])  # type: ignore[arg-type]


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
