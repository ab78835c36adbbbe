"""The operator's endpoint ends silent and slow connections, and limits the number of open ones."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import httpx
import pytest

from deploy.ports import free_port
from stream_app.monitoring import listener
from stream_app.monitoring.metrics import Metrics
from tests.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def against(attack: Callable[[int], None], token: str | None = None) -> None:
    """Serve metrics, and run a blocking attack on the endpoint's port."""
    port = free_port()

    async def run() -> None:
        async with listener.serving(Metrics(), "127.0.0.1", port, token):
            await asyncio.to_thread(attack, port)

    asyncio.run(run())


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def answer(port: int) -> bytes:
    """Return the whole answer to a valid request; empty bytes if the connection was closed at once."""
    with connected(port) as asking:
        try:
            asking.sendall(REQUEST)
            return b"".join(iter(lambda: asking.recv(65_536), b""))
        except ConnectionError:
            return b""


def ended(connection: socket.socket) -> bool:
    """Wait until the other side closes a connection."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def test_silent_connections_use_few_threads_and_give_way_to_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "GIVES_WAY_S", PATIENCE_S)

    def attack(port: int) -> None:
        before = threading.active_count()
        with ExitStack() as stack:
            silent = [stack.enter_context(connected(port)) for _ in range(14)]
            # The places are taken, and would be for five seconds: each request takes the place of the oldest.
            for one in silent[:6]:
                assert ended(one), "the oldest silent connections are ended"
            assert b"stream_app" in answer(port)
            assert ended(silent[6])
            assert threading.active_count() - before <= listener.MOST_REQUESTS

    against(attack)


def test_silent_connections_are_ended_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_S", 0.5)

    def attack(port: int) -> None:
        before = threading.active_count()
        with connected(port) as silent:
            assert ended(silent)
        _wait_until(lambda: threading.active_count() <= before)

    against(attack)


def test_a_request_that_is_answered_gives_way_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    large = [b"x" * 50_000_000]
    monkeypatch.setattr(listener, "make_wsgi_app", lambda _: lambda _, start: (start("200 OK", []), large)[1])

    def attack(port: int) -> None:
        with ExitStack() as stack:
            busy = [stack.enter_context(connected(port)) for _ in range(listener.MOST_REQUESTS)]
            for one in busy:
                one.sendall(REQUEST)
                assert one.recv(1)
            assert ended(stack.enter_context(connected(port))), "all threads answer, so it is closed"
            assert len(b"".join(iter(lambda: busy[0].recv(1 << 20), b""))) > len(large[0])

    monkeypatch.setattr(listener, "REQUEST_S", PATIENCE_S)
    against(attack)


async def test_health_needs_no_token_and_says_when_the_event_loop_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(listener, "SignsOfLife", partial(listener.SignsOfLife, lambda: now_s[0]))
    port = free_port()

    def asked(port: int) -> tuple[int, bytes]:
        reply = httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_S)
        assert httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S).status_code == 401
        return reply.status_code, reply.content

    async with listener.serving(Metrics(), "127.0.0.1", port, "secret"):
        assert await asyncio.to_thread(asked, port) == (200, b"alive\n")
        # The loop stands still while this thread of its own asks.
        now_s[0] += listener.STUCK_S + 1
        assert asked(port) == (503, b"stuck for 61 s\n")
        await asyncio.sleep(2 * listener.BEAT_S)
        assert await asyncio.to_thread(asked, port) == (200, b"alive\n")


def test_slowly_arriving_request_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_S", 0.5)

    def attack(port: int) -> None:
        with connected(port) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            _wait_until(lambda: _cannot_send(slow, b"X: a\r\n"))

    against(attack, token="0123456789abcdef")


def test_answer_that_nobody_reads_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_S", 0.5)
    large = [b"x" * 50_000_000]
    monkeypatch.setattr(listener, "make_wsgi_app", lambda _: lambda _, start: (start("200 OK", []), large)[1])

    def attack(port: int) -> None:
        before = threading.active_count()
        with connected(port) as lazy:
            lazy.sendall(REQUEST)
            _wait_until(lambda: threading.active_count() > before)
            _wait_until(lambda: threading.active_count() <= before)

    against(attack)


def test_disconnecting_clients_cause_no_output(capfd: pytest.CaptureFixture[str]) -> None:
    def attack(port: int) -> None:
        for sent in (b"", b"GET /met", REQUEST):
            with connected(port) as leaving:
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # by a reset
                leaving.sendall(sent)
                time.sleep(0.1)
        assert b"stream_app" in answer(port)

    against(attack)
    assert capfd.readouterr().err == ""


def _cannot_send(connection: socket.socket, line: bytes) -> bool:
    try:
        connection.sendall(line)
    except ConnectionError:
        return True
    return False


def _wait_until(true: Callable[[], bool]) -> None:
    eventually(true, "it holds", 0.05)
