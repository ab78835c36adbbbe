"""The pages' routes besides those of ``routes.py``: data for charts, and the overview."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from stream_app.api import errors
from stream_app.api.admission.access import may_read
from stream_app.api.overview import Glances
from stream_app.api.panels import answers as panels
from stream_app.api.panels import schemas
from stream_app.api.panels.preview import plan, preview
from stream_app.api.replies import answered, apart_of, making_turn
from stream_app.api.routes import Known, Nothing, WithHistory, all_replicas, followed

router = APIRouter(prefix="/v1", responses=errors.REPLIES)


def glances(request: Request) -> Glances:
    """Return the process's overview."""
    found: Glances = request.app.state.glances
    return found


@router.get("/overview", tags=["Streams"], response_model=schemas.Overview)
async def show_overview(request: Request, _query: Nothing) -> schemas.Overview:
    """An overview of all streams: count, last bins, next release, alerts."""
    return await glances(request).all(lambda stream: may_read(request, stream))


@router.get(
    "/overview/events",
    tags=["Releases"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "one event per changed stream"}},
)
async def overview_events(request: Request, _query: Nothing) -> StreamingResponse:
    """Every stream as in /v1/overview, now and whenever it changes; ``gone`` names one that left."""
    return followed(request, glances(request).follow(lambda stream: may_read(request, stream)))


@router.get("/streams/{stream}/preview", tags=["Counts"], response_model=schemas.PreviewAnswer)
async def show_preview(
    request: Request, replica: WithHistory, query: Annotated[schemas.PreviewQuery, Query()]
) -> Response:
    """The same intervals at another epsilon, by the planner; nothing is measured."""
    assert replica.own.view is not None
    async with making_turn(request):  # the plan takes seconds, and the next question finds it cached
        await apart_of(request).of(plan, replica.own.view.strategy.to_json(), query.epsilon)
    return await answered(request, replica, preview, query)


@router.get("/streams/{stream}/marks", tags=["Alerts"], response_model=schemas.AlertMarks)
async def marks(request: Request, replica: Known, _query: Nothing) -> schemas.AlertMarks:
    """Alert rules over a stream, with their thresholds in events. Rules read the newest generation."""
    assert replica.view is not None
    now = await request.app.state.rule_readings.of(replica)
    is_newest = all_replicas(request).streams.shown_as(replica.view.name) is replica
    replicas = all_replicas(request)
    return panels.marks(replica.view, replicas.alerts if is_newest else {}, now, replicas.refused)


@router.get("/streams/{stream}/transitions", tags=["Alerts"], response_model=schemas.AlertTransitions)
async def transitions(request: Request, replica: Known, _query: Nothing) -> schemas.AlertTransitions:
    """The last 1,000 changes of the alert rules over a stream, each a function of released rows."""
    assert replica.view is not None
    kept = all_replicas(request).transitions.get(replica.stream, ())
    return panels.transitions(replica.view, kept, all_replicas(request).alerts)
