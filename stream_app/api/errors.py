"""Every error is JSON with one line: what, where, remedy. A browser gets a page for an unknown address."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from stream_app.api.admission.long_questions import ProcessEndedError
from stream_app.api.admission.turns import TooManyError
from stream_app.api.schemas import ErrorAnswer
from stream_app.core.answers.answered import QueryError
from stream_app.core.instants import format_instant

log = logging.getLogger(__name__)

_LONGEST_INPUT = 200  # characters that a message repeats
_MISSING = Path(__file__).parent / "dashboard" / "missing.html"

REPLIES: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "a time off the bin edges or outside what is released"},
    404: {"model": ErrorAnswer, "description": "no such stream"},
    422: {"model": ErrorAnswer, "description": "an unknown or malformed parameter"},
}


def install(app: FastAPI, may_see_keys: Callable[[Request], bool]) -> None:
    """Add handlers that answer every failure of the app in the same format.

    Args: may_see_keys, whether the request's reader may see keys of a stream that it did not name.
    """
    app.add_exception_handler(QueryError, _query_error(may_see_keys))
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(TooManyError, _again_later(429))
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(ProcessEndedError, _again_later(503))
    app.add_exception_handler(Exception, _fault)


def unknown_stream(name: str, known: list[str]) -> HTTPException:
    """Return the error for an unknown stream; it names some known streams."""
    there = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "") if known else "none yet"
    return HTTPException(404, f"stream {name!r} is not known here; known streams: {there}")


def not_open(name: str) -> HTTPException:
    """Return the error for a stream that is configured and was never opened."""
    return HTTPException(
        404,
        f"stream {name!r} is not open yet: its worker prepares it or is down, the worker's log says which",
    )


def not_read() -> HTTPException:
    """Return the error for every question before the store was read once."""
    line = (
        "the service has not read Redis yet: start Redis, or correct the rights of the api user; the log of "
        "the API says which"
    )
    return HTTPException(503, line, {"Retry-After": "1"})


def reply(status: int, line: str, **more: Any) -> JSONResponse:
    """Return an error answer."""
    return JSONResponse(ErrorAnswer(error=line, **more).model_dump(exclude_none=True), status)


def _query_error(
    may_see_keys: Callable[[Request], bool],
) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, QueryError)
        nearest = [format_instant(us) for us in error.nearest_us]
        line = str(error) if may_see_keys(request) else error.line
        return reply(400, line, parameter=error.parameter, nearest=nearest or None)

    return answer


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first, path = error.errors()[0], request.scope["path"]
    *_, parameter = (part for part in first["loc"] if isinstance(part, str))  # the rest is a place in a list
    if first["type"] == "extra_forbidden":
        line = f"parameter {parameter!r} is not known for {path}; /docs lists those that are"
    else:
        line = f"parameter {parameter}={_short(first['input'])}: {first['msg'].lower()}"
    return reply(422, line, parameter=parameter)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_INPUT else f"{text[:_LONGEST_INPUT]}..."


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    line, path = str(error.detail), request.scope["path"]
    if line == "Not Found":
        if not path.startswith(("/v1/", "/api/")) and "text/html" in request.headers.get("accept", ""):
            return FileResponse(_MISSING, 404, headers={"Cache-Control": "no-cache"})
        line = f"{path} is not an address of this service; /docs lists them all"
    return JSONResponse({"error": line}, error.status_code, headers=error.headers)


def _again_later(status: int) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def answer(_request: Request, error: Exception) -> JSONResponse:
        refusal = reply(status, str(error))
        refusal.headers["Retry-After"] = "1"
        return refusal

    return answer


async def _gone(_request: Request, _error: Exception) -> JSONResponse:
    """Return an answer that nobody reads: the client left before its question arrived or got its turn."""
    return reply(400, "the connection was closed before the question had arrived")


async def _fault(_request: Request, error: Exception) -> JSONResponse:
    log.error("a request failed (%s)", type(error).__name__)
    return reply(500, "this is a fault of the service, not of the request; its log has the kind of failure")
