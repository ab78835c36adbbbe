"""The stores under contract: one in memory and one on every real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import pytest

from stream_app.ports.reader import PublicReader
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from tests.contracts.servers import running, server_paths
from tests.models.memory import MemoryStore

SERVERS = [pytest.param(name, marks=pytest.mark.redis) for name in server_paths()]


@dataclass(frozen=True)
class Stores:
    """A store, its reader, and the name of a stream that is new to it."""

    store: MemoryStore | RedisStore
    reader: PublicReader
    stream: str


@asynccontextmanager
async def over(server: EmbeddedRedis) -> AsyncIterator[Stores]:
    """Yield the store on a server."""
    store, reader = RedisStore(server.worker_url), RedisReader(server.api_url)
    try:
        yield Stores(store, reader, f"stream-{uuid4().hex}")
    finally:
        await store.close()
        await reader.close()


class Servers:
    """Real servers. Each of them starts at its first use."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.running: dict[str, EmbeddedRedis] = {}

    def __getitem__(self, name: str) -> EmbeddedRedis:
        if name not in self.running:
            self.running[name] = self.stack.enter_context(running(server_paths()[name]))
        return self.running[name]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=["memory", *SERVERS])
async def stores(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[Stores]:
    if request.param == "memory":
        memory = MemoryStore()
        yield Stores(memory, memory.reader(), f"stream-{uuid4().hex}")
        return
    async with over(servers[request.param]) as real:
        yield real
