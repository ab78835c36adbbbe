"""Asks Redis how much memory it uses, for the operator: the number follows the events. SECRET."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol

from stream_app.monitoring.metrics import Metrics

ASK_EVERY_S = 15.0


class Memory(Protocol):
    """The memory of one server, in bytes."""

    @property
    def used(self) -> int:
        """The memory that the data of Redis take."""

    @property
    def limit(self) -> int | None:
        """The most memory that Redis may use, if that is known."""


async def follow_memory(ask: Callable[[], Awaitable[Mapping[str, Memory]]], metrics: Metrics) -> None:
    """Ask until cancelled; the clock decides when. While the store is down, the last answer is shown.

    Args: ask, for the memory of each server by its address; it may raise OSError.
    """
    while True:
        with suppress(OSError):
            found = await ask()
            for gauge in (metrics.redis_memory, metrics.redis_memory_limit):
                gauge.clear()  # of servers that take no more writes
            for server, memory in found.items():
                metrics.redis_memory.labels(server).set(memory.used)
                if memory.limit is not None:
                    metrics.redis_memory_limit.labels(server).set(memory.limit)
        await asyncio.sleep(ASK_EVERY_S)
