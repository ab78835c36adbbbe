"""Loops that run side by side: the first failure ends the others, and the caller gets this failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stream_app.loops.alert_delivery import deliver
from stream_app.ports import OperatorError
from stream_app.sinks.alert_targets import LogTarget
from stream_app.together import until_all_end, until_one_ends

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
