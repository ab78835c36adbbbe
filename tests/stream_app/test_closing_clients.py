"""If a client closes slowly or fails, the worker still ends in time and states its own reason."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from stream_app.ports import OperatorError
from stream_app.wiring import storage


async def never_closes() -> None:
    await asyncio.Event().wait()


async def fails_as_it_closes() -> None:
    raise RuntimeError("the connection is gone")


def test_a_refusal_outlives_clients_that_hang_or_fail_as_they_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "CLOSE_S", 0.05)
    closed: list[str] = []

    async def closes() -> None:
        closed.append("the last one")

    async def run() -> None:
        async with AsyncExitStack() as resources:
            for close in (closes, never_closes, fails_as_it_closes):
                resources.push_async_callback(storage.close_client, close)
            raise OperatorError("what, where, remedy")

    with pytest.raises(OperatorError, match="what, where, remedy"):
        asyncio.run(run())
    assert closed == ["the last one"]
