"""The operator sees which routes are asked for; neither a reader's words nor readers see these numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from prometheus_client import generate_latest

from stream_app.api.app import listen, serve_on
from stream_app.monitoring.reading import ReadingMetrics
from stream_app.ports.reader import PublicReader
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S, eventually_async
from tests.stream_app.published import Published

SENTINEL = "Ada-Lovelace"


async def test_answers_are_counted_by_route_and_status_without_any_word_of_a_reader() -> None:
    metrics = ReadingMetrics()

    def shown(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"stream_app_{name}", labels)

    stream = Published(MemoryStore())
    await stream.open()
    await stream.close([5] * 10)

    @asynccontextmanager
    async def reader() -> AsyncIterator[PublicReader]:
        yield stream.store.reader()

    with listen("127.0.0.1", 0) as listener:
        assert metrics.waiting.now == "redis"
        serving = asyncio.create_task(serve_on(listener, reader, meter=metrics))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as client:
            for path in (
                "/v1/streams/departures/count",
                f"/v1/streams/{SENTINEL}/count",
                f"/v1/streams/departures/count?{SENTINEL}=1",
                f"/{SENTINEL}",
                "/dashboard/stream.js",
                f"/dashboard/{SENTINEL}",
            ):
                await client.request("GET", path, headers={"User-Agent": SENTINEL})
            await client.request(SENTINEL.upper(), "/v1/streams")
            await client.get("/v1/streams", headers={"Host": f"{SENTINEL}.example.org"})
            async with client.stream("GET", "/v1/streams/departures/events"):
                assert shown("followers") == 1.0

            async def has_left() -> bool:
                return shown("followers") == 0.0

            await eventually_async(has_left, "the follower has left")
            public = (await client.get("/metrics")).text
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert "private_counts_" in public
    assert "stream_app_" not in public
    count, total = "/v1/streams/{stream}/count", "api_answers_total"
    for status in ("200", "404", "422"):
        assert shown(total, route=count, status=status) == 1.0, status
    assert shown(total, route="other", status="404") == 1.0
    assert shown(total, route="other", status="421") == 1.0
    assert shown(total, route="/dashboard/{file}", status="200") == 1.0
    assert shown(total, route="/dashboard/{file}", status="404") == 1.0
    assert shown("api_seconds_count", route=count) == 3.0
    assert metrics.waiting.now is None
    assert SENTINEL.lower() not in generate_latest(metrics.registry).decode().lower()
