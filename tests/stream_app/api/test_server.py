"""The server on a real socket: it sends releases, a signal ends it, its pages name no other host, and the
operator sees which routes are asked for."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest

from deploy.ports import free_port
from stream_app.api.app import create_app, listen
from stream_app.api.pages import DASHBOARD
from stream_app.monitoring.api_metrics import ReadingMetrics
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S, eventually_async
from tests.stream_app.api.client import SHARED, Api, released, served, with_api
from tests.stream_app.api.test_followers import events_of

pytestmark = pytest.mark.slow


async def test_no_stream_is_unknown_only_because_the_store_is_slow() -> None:
    stream = await released([5] * 10)
    inner = stream.store.reader()

    class Slow:
        async def streams(self) -> list[str]:
            await asyncio.sleep(0.5)
            return list(await inner.streams())

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

    # No request comes before the first one to be answered.
    async with served(Slow(), is_awaited=False) as client:
        assert (await client.get("/v1/streams/departures/count")).status_code == 200


async def test_second_process_starts_before_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()
    monkeypatch.setattr(SHARED, "begun", begun.set)
    async with served(MemoryStore().reader(), is_awaited=False), asyncio.timeout(PATIENCE_S):
        await begun.wait()


async def test_server_serves_where_no_second_process_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun() -> None:
        raise BlockingIOError

    monkeypatch.setattr(SHARED, "begun", begun)
    async with served(MemoryStore().reader()) as client:
        assert (await client.get("/v1/streams")).status_code == 200


async def follow_until(
    client: httpx.AsyncClient, events: int, **options: Any
) -> tuple[httpx.Response, list[tuple[int, bytes]]]:
    async with client.stream("GET", "/v1/streams/departures/events", **options) as response:
        chunks: list[bytes] = []
        async for chunk in response.aiter_raw():
            chunks.append(chunk)
            if len(events_of(chunks)) >= events:
                break
        return response, events_of(chunks)


async def test_follower_receives_and_resumes_over_a_socket() -> None:
    stream = await released([5] * 10)
    async with served(stream.store.reader()) as client:
        response, events = await follow_until(client, 10, params={"after": 0})
        assert events == await stream.store.reader().rows("departures", 0, 10)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["cache-control"] == "no-store"
        # The browser's header wins over the page's parameter.
        _, events = await follow_until(client, 3, params={"after": 0}, headers={"Last-Event-ID": "7"})
        assert [seq for seq, _ in events] == [8, 9, 10]
        # Without either, a follower starts at the last release.
        _, events = await follow_until(client, 1)
        assert [seq for seq, _ in events] == [10]
        live = asyncio.create_task(follow_until(client, 2, headers={"Last-Event-ID": "10"}))
        await stream.close([1, 2])
        assert [seq for seq, _ in (await live)[1]] == [11, 12]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_release_is_written_to_a_waiting_follower_as_its_version_of_http_frames_it(
    version: str,
) -> None:
    stream = await released([5])
    async with served(stream.store.reader()) as client, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        question = f"GET /v1/streams/departures/events HTTP/{version}\r\nHost: localhost\r\n\r\n"
        writer.write(question.encode())
        await reader.readuntil(b"id: 1\n")
        await asyncio.sleep(0.1)  # until it waits
        await stream.close([7])
        before, row = await reader.readuntil(b"id: 2\n"), await reader.readuntil(b"\n\n")
        writer.close()
    framed = re.search(rb"\r\n([0-9a-f]+)\r\n(event: release\nid: 2\n)$", before)
    assert (framed is not None) == (version == "1.1")
    assert framed is None or int(framed[1], 16) == len(framed[2] + row)


def test_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", taken.getsockname()[1])


SERVE = """
import asyncio, sys
from contextlib import asynccontextmanager
from stream_app.api.app import listen, serve_on
from tests.stream_app.api.client import released

@asynccontextmanager
async def reader():
    stream = await released([5] * 3)
    yield stream.store.reader()
    print("reader closed", flush=True)

asyncio.run(serve_on(listen("127.0.0.1", int(sys.argv[1])), reader))
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_with_open_followers(end: signal.Signals) -> None:
    port = free_port()
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port)],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
                _await_ready(client)
                with client.stream("GET", "/v1/streams/departures/events") as response:
                    assert b"event: release" in next(chunk for chunk in response.iter_raw() if b"id" in chunk)
                    process.send_signal(end)
                    assert process.wait(timeout=PATIENCE_S) == 0
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read() == "reader closed\n"
            assert process.stderr.read() == ""
        finally:
            process.kill()


def _await_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("the server did not become ready")


NEED_THE_STORE = (
    "/metrics",
    *("/v1/streams", "/v1/streams/departures", "/v1/overview", "/v1/overview/events", "/v1/alerts"),
    *("/v1/streams/departures/keys", "/v1/boards", "/api/v1/query?query=up"),
)


async def test_ready_only_after_the_store_was_read() -> None:
    app = create_app(MemoryStore().reader())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost"
    ) as client:
        response = await client.get("/readyz")
        assert response.status_code == 503
        assert "has not read Redis yet: start Redis" in response.json()["error"]
        assert (await client.get("/healthz")).json() == {"status": "alive"}
        for path in NEED_THE_STORE:
            refused = await client.get(path)
            assert (refused.status_code, refused.json()) == (503, response.json()), path
            assert refused.headers["Retry-After"] == "1"
        await app.state.replicas.refresh()
        assert (await client.get("/v1/streams")).json() == {"streams": []}
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        assert await age_of_store(client) < 60
        # An outage of the store is no outage of answers; their age is a metric.
        app.state.replicas.fresh_at -= 3_600
        assert (await client.get("/readyz")).status_code == 200
        assert 3_600 <= await age_of_store(client) < 3_660


async def age_of_store(client: httpx.AsyncClient) -> float:
    text = (await client.get("/metrics")).text
    (age,) = re.findall(r"^private_counts_store_age_seconds (\S+)$", text, re.MULTILINE)
    return float(age)


@with_api([1, 2, 3])
async def test_pages_have_headers_that_forbid_other_hosts(api: Api) -> None:
    for path in ("/", "/docs", "/dashboard/stream.js", "/v1/streams", "/nowhere"):
        response = await api.get(path)
        assert response.headers["content-security-policy"].startswith("default-src 'self'")
        assert response.headers["x-content-type-options"] == "nosniff"
    assert (await api.get("/dashboard/../app.py")).status_code == 404
    assert (await api.get("/dashboard/%2e%2e/app.py")).status_code == 404


def test_no_file_of_the_page_names_another_host() -> None:
    files = [path for path in DASHBOARD.rglob("*") if path.suffix in {".html", ".css", ".js"}]
    assert len(files) > 8
    for path in files:
        text = path.read_text()
        if "vendor" in path.parts:
            text = text.removeprefix("/*! https://github.com/leeoniya/uPlot (v1.6.32) */")
        assert re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text) == [], path.name


@pytest.mark.parametrize("page", ["stream", "board", "docs", "embed"])
def test_a_page_names_every_module_that_it_loads(page: str) -> None:
    """A browser then loads all of them at once, and not one after the other."""
    begin = DASHBOARD / f"{'board' if page == 'embed' else page}.js"
    wanted, open_ends = {begin}, [begin]
    while open_ends:
        module = open_ends.pop()
        for path in re.findall(r'^import .*?"(\.[^"]+)";', module.read_text(), re.M):
            found = (module.parent / path).resolve()
            open_ends += [] if found in wanted else [found]
            wanted.add(found)
    text = (DASHBOARD / f"{page}.html").read_text()
    named = re.findall(r'(?:modulepreload" href|script src)="/dashboard/((?!vendor|theme)[^"]+)"', text)
    assert sorted(named) == sorted(str(path.relative_to(DASHBOARD)) for path in wanted)


@with_api([1, 2, 3])
async def test_openapi_page_covers_every_address(api: Api) -> None:
    spec = await api.json("/openapi.json")
    addresses = {
        "/v1/alerts",
        "/v1/boards",
        "/v1/boards/{board}",
        "/v1/changes",
        "/v1/overview",
        "/v1/overview/events",
        "/v1/streams",
        "/v1/streams/{stream}",
        *(f"/v1/streams/{{stream}}/{name}" for name in ("count", "series", "cdf", "quantile")),
        *(f"/v1/streams/{{stream}}/{name}" for name in ("sum", "mean", "sum/series", "mean/series")),
        *(f"/v1/streams/{{stream}}/{name}" for name in ("sum/keys", "mean/keys")),
        *(f"/v1/streams/{{stream}}/{name}" for name in ("nodes", "privacy", "events", "window")),
        *(f"/v1/streams/{{stream}}/{name}" for name in ("keys", "keys/list", "heat", "quantiles", "preview")),
        *(f"/v1/streams/{{stream}}/{name}" for name in ("marks", "transitions", "cdfs")),
        "/healthz",
        "/readyz",
        "/metrics",
    }
    assert set(spec["paths"]) == addresses
    for path, methods in spec["paths"].items():
        assert set(methods) == {"get"}
        assert methods["get"]["description"], path
    assert "docs.js" in (await api.get("/docs")).text


def test_answer_is_sent_without_waiting_for_an_acknowledgement() -> None:
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


SENTINEL = "Ada-Lovelace"


async def test_answers_are_counted_by_route_and_status_without_any_word_of_a_reader() -> None:
    metrics = ReadingMetrics()

    def shown(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"stream_app_{name}", labels)

    stream = await released([5] * 10)

    async def has_left() -> bool:
        return shown("followers") == 0.0

    assert metrics.waiting.now == "redis"
    async with served(stream.store.reader(), meter=metrics) as client:
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
        await eventually_async(has_left, "the follower has left")
        public = (await client.get("/metrics")).text
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
