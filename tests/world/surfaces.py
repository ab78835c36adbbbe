"""What readers of a world see: rows, views, the API, the metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import httpx
import numpy as np

from stream_app.api.admission.access import AccessRules
from stream_app.api.admission.long_questions import Apart
from stream_app.api.app import create_app
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import width_of
from stream_app.core.records import PublicState
from stream_app.core.strategy import Strategy
from stream_app.ports.access import Scrapes
from stream_app.ports.reader import PublicReader
from tests.models.memory import MemoryStore

T = TypeVar("T")


class Inside(Apart):
    """Computes long answers here instead of in another process."""

    async def of(self, function: Callable[..., T], *arguments: object) -> T:
        """Call the function."""
        return function(*arguments)

    async def of_view(self, view: StreamView, function: Callable[..., T], *arguments: object) -> T:
        """Call the function with the view."""
        return function(view, *arguments)


class Surfaces:
    """Reads every surface of what a store shows. Each method is a new reader."""

    store: MemoryStore
    strategies: list[Strategy]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the world."""
        raise NotImplementedError

    def name_of(self, stream: str | None) -> str:
        return stream or self.strategies[0].stream

    def public_reader(self) -> PublicReader:
        """Return a new reader of what is visible."""
        return self.store.reader()

    def public(self, stream: str | None = None) -> PublicState:
        """Return what readers know of a stream."""
        found = self.run(self.public_reader().public_state(self.name_of(stream)))
        assert found is not None, "no epoch is open"
        return found

    def rows(self, stream: str | None = None) -> list[dict[str, Any]]:
        """Return the visible rows."""
        found = self.run(self.public_reader().rows(self.name_of(stream), 0, 10**6))
        return [json.loads(row) for _, row in found]

    def bins(self, stream: str | None = None) -> list[int]:
        """Return the bin of each visible row."""
        return [row["bin"] for row in self.rows(stream)]

    def view(self, stream: str | None = None) -> StreamView:
        """Return everything that is visible of a stream."""
        return self.run(view_from(self.public_reader(), self.name_of(stream)))

    def counts(self, stream: str | None = None) -> dict[int, int]:
        """Return the count of every visible bin that is not 0. Without noise, this is the exact number."""
        view = self.view(stream)
        if view.span.start == view.span.stop:
            return {}
        series = view.series("bin", view.span)
        values = np.rint(series.values).astype(int).tolist()
        return {span.start: value for span, value in zip(series.spans, values, strict=True) if value}

    def get(self, *paths: str, rules: AccessRules | None = None) -> list[httpx.Response]:
        """Return the API's answers. A path without a leading slash belongs to the first stream.

        The reader may scrape the keys of all streams.
        """
        return self.run(self.answers(paths, rules))

    def json(self, path: str) -> Any:
        """Return the body of a successful answer."""
        [answer] = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def answers(self, paths: Sequence[str], rules: AccessRules | None) -> list[httpx.Response]:
        names = frozenset(one.stream for one in self.strategies)
        rules = rules or AccessRules(scrapes=Scrapes(keys_of=names))
        app = create_app(self.public_reader(), rules, apart=Inside())
        await app.state.replicas.refresh()
        transport = httpx.ASGITransport(app=app)
        base = f"/v1/streams/{self.name_of(None)}/"
        urls = [path if path.startswith("/") else (base + path).rstrip("/") for path in paths]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.get(url) for url in urls]


async def view_of(store: MemoryStore, stream: str) -> StreamView:
    """Read everything that is visible in a store in memory."""
    return await view_from(store.reader(), stream)


async def view_from(reader: PublicReader, stream: str) -> StreamView:
    """Read everything that is visible."""
    state = await reader.public_state(stream)
    assert state is not None
    view = StreamView(state.strategy)
    await grow(view, reader, stream)
    return view


async def grow(view: StreamView, reader: PublicReader, stream: str) -> None:
    """Add what has become visible since."""
    state = await reader.public_state(stream)
    assert state is not None
    wanted = view.missing(state)
    blocks = [(want, await reader.tile_rows(stream, *want, width_of(state, want))) for want in wanted]
    view.extend(state, blocks)
