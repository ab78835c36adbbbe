"""Boards as their operator declares them, and one connection that announces releases of several streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from stream_app.api import errors
from stream_app.api.admission.access import may_read, may_read_board
from stream_app.api.answers.streams import as_told
from stream_app.api.replicas import Replicas
from stream_app.api.routes import Nothing, all_replicas, followed
from stream_app.api.schemas import AnnotationAnswer, NoQuery
from stream_app.api.sse import whenever
from stream_app.core.boards import Board, Measure, Show

_MOST_STREAMS = 200

router = APIRouter(prefix="/v1", responses=errors.REPLIES)


class PanelAnswer(BaseModel):
    """One panel of a board."""

    name: str
    title: str = Field(description="empty: the panel is headed by what it shows")
    show: Show
    streams: list[str] = Field(description="each a stream, or STREAM/KEY for one of its keys")
    measure: Measure
    range_seconds: float | None = Field(description="how much of the newest time; null: as the board")


class BoardAnswer(BaseModel):
    """A board: its panels, and the annotations of its charts."""

    board: str
    title: str
    range_seconds: float | None = Field(description="how much of the newest time; null: everything")
    panels: list[PanelAnswer]
    annotations: list[AnnotationAnswer]


class BoardName(BaseModel):
    """A board in the list of boards."""

    board: str
    title: str


class BoardList(BaseModel):
    """The boards that the reader may read, in the order of the configuration."""

    boards: list[BoardName]


class ChangesQuery(NoQuery):
    """The streams to hear of."""

    stream: list[str] = Field(min_length=1, max_length=_MOST_STREAMS, description="may be repeated")


def readable_boards(request: Request) -> dict[str, Board]:
    """Return the boards that the request's reader may read."""
    boards: Mapping[str, Board] = request.app.state.boards
    return {name: board for name, board in boards.items() if may_read_board(request, board)}


@router.get("/boards", tags=["Boards"], response_model=BoardList)
async def list_boards(request: Request, _query: Nothing) -> BoardList:
    """The boards that the configuration declares: pages of panels, at /boards/NAME."""
    found = readable_boards(request).values()
    return BoardList(boards=[BoardName(board=board.name, title=board.title) for board in found])


@router.get("/boards/{board}", tags=["Boards"], response_model=BoardAnswer)
async def show_board(request: Request, board: str, _query: Nothing) -> BoardAnswer:
    """What a board shows: panels, streams, ranges and annotations. It holds no values."""
    found = readable_boards(request)
    if board not in found:
        known = ", ".join(found) or "none"
        raise HTTPException(404, f"board {board[:80]!r} is not known here; known boards: {known}")
    return _answer(found[board])


@router.get(
    "/changes",
    tags=["Releases"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "one event per changed stream"}},
)
async def changes(request: Request, query: Annotated[ChangesQuery, Query()]) -> StreamingResponse:
    """Which of these streams have released something, now and whenever one does. It holds no values."""
    readable = sorted({name for name in query.stream if may_read(request, name)})
    return followed(request, events_of(all_replicas(request), readable))


def events_of(replicas: Replicas, wanted: Sequence[str]) -> AsyncIterator[bytes]:
    """Yield an event for each wanted stream, and another whenever its seq, generation or privacy changes."""
    sent: dict[str, tuple[int, int, bool]] = {}

    async def news() -> bytes:
        nonlocal sent
        now = {
            name: (one.generation, one.seq, one.private)
            for name in wanted
            if (one := replicas.streams.shown_as(name)) is not None
        }
        before, sent = sent, now
        return b"".join(_event(name, *now[name]) for name in now if before.get(name) != now[name])

    return whenever(news, lambda: replicas.closed)


def _event(stream: str, generation: int, seq: int, private: bool) -> bytes:
    own = {} if generation == 1 else {"generation": generation}
    said = json.dumps({"stream": stream, **own, "seq": seq, "private": private}, separators=(",", ":"))
    return b"event: changed\ndata: %b\n\n" % said.encode()


def _answer(board: Board) -> BoardAnswer:
    return BoardAnswer(
        board=board.name,
        title=board.title,
        range_seconds=_seconds(board.range_us),
        panels=[
            PanelAnswer(
                name=panel.name,
                title=panel.title,
                show=panel.show,
                streams=[str(line) for line in panel.lines],
                measure=panel.measure,
                range_seconds=_seconds(panel.range_us),
            )
            for panel in board.panels
        ],
        annotations=as_told(board.annotations),
    )


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6
