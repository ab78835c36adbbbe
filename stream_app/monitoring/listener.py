"""The operator's endpoint: a separate HTTP listener for health, and for metrics of exact events. SECRET."""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from stream_app.listening import once_free
from stream_app.monitoring.registry import Registered, Waiting
from stream_app.ports import OperatorError
from stream_app.ports.access import digest_of

_LOOK_S = 0.05  # seconds between checks for the end of the service and for slow requests
MOST_REQUESTS = 8  # at once, each in a thread
REQUEST_S = 5.0  # for a request to arrive and its answer to be taken, then its connection ends
GIVES_WAY_S = 1.0  # for the thread of a connection without a request to end

BEAT_S = 1.0  # seconds between two signs of life of the service's event loop
STUCK_S = 60.0  # without a sign of life for so long, the service is stuck: a supervisor should restart it

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@asynccontextmanager
async def serving(
    metrics: Registered,
    host: str,
    port: int,
    token: str | None = None,
    *,
    token_digest: str | None = None,
    key: str = "operator.port",
) -> AsyncIterator[None]:
    """Serve metrics at ``http://host:port/metrics`` in a separate thread, during the block.

    Two paths need no token. ``/healthz`` answers 200 while the event loop moves, otherwise 503. ``/readyz``
    answers 200 when the process does its work; until then 503, and for what it waits.

    Guarantee: connections use at most ``MOST_REQUESTS`` threads, none much longer than ``REQUEST_S``.
        Connections that send no request keep nobody out.
    Args:
        token: which a request must carry (``Authorization: Bearer TOKEN``).
        token_digest: SHA-256 of that header, instead of the token. Without both everybody may read.
        key: of the configuration, which sets the port; for messages.
    Raises: OperatorError if it cannot listen on the address.
    """
    answer = make_wsgi_app(metrics.registry)
    if token is not None:
        token_digest = digest_of(f"Bearer {token}")
    guarded = answer if token_digest is None else _only_with(token_digest, answer)
    alive = SignsOfLife()
    guarded = _with_health(alive, metrics.waiting, guarded)
    try:
        server = await once_free(lambda: _listen(host, port, guarded))
    except OSError as failure:
        raise OperatorError(
            f"{key}: {host}:{port} cannot be served ({os.strerror(failure.errno or 0)}); free it or "
            "choose another: every process on a machine needs its own"
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(_LOOK_S,), daemon=True)
    thread.start()
    beating = asyncio.create_task(alive.beat())
    try:
        yield
    finally:
        beating.cancel()
        server.shutdown()
        server.server_close()
        thread.join()


class SignsOfLife:
    """Whether the event loop of this process still moves. This reveals nothing about events.

    Args: now_s, a clock in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s, self._last_s = now_s, now_s()

    async def beat(self) -> None:
        """Give signs of life until cancelled."""
        while True:
            self._last_s = self._now_s()
            await asyncio.sleep(BEAT_S)

    @property
    def still_s(self) -> float:
        """Seconds since the last sign of life."""
        return self._now_s() - self._last_s


def _with_health(alive: SignsOfLife, waiting: Waiting, answer: Wsgi) -> Wsgi:
    """Return an application that answers about health itself, and everything else by ``answer``."""

    def application(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, still_s, service = request.get("PATH_INFO"), alive.still_s, waiting.now
        if path not in ("/healthz", "/readyz"):
            return answer(request, start)
        bad, said = False, "alive" if path == "/healthz" else "ready"
        if still_s > STUCK_S:
            bad, said = True, f"stuck for {still_s:.0f} s"
        elif path == "/readyz" and service is not None:
            detail = str(waiting.detail)
            bad, said = True, f"waits for {service}" + (f": {detail}" if detail else "")
        elif path == "/readyz" and waiting.lacking:
            said = f"{said}; {waiting.lacking}"
        status = "503 Service Unavailable" if bad else "200 OK"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{said}\n".encode()]

    return application


def _only_with(expected: str, answer: Wsgi) -> Wsgi:
    """Return an application that requires the token; every wrong token takes the same time to refuse."""

    def guarded(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if hmac.compare_digest(digest_of(request.get("HTTP_AUTHORIZATION", "")), expected):
            return answer(request, start)
        headers = [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain; charset=utf-8")]
        start("401 Unauthorized", headers)
        return [b"operator.token is needed: send Authorization: Bearer TOKEN\n"]

    return guarded


class _Bounded(ThreadingWSGIServer):
    """A server with limits on concurrent requests and their duration, applied before the token is checked."""

    def __init__(self, *args: Any) -> None:
        self._since: dict[socket.socket, float] = {}  # when each open connection was accepted, oldest first
        self._asked: set[socket.socket] = set()  # open connections whose request has arrived
        # Request threads change both, and so does the listener.
        self._changed = threading.Condition()
        super().__init__(*args)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether a new connection gets a thread; otherwise it is closed.

        If all threads are taken, the oldest connection that has sent no request gives way.
        """
        with self._changed:
            if len(self._since) >= MOST_REQUESTS:
                idle = next((one for one in self._since if one not in self._asked), None)
                if idle is None:
                    return False
                _shut_down(idle)
                if not self._changed.wait_for(lambda: len(self._since) < MOST_REQUESTS, GIVES_WAY_S):
                    return False
            self._since[request] = time.monotonic()
            return True

    def has_asked(self, connection: socket.socket) -> None:
        """Note that the request of a connection has arrived."""
        with self._changed:
            if connection in self._since:
                self._asked.add(connection)

    def service_actions(self) -> None:
        """Shut down connections whose time is over, so that their threads end."""
        now = time.monotonic()
        with self._changed:
            for connection, since in self._since.items():
                if now - since > REQUEST_S:
                    _shut_down(connection)

    def close_request(self, request: Any) -> None:
        """Close a connection and free its place."""
        with self._changed:
            self._since.pop(request, None)
            self._asked.discard(request)
            super().close_request(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, except for clients that disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Version6(_Bounded):
    address_family = socket.AF_INET6


def _shut_down(connection: socket.socket) -> None:
    """Let the thread that serves a connection end."""
    with suppress(OSError):  # the other side has gone
        connection.shutdown(socket.SHUT_RDWR)


class _Silent(WSGIRequestHandler):
    def parse_request(self) -> bool:
        """Read the rest of a request's head."""
        arrived = super().parse_request()
        if arrived and isinstance(self.server, _Bounded):
            self.server.has_asked(self.connection)
        return arrived

    def log_message(self, *_: Any) -> None:
        """Log no request."""


def _listen(host: str, port: int, application: Wsgi) -> WSGIServer:
    kind = _Version6 if ":" in host else _Bounded
    return make_server(host, port, application, kind, _Silent)
