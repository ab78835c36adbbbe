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
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from stream_app.addresses import once_free
from stream_app.ports import OperatorError
from stream_app.ports.access import digest_of

_LOOK_S = 0.05  # seconds between checks for the end of the service and for slow requests
_MOST_REQUESTS = 8  # at once, each in a thread; further connections are closed at once
_REQUEST_S = 5.0  # for a request to arrive and its answer to be taken, then its connection ends

_BEAT_S = 1.0  # seconds between two signs of life of the service's event loop
STUCK_S = 60.0  # without a sign of life for so long, the service is stuck: a supervisor should restart it

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Registered(Protocol):
    """The metrics of a process."""

    registry: CollectorRegistry


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

    ``/healthz`` needs no token and answers 200 while the event loop moves, otherwise 503.

    Guarantee: connections use at most ``_MOST_REQUESTS`` threads, none much longer than ``_REQUEST_S``.
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
    guarded = alive.beside(guarded)
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
    """Whether the event loop of this process still moves. It reveals nothing about what is counted.

    Args: now_s, a clock in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s, self._last_s = now_s, now_s()

    async def beat(self) -> None:
        """Give signs of life until cancelled."""
        while True:
            self._last_s = self._now_s()
            await asyncio.sleep(_BEAT_S)

    def beside(self, answer: Wsgi) -> Wsgi:
        """Return an application that answers ``/healthz`` itself, and everything else by ``answer``."""

        def application(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            if request.get("PATH_INFO") != "/healthz":
                return answer(request, start)
            still_s = self._now_s() - self._last_s
            stuck = still_s > STUCK_S
            status = "503 Service Unavailable" if stuck else "200 OK"
            start(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [f"stuck for {still_s:.0f} s\n".encode() if stuck else b"alive\n"]

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
        self._since: dict[socket.socket, float] = {}  # when each open connection was accepted
        # Request threads remove connections, the listener shuts down slow ones; both use ``_since``.
        self._lock = threading.Lock()
        super().__init__(*args)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether a new connection is within the limit; otherwise it is closed without a thread."""
        with self._lock:
            if len(self._since) >= _MOST_REQUESTS:
                return False
            self._since[request] = time.monotonic()
            return True

    def service_actions(self) -> None:
        """Shut down connections whose time is over, so that their threads end."""
        now = time.monotonic()
        with self._lock:
            for connection, since in self._since.items():
                if now - since > _REQUEST_S:
                    with suppress(OSError):  # the other side has gone
                        connection.shutdown(socket.SHUT_RDWR)

    def close_request(self, request: Any) -> None:
        """Close a connection and free its place."""
        with self._lock:
            self._since.pop(request, None)
            super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, except for clients that disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Version6(_Bounded):
    address_family = socket.AF_INET6


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log no request."""


def _listen(host: str, port: int, application: Wsgi) -> WSGIServer:
    kind = _Version6 if ":" in host else _Bounded
    return make_server(host, port, application, kind, _Silent)
