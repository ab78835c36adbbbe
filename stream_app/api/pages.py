"""The live page, the API's page, health and metrics: everything that is not under /v1."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from functools import cache
from os import PathLike, fspath, stat_result
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from starlette.datastructures import Headers
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_app.api import errors
from stream_app.api.admission.access import may_read
from stream_app.api.answers import plain
from stream_app.api.prometheus import metrics
from stream_app.api.replica import StreamReplica
from stream_app.api.replies import apart_of, computed, long_turn
from stream_app.api.routes import (
    Nothing,
    all_replicas,
    glances,
    history_of,
    once_read,
    readable,
    replica_of,
)
from stream_app.api.schemas import Health, OverviewQuery
from stream_app.core.boards import Board
from stream_app.ports.access import Scrapes

DASHBOARD = Path(__file__).parent / "dashboard"

router = APIRouter(responses={422: errors.REPLIES[422]})


def content_policy(origins: Iterable[str] = ()) -> str:
    """Return the policy of a page: the addresses that it may load, and the origins that may frame it."""
    ancestors = " ".join(origins) or "'none'"
    return f"default-src 'self'; frame-ancestors {ancestors}; base-uri 'none'; form-action 'none'"


class SafeHeaders:
    """Add headers that restrict a page to its own host and prevent framing, unless it has set its own."""

    HEADERS = (
        (b"content-security-policy", content_policy().encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
    )

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; no body is buffered, so server-sent events flow."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _value in message["headers"]}
                missing = [header for header in self.HEADERS if header[0] not in own]
                message["headers"] = [*message["headers"], *missing]
            await send(message)

        await self.app(scope, receive, send_with_headers)


def install(app: FastAPI) -> None:
    """Add the pages and their files to the app."""
    app.include_router(router)
    app.mount("/dashboard", PageFiles(directory=DASHBOARD), name="dashboard")
    app.add_middleware(SafeHeaders)


class PageFiles(StaticFiles):
    """Files of the pages. Browsers ask whether a file has changed, so they use a new version at once."""

    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return a file, compressed for those who accept it: a page has forty files of text."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update({"Cache-Control": "no-cache", "Vary": "Accept-Encoding"})
        if response.status_code != 200 or "gzip" not in Headers(scope=scope).get("Accept-Encoding", ""):
            return response
        packed, etag = compressed(fspath(full_path), stat_result.st_mtime_ns), f"W/{response.headers['ETag']}"
        response.headers.update(
            {"Content-Encoding": "gzip", "Content-Length": str(len(packed)), "ETag": etag}
        )
        return Response(packed, headers=dict(response.headers))


@cache
def compressed(path: str, _modified_ns: int) -> bytes:
    """Return a file's bytes under gzip, made once for each version of the file."""
    return gzip.compress(Path(path).read_bytes(), mtime=0)


@router.get("/", include_in_schema=False)
async def overview(request: Request, query: Annotated[OverviewQuery, Query()]) -> Response:
    """All streams at a glance."""
    if query.table is None:
        return _page("index.html")
    await once_read(request)
    found = await glances(request).all(lambda stream: may_read(request, stream))
    return HTMLResponse(plain.overview_page(found))


@router.get("/streams/{stream}", include_in_schema=False)
async def stream_page(request: Request, stream: str) -> Response:
    """The live page of a stream; the file is the same for all, and its script reads the URL."""
    if "table" not in request.query_params:
        return _page("stream.html")
    await once_read(request)
    history = history_of(request, replica_of(request, stream))
    return HTMLResponse(await computed(request, history, plain.stream_page))


@router.get("/boards", include_in_schema=False)
async def own_board() -> FileResponse:
    """The page of a board that its address describes, behind the #, where no server sees it."""
    return _page("board.html")


@router.get("/boards/{board}", include_in_schema=False)
async def board_page(board: str) -> FileResponse:
    """The live page of a board; the file is the same for all, and its script reads the URL."""
    return _page("board.html")


@router.get("/embed/{board}", include_in_schema=False)
async def framed_board(request: Request, board: str) -> FileResponse:
    """A board without navigation, for frames in the pages of the origins that it names."""
    boards: Mapping[str, Board] = request.app.state.boards
    origins = boards[board].embed if board in boards else ()
    page = _page("embed.html")
    page.headers["Content-Security-Policy"] = content_policy(origins)
    return page


@router.get("/docs", include_in_schema=False)
async def docs(_query: Nothing) -> FileResponse:
    """The API's page, built from /openapi.json by the service's own script."""
    return _page("docs.html")


def _page(name: str) -> FileResponse:
    return FileResponse(DASHBOARD / name, headers={"Cache-Control": "no-cache"})


@router.get("/healthz", tags=["Operation"], response_model=Health)
async def healthz(_query: Nothing) -> Health:
    """Whether this process is alive."""
    return Health(status="alive")


@router.get("/readyz", tags=["Operation"], response_model=Health, responses={503: {"model": Health}})
async def readyz(request: Request, _query: Nothing) -> JSONResponse:
    """Whether this process can answer: it has read the store. From then on it answers from memory."""
    await once_read(request)
    return JSONResponse(Health(status="ready").model_dump())


@router.get(
    "/metrics",
    tags=["Operation"],
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
    dependencies=[Depends(once_read)],
)
async def metrics_text(request: Request, _query: Nothing) -> Response:
    """Private values in Prometheus' text format."""
    scrapes: Scrapes = request.app.state.scrapes
    newest = [
        await computed(request, one, metrics.Newest.of, _name(one) in scrapes.keys_of, scrapes.most_series)
        for one in readable(request)
    ]
    states = all_replicas(request).alerts.items()
    of_reader = {name: one for name, one in states if one.last and may_read(request, one.last["stream"])}
    async with long_turn(request):
        age_s = all_replicas(request).store_age_s
        most = scrapes.most_series
        text = await apart_of(request).of(metrics.exposition, newest, of_reader, age_s, most)
    return Response(text, headers={"Content-Type": metrics.CONTENT_TYPE})


def _name(replica: StreamReplica) -> str:
    assert replica.view is not None  # it is readable
    return replica.view.name
