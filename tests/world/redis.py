"""A world over a real Redis. The server reads the world's time, which waits for each reply."""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from stream_app.core.strategy import Strategy
from stream_app.ports.reader import PublicReader
from stream_app.state.embedded import EmbeddedRedis, find_server
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from tests.host_clock import HostClock
from tests.models.memory import MemoryStore
from tests.simulator.loop import Deadlock, SimulatedLoop
from tests.world.world import World

_LONGEST_LOOK_S = 0.1


class _Selector(selectors.DefaultSelector):
    """Looks for replies. While none is awaited, the time of the next timer comes at once."""

    loop: LoopWithSockets

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if self.loop.under_way:
            # The call itself may wait for a timer: then time passes as it does outside.
            timeout = min(timeout or _LONGEST_LOOK_S, _LONGEST_LOOK_S)
            found = super().select(timeout)
        if timeout is None:
            raise Deadlock(f"all tasks wait for ever at {self.loop.now_us} us")
        if not found:
            self.loop.now_us += math.ceil(timeout * 1e6 - 1e-3)
        return found


class LoopWithSockets(asyncio.SelectorEventLoop):
    """An event loop with sockets, in virtual time. ``under_way`` counts the calls that await a reply."""

    def __init__(self) -> None:
        self.now_us, self.under_way = 0, 0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return virtual seconds since the start."""
        return self.now_us / 1e6

    run_in_executor = SimulatedLoop.run_in_executor  # type: ignore[assignment]  # there are no threads


class _Awaited:
    """A client of Redis whose calls set the server's clock to the world's, and stop time until the reply."""

    def __init__(self, client: Any, world: RedisWorld) -> None:
        self.client, self.world = client, world

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.client, name)
        if not asyncio.iscoroutinefunction(real):
            return real

        async def call(*arguments: Any, **more: Any) -> Any:
            self.world.set_clock()
            self.world.sockets.under_way += 1
            try:
                return await real(*arguments, **more)
            finally:
                self.world.sockets.under_way -= 1

        return call


class RedisWorld(World):
    """A world whose store is a Redis server. Args: server; clock, which the server was started with."""

    def __init__(self, server: EmbeddedRedis, clock: HostClock, *streams: Strategy, **options: Any) -> None:
        super().__init__(*streams, **options)
        self.loop.close()
        self.clock, self.sockets = clock, LoopWithSockets()
        self.loop = cast(SimulatedLoop, self.sockets)
        self.client, self.reading = RedisStore(server.worker_url, rewrites=False), RedisReader(server.api_url)
        self.store = cast(MemoryStore, _Awaited(self.client, self))

    def set_clock(self) -> None:
        """Let the server read the world's time."""
        self.clock.set_ahead(self.now_us() / 1e6 - time.time())

    def public_reader(self) -> PublicReader:
        """Return a reader as the API's process has it."""
        return cast(PublicReader, _Awaited(self.reading, self))

    def close(self) -> None:
        """End all workers and connections."""
        self.run(self._disconnected())
        super().close()

    async def _disconnected(self) -> None:
        self.sockets.under_way += 1
        for worker in self.workers:
            worker.kill()
        await asyncio.gather(*(worker.task for worker in self.workers), return_exceptions=True)
        await self.client.close()
        await self.reading.close()
        self.sockets.under_way -= 1


@contextmanager
def over_redis(folder: Path) -> Iterator[Callable[..., RedisWorld]]:
    """Yield what makes worlds over one server. Args: of the function, as of ``World``."""
    clock = HostClock(folder)
    with EmbeddedRedis(folder / "redis", clock.program(find_server())) as server:
        yield lambda *streams, **options: RedisWorld(server, clock, *streams, **options)
