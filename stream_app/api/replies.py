"""Answer a question about a stream: from the cache, at once, or in the process for long questions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from stream_app.api.admission.access import reader_of
from stream_app.api.admission.long_questions import Apart
from stream_app.api.admission.turns import LongTurns
from stream_app.api.admission.work import LONG_US, QUICK_US
from stream_app.api.answers import formats
from stream_app.api.generations import Succession
from stream_app.api.replica import StreamReplica
from stream_app.core.answers.query import StreamView

T = TypeVar("T")
Compute = Callable[..., Awaitable[Any]]
Askable = StreamReplica | Succession

KEPT_ANSWERS = 64  # rendered answers per stream, forgotten at the next release


def apart_of(request: Request) -> Apart:
    """Return the process that computes long answers."""
    found: Apart = request.app.state.apart
    return found


def long_turn(request: Request) -> AbstractAsyncContextManager[None]:
    """Hold a turn for a long computation while the block runs.

    Raises: TooManyError if too many of the reader's questions wait; ClientDisconnect if the client has left.
    """
    return _turn(request, request.app.state.long_turns)


def making_turn(request: Request) -> AbstractAsyncContextManager[None]:
    """Hold the only turn for computations that take seconds and are then cached. Raises: as ``long_turn``."""
    return _turn(request, request.app.state.making_turns)


@asynccontextmanager
async def _turn(request: Request, turns: LongTurns) -> AsyncIterator[None]:
    async with turns.of(reader_of(request)):
        if await request.is_disconnected():
            raise ClientDisconnect
        yield


@asynccontextmanager
async def computing(request: Request, us: float, replica: Askable) -> AsyncIterator[Compute]:
    """Yield a function that computes an answer: at once if it is quick, otherwise in a separate process.

    Args: us, an estimate of the work (``admission/work.py``).
    Raises: as ``long_turn``.
    """
    if us <= QUICK_US:
        yield _at_once
        return
    async with long_turn(request), AsyncExitStack() as held:
        for one in replica.parts:  # oldest first, for every reader, so no two questions wait for each other
            await held.enter_async_context(one.asked_apart)
        yield apart_of(request).of_view


async def _at_once(view: StreamView, make: Callable[..., Any], *arguments: object) -> Any:
    return make(view, *arguments)


async def computed(
    request: Request,
    replica: Askable,
    make: Callable[..., T],
    *arguments: object,
    us: float = LONG_US,
) -> T:
    """Return what ``make`` returns for a stream's view.

    Args: make, a module's function that takes the view and the arguments; us, an estimate of its work.
    Raises: what ``make`` raises; as ``long_turn``.
    """
    async with computing(request, us, replica) as compute:
        answer: T = await compute(_view_of(replica), make, *arguments)
        return answer


async def answered(
    request: Request,
    replica: Askable,
    make: Callable[..., BaseModel],
    *arguments: object,
    us: float = LONG_US,
    variant: str = "",
) -> Response:
    """Return the answer of ``make`` as JSON. Args and raises: as ``rendered``."""
    return await rendered(request, replica, formats.as_json, make, *arguments, us=us, variant=variant)


async def rendered(
    request: Request,
    replica: Askable,
    make: Callable[..., bytes],
    *arguments: object,
    us: float = LONG_US,
    form: formats.Format = "json",
    variant: str = "",
) -> Response:
    """Return the bytes that ``make`` returns, cached and with an ETag. Raises: as ``computed``.

    Args: as for ``computed``; variant, names answers apart that depend on what the reader may see.
    """
    if (known := _CachedAnswer(request, replica, form, variant).known()) is not None:
        return known
    async with computing(request, us, replica) as compute:
        # The stream may have grown meanwhile, or the answer exist.
        asked = _CachedAnswer(request, replica, form, variant)
        return asked.known() or asked.reply(await compute(asked.view, make, *arguments))


def kept(request: Request, replica: Askable) -> Response | None:
    """Return the JSON answer to this question if it was given since the last release, else None."""
    question = _CachedAnswer(request, replica, "json", "")
    return question.known() if question.key in replica.answers else None


def _view_of(replica: Askable) -> StreamView:
    if replica.view is None:
        raise ClientDisconnect  # the stream was removed while this question waited
    return replica.view


class _CachedAnswer:
    """A question about the stream's current release, with its cache key."""

    def __init__(self, request: Request, replica: Askable, form: formats.Format, variant: str) -> None:
        self.replica, self.view, self.form, self.variant = replica, _view_of(replica), form, variant
        self.etag = _etag(self.view, form, variant)
        # Uses only the path and query: a reader may choose any header Host. The tag names the streams shown.
        self.key = (request.scope["path"], request.scope["query_string"], self.etag)
        self.etags_seen = request.headers.get("if-none-match", "")

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
        """Return an answer, and cache it unless the stream has grown or begun anew meanwhile."""
        if len(self.replica.answers) >= KEPT_ANSWERS:
            self.replica.answers.clear()
        if self.replica.view is self.view and _etag(self.view, self.form, self.variant) == self.etag:
            self.replica.answers[self.key] = body
        return self._with(body)

    def _with(self, body: bytes) -> Response:
        return Response(body, headers=self.headers | {"Content-Type": formats.CONTENT_TYPES[self.form]})


def _etag(view: StreamView, form: formats.Format, variant: str) -> str:
    suffix = "" if form == "json" else f":{form}"
    suffix += f":{variant}" if variant else ""
    if view.generation > 1:
        suffix += f":generation-{view.generation}"  # each one numbers its epochs and releases from the start
    if view.trimmed:
        suffix += f":kept-from-{view.trimmed.seq + 1}"  # retention changes answers without a release
    for one in view.before:
        suffix += f":after:{one.strategy.stream}:{one.epochs[0].record.epoch}-{one.epoch}:{one.visible_seq}"
    if view.private != view.declared.privacy.private:
        suffix += ":not-private"  # the same values, but the source is no longer private
    return f'"{view.epoch}:{view.visible_seq}{suffix}"'
