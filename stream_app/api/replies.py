"""Answer a question about a stream: from the cache, at once, or in a thread when it is its turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from stream_app.api import formats
from stream_app.api.admission.access import reader_of
from stream_app.api.admission.turns import LongTurns
from stream_app.api.replica import StreamReplica
from stream_app.core.query import StreamView

KEPT_ANSWERS = 64  # rendered answers per stream, forgotten at the next release
QUICK_EPOCHS = 64  # an answer over at most this many epochs takes milliseconds, and is computed at once


@asynccontextmanager
async def long_turn(request: Request) -> AsyncIterator[None]:
    """Hold a turn for a long computation while the block runs.

    Raises: TooManyError if too many of the reader's questions wait; ClientDisconnect if the client has left.
    """
    async with _turn(request, request.app.state.long_turns):
        yield


@asynccontextmanager
async def making_turn(request: Request) -> AsyncIterator[None]:
    """Hold the turn for a cached computation of seconds: one runs at a time, and readers take turns.

    Raises: as ``long_turn``.
    """
    async with _turn(request, request.app.state.making_turns):
        yield


@asynccontextmanager
async def _turn(request: Request, turns: LongTurns) -> AsyncIterator[None]:
    async with turns.of(reader_of(request)):
        if await request.is_disconnected():
            raise ClientDisconnect
        yield


async def answered(
    request: Request, replica: StreamReplica, make: Callable[[StreamView], BaseModel]
) -> Response:
    """Return the answer of ``make`` as JSON, computed in a thread when it is the reader's turn."""
    return await rendered(request, replica, lambda view: make(view).model_dump_json().encode())


async def answered_soon(
    request: Request, replica: StreamReplica, make: Callable[[StreamView], BaseModel]
) -> Response:
    """Return the answer of ``make``, computed at once if the stream has few epochs (milliseconds)."""
    assert replica.view is not None
    if len(replica.view.epochs) > QUICK_EPOCHS:
        return await answered(request, replica, make)
    asked = _Asked.of(request, replica, "json")
    return asked.known() or asked.reply(make(asked.view).model_dump_json().encode())


async def rendered(
    request: Request,
    replica: StreamReplica,
    make: Callable[[StreamView], bytes],
    form: formats.Format = "json",
) -> Response:
    """Return the answer of ``make`` in a format, computed in a thread when it is the reader's turn."""
    if (known := _Asked.of(request, replica, form).known()) is not None:
        return known
    async with long_turn(request), replica.busy:
        asked = _Asked.of(request, replica, form)  # the stream may have grown, or the answer exist
        return asked.known() or asked.reply(await run_in_threadpool(make, asked.view))


@dataclass(frozen=True)
class _Asked:
    """A question about the stream's current release, with its cache key."""

    replica: StreamReplica
    view: StreamView
    form: formats.Format
    key: tuple[str, bytes, str]
    etag: str
    etags_seen: str

    @classmethod
    def of(cls, request: Request, replica: StreamReplica, form: formats.Format) -> _Asked:
        view = replica.view
        if view is None:
            raise ClientDisconnect  # the stream was removed while this question waited
        suffix = "" if form == "json" else f":{form}"
        if view.private != view.declaration.private:
            suffix += ":not-private"  # the same values, but the source is no longer private
        return cls(
            replica,
            view,
            form,
            # Uses only the path and query: a reader may choose any header Host.
            (request.scope["path"], request.scope["query_string"], form),
            f'"{view.epoch}:{view.visible_seq}{suffix}"',
            request.headers.get("if-none-match", ""),
        )

    @property
    def headers(self) -> dict[str, str]:
        return {"ETag": self.etag, "Cache-Control": "no-cache", "Vary": "Accept"}

    def known(self) -> Response | None:
        """Return 304 if the reader has the answer, else the cached answer, or None."""
        seen = [tag.strip().removeprefix("W/") for tag in self.etags_seen.split(",")]
        if self.etag in seen or "*" in seen:
            return Response(status_code=304, headers=self.headers)
        body = self.replica.answers.get(self.key)
        return None if body is None else self._with(body)

    def reply(self, body: bytes) -> Response:
        """Return an answer, and cache it."""
        if len(self.replica.answers) >= KEPT_ANSWERS:
            self.replica.answers.clear()
        if self.replica.view is self.view:  # unless the stream was restarted meanwhile
            self.replica.answers[self.key] = body
        return self._with(body)

    def _with(self, body: bytes) -> Response:
        return Response(body, headers=self.headers | {"Content-Type": formats.CONTENT_TYPES[self.form]})
