"""The HTTP server of the listener, with the API's limits on connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from stream_app.api.admission.connections import BoundedProtocol, Entrance
from stream_app.ports.access import Limits

_GRACE_S = 3  # time for requests in progress when the server stops


async def serve(listener: socket.socket, app: ASGIApp, origins: tuple[str, ...], limits: Limits) -> None:
    """Serve on a listening socket until cancelled; then end the requests in progress first."""
    if origins:  # outermost, because a browser's preflight request has no key
        headers = ["Authorization", "Content-Type", "Idempotency-Key"]
        app = CORSMiddleware(app, allow_origins=origins, allow_methods=["POST"], allow_headers=headers)
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_level="error",  # no line per malformed request: anybody could fill the disk
        access_log=False,
        timeout_keep_alive=limits.idle_s,  # type: ignore[arg-type]  # seconds, whole or not
        timeout_graceful_shutdown=_GRACE_S,
        server_header=False,
        proxy_headers=False,
    )
    config.load()
    server = _Server(config, listener, limits)
    serving = asyncio.create_task(server.serve(sockets=[]), name="serve")
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, listener: socket.socket, limits: Limits) -> None:
        super().__init__(config)
        self._listener, self._limits = listener, limits
        self._entrance: Entrance | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and accept connections."""
        await super().startup(sockets)
        protocol = type("Protocol", (BoundedProtocol,), {"slow_s": self._limits.slow_s})
        self._entrance = Entrance(
            self._listener,
            self._limits,
            frozenset(),
            lambda: protocol(self.config, self.server_state, self.lifespan.state),
            None,
        )
        self._entrance.open()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process, which cancels this server."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, then end the connections."""
        if self._entrance is not None:
            self._entrance.close()
        await super().shutdown(sockets)
