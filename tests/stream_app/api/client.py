"""Sends requests to the application over a memory store, without a network or over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI

from stream_app.api.admission.access import AccessRules
from stream_app.api.admission.long_questions import Apart
from stream_app.api.app import EVERYBODY, create_app, listen, serve_on
from stream_app.api.replica import StreamReplica
from stream_app.core.answers.query import StreamView
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S, eventually_async
from tests.stream_app.published import Published

EXACT = "1000000000"  # so large that noise is zero


class Lasting(Apart):
    """A computing process that outlasts the service that asks it."""

    def close(self) -> None:
        """Let the process run: it ends with the tests."""


SHARED = Lasting()  # one computing process for the applications of all tests: each start takes 0.6 s


class Api:
    """A client of an application that reads the store only when ``refresh`` is called."""

    def __init__(
        self, app: FastAPI, client: httpx.AsyncClient, store: MemoryStore, stream: Published
    ) -> None:
        self.app, self.client, self.store, self.stream = app, client, store, stream

    async def get(self, path: str, **query: Any) -> httpx.Response:
        """Request an address. Without a leading slash, it is relative to the stream's address."""
        url = path if path.startswith("/") else f"/v1/streams/{self.stream.name}{'/' if path else ''}{path}"
        headers = query.pop("headers", None)
        return await self.client.get(url, params=query, headers=headers)

    async def json(self, path: str, **query: Any) -> Any:
        """Return the body of a successful answer."""
        response = await self.get(path, **query)
        assert response.status_code == 200, response.text
        return response.json()

    async def error(self, path: str, **query: Any) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of a refusal; fail if its message has several lines."""
        response = await self.get(path, **query)
        body = response.json()
        assert "\n" not in body["error"]
        return response.status_code, body

    async def refresh(self) -> None:
        """Read newly visible releases from the store."""
        await self.app.state.replicas.refresh()

    @property
    def replica(self) -> StreamReplica:
        """Return the stream's replica."""
        replica: StreamReplica = self.app.state.replicas.by_name[self.stream.name]
        return replica

    @property
    def view(self) -> StreamView:
        """Return the view that the application answers from."""
        assert self.replica.view is not None
        return self.replica.view


async def released(counts: Sequence[int] = (), store: MemoryStore | None = None, **options: Any) -> Published:
    """Return an open stream with these counts, all of them visible. Args: store, None for a new one."""
    stream = Published(store or MemoryStore(), **options)
    await fill(stream, counts)
    return stream


async def fill(stream: Published, cells: Any) -> None:
    """Open a stream and release cells, or counts where it has no keys and values."""
    await stream.open()
    if isinstance(cells, np.ndarray):
        await stream.close_cells(cells)
    elif cells:
        await stream.close(cells)


@asynccontextmanager
async def api_over(counts: Sequence[int] = (), **options: Any) -> AsyncIterator[Api]:
    """Yield the application over a stream with these counts, all of them visible."""
    async with api_at(await released(counts, **options)) as api:
        yield api


@asynccontextmanager
async def api_at(stream: Published, **options: Any) -> AsyncIterator[Api]:
    """Yield the application over the releases of a stream. Args: options, as of ``asking``."""
    async with asking(stream.store, **options) as (app, client):
        yield Api(app, client, stream.store, stream)


@asynccontextmanager
async def asking(
    store: MemoryStore, rules: AccessRules = EVERYBODY, address: str = "127.0.0.1", key: str = "", **app: Any
) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """Yield an application that has read a store, and a reader at an address, who may have a key."""
    made = create_app(store.reader(), rules, apart=SHARED, **app)
    await made.state.replicas.refresh()
    async with reading(made, address, key) as client:
        yield made, client


def reading(app: FastAPI, address: str = "127.0.0.1", key: str = "") -> httpx.AsyncClient:
    """Return the client of a reader."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(app=app, client=(address, 5_000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


async def two_streams(source: str | None = None) -> MemoryStore:
    """Return a store with the streams clicks and views. Args: source, of both; None: each has its own."""
    store = MemoryStore()
    for name in ("clicks", "views"):
        await released([1, 2, 3], store, name=name, source=source or f"{name}.ndjson")
    return store


async def _is_ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


@asynccontextmanager
async def served(
    reader: Any, rules: AccessRules = EVERYBODY, *, port: int = 0, is_awaited: bool = True, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Serve a reader of a store on loopback; yield a client of the service, which has no connection yet.

    Args: is_awaited, whether the service has read the store before; options, as of ``serve_on``.
    """

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        yield reader

    with listen("127.0.0.1", port) as listener:
        serving = asyncio.create_task(serve_on(listener, opened, rules, apart=SHARED, **options))
        try:
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            if is_awaited:
                async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as first:
                    await eventually_async(partial(_is_ready, first), "it is ready")
            async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as client:
                yield client
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def with_api(
    counts: Sequence[int] = (), **options: Any
) -> Callable[[Callable[[Api], Awaitable[None]]], Callable[[], Awaitable[None]]]:
    """Let a test that takes the application take nothing."""

    def decorate(test: Callable[[Api], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            async with api_over(counts, **options) as api:
                await test(api)

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate
