"""Measures every request, for the operator alone: the pattern of its path, its status, its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OTHER = "other"  # no known path, or refused before the path was looked at
FILES = "/dashboard/{file}"
LEFT = 499  # the reader left before the answer


class Meter(Protocol):
    """Takes the measurements. A reader's own text is never among them."""

    def watch(self, followers: Callable[[], int], store_age_s: Callable[[], float | None]) -> None:
        """Ask for these numbers whenever they are shown."""

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Note one answer, or 499 if the reader left before it."""


class Metered:
    """Passes requests on, and measures each until the head of its answer."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self.app, self._meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; no body is buffered, so server-sent events flow."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began_s, status, answered_s = time.perf_counter(), LEFT, 0.0

        async def measured(message: Message) -> None:
            nonlocal status, answered_s
            if message["type"] == "http.response.start":
                status, answered_s = message["status"], time.perf_counter()
                self._meter.answered(_route(scope), status, answered_s - began_s)
            await send(message)

        try:
            await self.app(scope, receive, measured)
        except Exception:
            status = 500
            raise
        finally:
            if not answered_s:
                self._meter.answered(_route(scope), status, time.perf_counter() - began_s)


def _route(scope: Scope) -> str:
    """Return the pattern of a request's path, which the application's code has written."""
    if isinstance(scope.get("endpoint"), StaticFiles):
        return FILES
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else OTHER
