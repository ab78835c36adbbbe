"""Answers plain questions before FastAPI, which takes longer to read a count's question than to answer it.

Followers, too: they stay for hours, and what FastAPI would keep for each slows every garbage collection.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from stream_app.api import routes, stream_routes
from stream_app.api.admission.turns import TooManyError
from stream_app.api.admission.work import QUICK_US, epochs_us
from stream_app.api.answers import counts
from stream_app.api.replies import answered, kept
from stream_app.api.schemas import EVENT_ID, CountQuery, EventsQuery
from stream_app.core.answers.answered import QueryError

_PATH = re.compile(r"/v1/streams/([^/]+)/(count|events)")


class _Plain(NamedTuple):
    """A kind of questions. Args: names, of the parameters that a plain one may have; route, FastAPI's."""

    names: frozenset[str]
    answer: Callable[[Request, str], Awaitable[Response | None]]
    route: BaseRoute


class PlainQuestions:
    """Answers quick counts by start, end and confidence, and followers; FastAPI has all other requests.

    Guarantee: each answer is FastAPI's, byte by byte, and so is each refusal: a question that cannot be
        answered here is passed on.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        answer = None
        if scope["type"] == "http" and scope["method"] == "GET" and (found := _PATH.fullmatch(scope["path"])):
            answer = await _answer(Request(scope, receive), *found.groups())
        await (self.app if answer is None else answer)(scope, receive, send)


async def _answer(request: Request, stream: str, what: str) -> Response | None:
    """Return the answer; None if FastAPI must read or refuse the question, or computing it takes long."""
    plain = _PLAIN[what]
    try:
        await routes.once_read(request)
        answer = await plain.answer(request, stream)
    except (ValidationError, HTTPException, QueryError, TooManyError):
        return None
    if answer is not None:
        request.scope["route"] = plain.route  # for the operator's metrics
    return answer


def _asked(request: Request, names: frozenset[str]) -> dict[str, str] | None:
    """Return a question's parameters; None if it has one twice, or one that is not among these names."""
    asked = request.query_params
    given = [name for name, _ in asked.multi_items()]
    return dict(asked) if len(given) == len(asked) and names.issuperset(given) else None


async def _count(request: Request, stream: str) -> Response | None:
    replica = await routes.known_history(request, stream)
    if (known := kept(request, replica)) is not None:
        return known
    asked, us = _asked(request, _PLAIN["count"].names), epochs_us(replica.view)
    if asked is None or us > QUICK_US:
        return None
    return await answered(request, replica, counts.count, CountQuery.model_validate(asked), us=us)


async def _events(request: Request, stream: str) -> Response | None:
    replica = await routes.known_replica(request, stream)
    asked, last = _asked(request, _PLAIN["events"].names), request.headers.getlist("last-event-id")
    if asked is None or len(last) > 1 or not all(re.fullmatch(EVENT_ID, one) for one in last):
        return None
    return await routes.events(request, stream, replica, EventsQuery.model_validate(asked), *last)


def _route_of(router: APIRouter, what: str) -> BaseRoute:
    path = f"/v1/streams/{{stream}}/{what}"
    return next(one for one in router.routes if getattr(one, "path", None) == path)


_PLAIN = {
    "count": _Plain(
        frozenset({"start", "end", "confidence"}), _count, _route_of(stream_routes.router, "count")
    ),
    "events": _Plain(frozenset({"after"}), _events, _route_of(routes.router, "events")),
}
