"""The web application and its server: it serves pages and answers from a reader of released values."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware

from stream_app.api import boards, errors, pages, routes, stream_routes
from stream_app.api.admission.access import Access, AccessRules, sees_panels_only
from stream_app.api.admission.connections import BoundedProtocol, Entrance, run_server
from stream_app.api.admission.long_questions import Apart
from stream_app.api.admission.turns import LongTurns, Places
from stream_app.api.metering import Meter, Metered
from stream_app.api.overview import Glances, RuleReadings
from stream_app.api.plain_questions import PlainQuestions
from stream_app.api.prometheus import routes as prometheus
from stream_app.api.replicas import Replicas
from stream_app.core.answers.labels import NO_LABELS, AllLabels
from stream_app.listening import following
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader

ReaderFactory = Callable[[], AbstractAsyncContextManager[PublicReader]]

EVERYBODY = AccessRules()
PUBLISH_EVERY_US = 1_000_000
_GRACE_S = 3  # time for requests in progress when the server stops
_FIRST_LOOK_S = 5.0  # a store that answers no sooner is read while readers are answered
_ABOUT = """\
Differentially private live counts. Every value here is computed from released, noisy values.

Times are RFC 3339 with an offset or seconds since 1970, and must be edges of bins. Ranges are half-open.
Answers carry `value`, `stderr`, `interval`, `confidence`, `private` and `released_until`; `ETag` is
epoch:seq. Errors are JSON with one line that says what, where and the remedy.
"""

# The groups of /openapi.json.
_GROUPS = (
    ("Streams", "What there is: the streams, what each counts, what it promises, its released nodes."),
    ("Counts", "How many events: over a range of time, per bin, per key."),
    ("Amounts", "Sums and means, of streams that declare `sum`."),
    ("Values", "Distributions and quantiles, of streams that declare `value`."),
    ("Alerts", "The rules, their states and their changes."),
    ("Boards", "Pages of panels of several streams, as the configuration declares them."),
    ("Releases", "Every release at the moment that it becomes visible, as server-sent events."),
    ("Operation", "For supervisors and Prometheus. These paths ask for no stream."),
)
_KEY: dict[str, Any] = {"type": "http", "scheme": "bearer", "description": "an API key of this service"}
_WITHOUT_KEY = ("/healthz", "/readyz")


def create_app(
    reader: PublicReader,
    rules: AccessRules = EVERYBODY,
    apart: Apart | None = None,
    labels: AllLabels = NO_LABELS,
    publish_every_us: int = PUBLISH_EVERY_US,
    meter: Meter | None = None,
) -> FastAPI:
    """Return the application that serves the visible releases of ``reader``, and reads them until shutdown.

    Args: apart, the process for long computations, which ends at shutdown; None: make a new one; labels, how
        streams are shown; publish_every_us, results become visible at multiples of this; meter, of requests.
    """
    replicas, apart = Replicas(reader, labels), apart or Apart()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(replicas.keep_fresh(), name="keep-fresh")
        # Before the store was read once, no stream is called unknown.
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_S):
                await replicas.looked.wait()
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        apart.close()

    app = FastAPI(
        title="Private counts",
        summary="Live counts with differential privacy",
        description=_ABOUT,
        version=version("private-counts"),
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own page loads scripts from other hosts
        redoc_url=None,
    )
    _set_state(app, replicas, rules, apart, publish_every_us)
    errors.install(app, lambda request: not sees_panels_only(request))
    # Before the store was read once, questions get an error: no answer may say that there are no streams.
    checks = [Depends(routes.once_read), Depends(routes.asked_once)]
    for module in (routes, stream_routes, boards, prometheus):
        app.include_router(module.router, dependencies=checks)
    app.add_middleware(PlainQuestions)  # behind the checks of access
    app.add_middleware(Access, rules=rules, followed=lambda: app.state.followers.held > 0)
    pages.install(app)
    _describe(app, rules.keys is not None)
    if rules.origins:  # outermost, because a browser's preflight request has no key
        headers = ["Authorization", "Last-Event-ID"]
        app.add_middleware(
            CORSMiddleware, allow_origins=rules.origins, allow_methods=["GET", "POST"], allow_headers=headers
        )
    if meter is not None:
        meter.watch(lambda: app.state.followers.held, lambda: replicas.store_age_s)
        app.add_middleware(Metered, meter=meter)
    return app


def _set_state(
    app: FastAPI, replicas: Replicas, rules: AccessRules, apart: Apart, publish_every_us: int
) -> None:
    """Set the objects that the routes share."""
    app.state.replicas = replicas
    app.state.glances = Glances(replicas, apart, publish_every_us)
    app.state.rule_readings = RuleReadings(replicas, apart)
    app.state.publish_every_us = publish_every_us
    app.state.scrapes = rules.scrapes
    app.state.long_turns = LongTurns(together=2)
    app.state.followers = Places(
        "streams of events",
        rules.limits.connections,
        rules.limits.followers,
        ("api.limits.connections", "api.limits.followers"),
    )
    app.state.making_turns = LongTurns(together=1)
    app.state.apart = apart
    app.state.boards = rules.boards


def _describe(app: FastAPI, asks_for_key: bool) -> None:
    """Add the groups, and the key if readers need one, to the app's OpenAPI document."""
    made = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = made()
        document["tags"] = [{"name": name, "description": words} for name, words in _GROUPS]
        if asks_for_key:
            document["components"]["securitySchemes"] = {"key": _KEY}
            document["security"] = [{"key": []}]
            for path in _WITHOUT_KEY:
                document["paths"][path]["get"]["security"] = []
        return document

    app.openapi = described  # type: ignore[method-assign]  # the way that FastAPI documents


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises: OSError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=512)
    # Connections inherit this option. Without it an answer's second packet waits 40 ms for the reader to
    # confirm the first. asyncio sets it only for sockets that name their protocol, which these do not.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve_on(
    listener: socket.socket,
    reader_factory: ReaderFactory,
    rules: AccessRules = EVERYBODY,
    tls: tuple[Path, Path] | None = None,
    labels: AllLabels = NO_LABELS,
    publish_every_us: int = PUBLISH_EVERY_US,
    meter: Meter | None = None,
    apart: Apart | None = None,
    on_started: Callable[[], None] = lambda: None,
) -> None:
    """Serve on a listening socket until a signal or cancellation; then end followers and requests first.

    Args: tls, files of the certificate and its key; None for plain HTTP; labels, how streams are shown;
        publish_every_us, results become visible at multiples of this; meter, of requests; apart, as for
        ``create_app``; on_started, called when the store was read and the first reader may come.
    Raises: OperatorError if the files cannot be used.
    """
    async with reader_factory() as reader:
        app = create_app(reader, rules, apart, labels, publish_every_us, meter)
        config = uvicorn.Config(
            app,
            ws="none",
            log_level="error",  # no line per malformed request: anybody could fill the disk
            access_log=False,
            timeout_keep_alive=rules.limits.idle_s,  # type: ignore[arg-type]  # seconds, whole or not
            timeout_graceful_shutdown=_GRACE_S,
            server_header=False,
            proxy_headers=False,  # access.py identifies readers by the connection's own address
            ssl_certfile=tls[0] if tls else None,
            ssl_keyfile=tls[1] if tls else None,
        )
        try:
            config.load()
        except OSError as failure:  # ssl.SSLError is one
            raise OperatorError(f"api.tls: the certificate or its key cannot be used ({failure})") from None

        def started() -> None:
            on_started()
            with suppress(OSError):  # no process can start: the next question tries again
                app.state.apart.begun()  # now, or the first page would wait until it is loaded

        server = _Server(config, app.state.replicas, listener, rules, started)
        async with following(config.ssl, tls, "api.tls"):
            await run_server(server)


class _Server(uvicorn.Server):
    """A server that accepts connections through ``Entrance``, and ends event streams before it shuts down.

    Readers that follow an event stream would otherwise delay the shutdown.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        replicas: Replicas,
        listener: socket.socket,
        rules: AccessRules,
        on_started: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._replicas, self._listener, self._rules = replicas, listener, rules
        self._entrance: Entrance | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and accept connections."""
        await super().startup(sockets)
        self._on_started()
        protocol = type("Protocol", (BoundedProtocol,), {"slow_s": self._rules.limits.slow_s})
        self._entrance = Entrance(
            self._listener,
            self._rules.limits,
            self._rules.proxies,
            lambda: protocol(self.config, self.server_state, self.lifespan.state),
            self.config.ssl,
        )
        self._entrance.open()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal. uvicorn would raise the signal again, which would change the exit status."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: the entrance and followers first, then connections, then the app."""
        if self._entrance is not None:
            self._entrance.close()
        self._replicas.close()
        await super().shutdown(sockets)
