"""The HTTP server of the listener, with the API's limits on connections."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from stream_app.api.admission.connections import BoundedProtocol, Entrance, run_server
from stream_app.listening import following
from stream_app.ports import OperatorError
from stream_app.ports.access import Limits

_GRACE_S = 2  # time for requests in progress when the server stops
_SECTION = "ingest"  # of the configuration, for messages


@dataclass(frozen=True, slots=True)
class ServerRules:
    """How the server treats connections.

    Args:
        origins: of pages that may send from a browser.
        tls: files of the certificate and its key; None for plain HTTP.
        refused: called with the status of each request or connection that the application does not see.
    """

    limits: Limits
    origins: tuple[str, ...] = ()
    tls: tuple[Path, Path] | None = None
    refused: Callable[[HTTPStatus], None] = lambda _: None


async def serve(listener: socket.socket, app: ASGIApp, rules: ServerRules) -> None:
    """Serve on a listening socket until cancelled; then end the requests in progress first.

    Raises: OperatorError if the certificate cannot be used.
    """
    if rules.origins:  # outermost, because a browser's preflight request has no key
        headers = ["Authorization", "Content-Type", "Idempotency-Key", "X-Umami-Cache"]
        app = CORSMiddleware(app, allow_origins=rules.origins, allow_methods=["POST"], allow_headers=headers)
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_level="error",  # no line per malformed request: anybody could fill the disk
        access_log=False,
        timeout_keep_alive=rules.limits.idle_s,  # type: ignore[arg-type]  # seconds, whole or not
        timeout_graceful_shutdown=_GRACE_S,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=rules.tls[0] if rules.tls else None,
        ssl_keyfile=rules.tls[1] if rules.tls else None,
    )
    try:
        config.load()
    except OSError as failure:  # ssl.SSLError is one
        raise OperatorError(f"ingest.tls: the certificate or its key cannot be used ({failure})") from None
    server = _Server(config, listener, rules)
    async with following(config.ssl, rules.tls, "ingest.tls"):
        await run_server(server)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, listener: socket.socket, rules: ServerRules) -> None:
        super().__init__(config)
        self._listener, self._rules = listener, rules
        self._entrance: Entrance | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        limits, refused = self._rules.limits, self._rules.refused
        own = {
            "slow_s": limits.slow_s,
            "section": _SECTION,
            "note_refusal": lambda _, status: refused(status),
        }
        protocol = type("Protocol", (BoundedProtocol,), own)
        self._entrance = Entrance(
            self._listener,
            limits,
            frozenset(),
            lambda: protocol(self.config, self.server_state, self.lifespan.state),
            self.config.ssl,
            section=_SECTION,
            refused=refused,
        )
        self._entrance.open()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process, which cancels this server."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._entrance is not None:
            self._entrance.close()
        await super().shutdown(sockets)
