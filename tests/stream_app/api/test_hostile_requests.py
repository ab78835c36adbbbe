"""Requests that would keep the service busy are refused in one line before any work, or are cut short."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest

from stream_app.api.admission.access import AccessRules
from stream_app.api.admission.connections import BoundedProtocol, Entrance
from stream_app.api.admission.long_questions import Apart
from stream_app.api.answers import windows
from stream_app.api.app import listen
from stream_app.api.prometheus.promql import PromQLError, parse_selector
from stream_app.ports.access import Limits
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S, eventually_async
from tests.stream_app.api.client import Api, api_at, fill, released, served, with_api
from tests.stream_app.published import FIRST_BIN
from tests.stream_app.published_axes import PublishedAxes, PublishedWindows

pytestmark = pytest.mark.slow

START_S = FIRST_BIN * 3600
LIMITS = Limits(connections=20, connections_per_address=8, followers=3, idle_s=1.0, slow_s=PATIENCE_S)


@contextmanager
def quickly(seconds: float = 5.0) -> Iterator[None]:
    """Fail if the block takes longer than this. Without limits, these requests took seconds to minutes."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < seconds


@with_api([5] * 12)
async def test_many_selectors_are_refused_before_they_are_compared(api: Api) -> None:
    many = "&".join(f'match[]={{a=~"x{number}"}}' for number in range(300)).encode()
    for path in ("series", "labels"):
        with quickly():
            answer = await api.client.post(f"/api/v1/{path}", content=many)
        assert answer.status_code == 400
        assert answer.json()["error"] == (
            "match[]: 300 selectors; at most 16 are taken at once, ask several times"
        )


async def test_selector_is_compared_once_with_each_key() -> None:
    stream = PublishedAxes(MemoryStore(), carriers=tuple(f"k{n:04}" for n in range(300)), buckets=1)
    await stream.open()
    async with api_at(stream) as api:
        some = "&".join(f'match[]={{key=~"k{number:04}|x.*y.*z"}}' for number in range(16)).encode()
        with quickly():
            answer = await api.client.post("/api/v1/series", content=some)
        assert len(answer.json()["data"]) == 16 * 8
        found = await api.json("/api/v1/series", **{"match[]": 'private_counts_running{stream="delays"}'})
        assert len(found["data"]) == 1


def test_pattern_whose_groups_have_too_many_texts_is_refused() -> None:
    with pytest.raises(PromQLError, match="more than 16 groups"):
        parse_selector(f'{{stream=~"{"(a|)" * 25}"}}')
    for pattern in ("(d|e|b)(c|)", "((a|b))c", "(a|b)c"):
        assert parse_selector(f'{{stream=~"{pattern}"}}').matches({"stream": "bc"})


async def test_question_that_would_take_minutes_is_refused() -> None:
    stream = PublishedAxes(MemoryStore(), carriers=tuple(f"k{n:04}" for n in range(300)), buckets=1)
    await fill(stream, _cells(12, 301))
    async with api_at(stream) as api, _quick():
        asked = {"start": START_S, "end": START_S + 43_000, "step": 4, "stream": "delays"}
        query = 'private_counts_key_running{key=~"k0001|k0002|k0003"}'
        status, refused = await api.error("/api/v1/query_range", query=query, **asked)
        assert status == 400
        assert "would take about" in refused["error"]
        assert "ask for fewer series, a longer step or a shorter range" in refused["error"]


def _cells(bins: int, keys: int) -> Any:
    import numpy as np

    return np.ones((bins, keys, 1), np.int64)


@asynccontextmanager
async def _quick() -> AsyncIterator[None]:
    with quickly(5.0):
        yield


async def test_bands_exist_at_listed_confidences_only() -> None:
    stream = PublishedWindows(MemoryStore(), window_bins=4, epoch_bins=8, buckets=8)
    await fill(stream, _cells(4, 5).repeat(8, axis=2))
    async with api_at(stream) as api:
        for number in range(20):
            status, refused = await api.error("window", key="UA", confidence=0.9 + number / 1000 + 0.0001)
            assert (status, refused["parameter"]) == (422, "confidence")
            assert "0.5, 0.8, 0.9, 0.95" in refused["error"]
        await asyncio.gather(*(api.json("window", key="UA", confidence=0.8) for _ in range(5)))


@pytest.mark.parametrize(
    "asked",
    [
        {"end": "2013-01-01T07:30:00Z"},
        {"end": "2013-01-01T06:00:00Z"},
        {"end": "2100-01-01T00:00:00Z"},
        {"until": "2012-01-01T00:00:00Z"},
        {"until": "2013-01-01T09:00:00Z", "end": "2013-01-01T09:00:00Z"},
        {"key": "none"},
        {"q": 1.5},
    ],
    ids=str,
)
async def test_missing_window_is_refused_before_a_band_is_computed(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[Any] = []

    async def of(_apart: Apart, _function: object, *key: Any) -> None:
        computed.append(key)

    monkeypatch.setattr(Apart, "of", of)
    monkeypatch.setattr(windows, "known_errors", {})
    stream = PublishedWindows(MemoryStore(), window_bins=4, epoch_bins=8, buckets=8, epsilon="0.7")
    await fill(stream, _cells(8, 5).repeat(8, axis=2))
    async with api_at(stream) as api:
        known = {"key": "UA", "confidence": 0.8}
        status, refused = await api.error("window", **known | asked)
        assert (status, refused["parameter"]) == (400, next(iter(asked)))
        assert computed == []
        await api.json("window", **known)
        assert len(computed) == 1


async def test_one_turn_of_the_loop_refuses_few_connections() -> None:
    """Each refusal makes system calls, and a computing thread may take the interpreter between two calls."""

    listener = listen("127.0.0.1", 0)
    nobody = Limits(connections=0)
    entrance = Entrance(listener, nobody, frozenset(), BoundedProtocol, None)  # type: ignore[arg-type]
    connections = [socket.create_connection(listener.getsockname()) for _ in range(40)]
    entrance.open()
    turned_away: list[int] = []
    while sum(turned_away) < len(connections):
        await asyncio.sleep(0)
        answered, _, _ = select.select(connections, [], [], 0)
        turned_away.append(len(answered) - sum(turned_away))
    entrance.close()
    for connection in connections:
        assert connection.recv(100).startswith(b"HTTP/1.1 429 ")
        connection.close()
    assert max(turned_away) <= 8


@with_api([5] * 12)
async def test_cached_answers_do_not_depend_on_the_host_header(api: Api) -> None:
    app = api.app
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for host in ("localhost", "127.0.0.1:8088", "[::1]"):
            answer = await client.get("/v1/streams/departures/count", headers={"Host": host})
            assert answer.status_code == 200
        for host in ("a/b?c#d", "evil.example", "localhost.evil.example", "localhost@evil"):
            refused = await client.get("/v1/streams/departures/count", headers={"Host": host})
            assert refused.status_code == 421
            assert "add the name to api.hosts" in refused.json()["error"]
    kept = [key[:2] for key in api.replica.answers if isinstance(key, tuple)]
    assert kept == [("/v1/streams/departures/count", b"")]


@with_api([5] * 12)
async def test_abandoned_question_is_not_computed(
    api: Api,
) -> None:
    turns = api.app.state.long_turns
    async with turns.of("held"), turns.of("too"):
        gone = asyncio.create_task(api.get("series"))
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    assert api.replica.answers == {}
    assert len((await api.json("series"))["value"]) == 12


# -- over sockets ------------------------------------------------------------------------------------


@asynccontextmanager
async def loopback(limits: Limits = LIMITS) -> AsyncIterator[int]:
    """Serve a stream on loopback and yield the port."""
    stream = await released([5] * 12)
    async with served(stream.store.reader(), AccessRules(limits=limits)) as client:
        yield client.base_url.port or 0


GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
POST = b"POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\n"


async def said(port: int, request: bytes, then: bytes = b"") -> bytes:
    """Send bytes, then more bytes a little later. Return all that was received until the connection ends."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        if then:
            await asyncio.sleep(0.1)
            writer.write(then)
        answer = b""
        with suppress(ConnectionError):  # the service closed the connection before it had read everything
            while part := await reader.read(65_536):
                answer += part
        writer.close()
        return answer


async def test_request_that_does_not_arrive_in_time_is_ended() -> None:
    async with loopback(replace(LIMITS, slow_s=0.5)) as port:
        slow = [
            b"",
            b"GET /v1/streams HT",
            b"GET /v1/streams HTTP/1.1\r\nHost: localhost\r\nX: ",
            POST + b"Content-Length: 100\r\n\r\nquery",
        ]
        answers = await asyncio.gather(*(said(port, one) for one in slow))
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert b"did not arrive within 0.5 s" in answer
        # A byte now and then does not keep the connection open.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        reading = asyncio.create_task(reader.read())
        while not reading.done():
            writer.write(b"X: a\r\n")
            await asyncio.sleep(0.1)
        await asyncio.gather(reading, return_exceptions=True)
        writer.close()

        # A connection that stays silent after an answer is closed too.
        async def silent_afterwards() -> bool:
            answer = await said(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return answer.startswith(b"HTTP/1.1 200")  # or the request took half a second to arrive

        await eventually_async(silent_afterwards, "an answer")


async def test_connections_per_address_are_limited() -> None:
    async with loopback(Limits(connections=20, connections_per_address=8, slow_s=PATIENCE_S)) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        await asyncio.sleep(0.1)
        answer = await said(port, GET % b"/healthz")
        assert answer.startswith(b"HTTP/1.1 429")
        assert b"8 connections of yours are open, the limit (api.limits.connections_per_address)" in answer
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            writer.write(GET % b"/healthz")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
        for _, one in held:
            one.close()
        async with asyncio.timeout(PATIENCE_S):  # the server must notice it
            while not (await said(port, GET % b"/healthz")).startswith(b"HTTP/1.1 200"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def test_followers_per_reader_are_limited() -> None:
    async with loopback() as port:
        events = GET % b"/v1/streams/departures/events"
        held = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(events)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            held.append(writer)
        for path in (b"/v1/streams/departures/events", b"/v1/overview/events"):
            answer = await said(port, GET % path)
            assert answer.startswith(b"HTTP/1.1 429")
            assert b"3 streams of events of yours are open, the limit (api.limits.followers)" in answer
        held[0].close()
        async with asyncio.timeout(PATIENCE_S):  # the server must notice it
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                held.append(writer)
                writer.write(events)
                if (await reader.readline()).startswith(b"HTTP/1.1 200"):
                    break
                await asyncio.sleep(0.1)
        for one in held:
            one.close()


async def test_body_without_a_valid_length_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    chunked = b"Transfer-Encoding: chunked\r\n"
    behind = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    with caplog.at_level(logging.WARNING):
        async with loopback() as port:
            for head in (chunked, b"Content-Length: 5\r\n" + chunked, chunked + b"Content-Length: 5\r\n"):
                answer = await said(port, POST + head + b"\r\n0\r\n\r\n" + behind)
                assert answer.count(b"HTTP/1.1 ") == 1, "the connection was kept"
                assert answer.startswith(b"HTTP/1.1 400")
                assert b"send the body with its Content-Length" in answer
            heads = b"".join(b"X%d: a\r\n" % number for number in range(20_000))
            for large in (b"X: " + b"a" * 200_000 + b"\r\n", heads):
                with quickly():
                    answer = await said(port, POST + large + b"\r\n")
                assert answer.startswith(b"HTTP/1.1 400") or answer == b""
    assert "Invalid HTTP request" not in caplog.text


async def test_client_that_disconnects_while_posting_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        async with loopback() as port:
            for length in (b"100", b"16000"):
                with socket.create_connection(("127.0.0.1", port)) as leaving:
                    leaving.sendall(POST + b"Content-Length: " + length + b"\r\n\r\nquery")
                    await asyncio.sleep(0.1)
            await asyncio.sleep(0.3)
            assert (await said(port, GET % b"/healthz")).startswith(b"HTTP/1.1 200")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_connection_of_a_reader_that_receives_nothing_is_closed() -> None:
    async with loopback(Limits(connections_per_address=4, slow_s=0.5)) as port:
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        lazy.connect(("127.0.0.1", port))
        lazy.setblocking(False)
        page = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        lazy.send(page * 150)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while loop.time() < deadline:
            try:
                lazy.send(page)
            except BlockingIOError:
                pass
            except (ConnectionResetError, BrokenPipeError):
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("the connection is still open")
        lazy.close()
