"""The routes under /v1: released values as JSON, and as server-sent events."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import cache
from hashlib import sha256
from inspect import signature
from typing import Annotated, get_args, get_origin

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from dphist.windows.error import window_error
from stream_app.api import errors, schemas, sse
from stream_app.api.admission.access import may_ask_of, may_read, reader_of, sees_panels_only
from stream_app.api.admission.turns import Places
from stream_app.api.admission.work import epochs_us
from stream_app.api.answers import (
    alerts,
    statements,
    streams,
    windows,
)
from stream_app.api.answers.preview import plan, preview
from stream_app.api.generations import Succession
from stream_app.api.overview import Glances
from stream_app.api.replica import StreamReplica
from stream_app.api.replicas import Replicas
from stream_app.api.replies import answered, apart_of, making_turn
from stream_app.core.alerts.readings import Now
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView

router = APIRouter(prefix="/v1", responses=errors.REPLIES)


def all_replicas(request: Request) -> Replicas:
    """Return the process's replicas."""
    replicas: Replicas = request.app.state.replicas
    return replicas


def readable(request: Request) -> list[StreamReplica]:
    """Return the streams that the request's reader may see, by name, each as its newest generation."""
    return [one for one in all_replicas(request).streams.shown() if may_read(request, one.stream)]


def publish_every_us(request: Request) -> int:
    """Return the period at whose multiples results become visible."""
    every_us: int = request.app.state.publish_every_us
    return every_us


def replica_of(request: Request, stream: str) -> StreamReplica:
    """Return a stream's newest generation, or the one that is named. Raises: HTTPException 404."""
    replica = all_replicas(request).streams.shown_as(stream)
    if replica is None or not may_read(request, stream):
        if all_replicas(request).expects(stream) and may_read(request, stream):
            raise errors.not_open(stream)
        raise errors.unknown_stream(stream, [one.name for one in readable(request)])
    return replica


async def once_read(request: Request) -> None:
    """Check that the store was read; from then on answers come from memory. Raises: HTTPException 503."""
    if not all_replicas(request).is_read:
        raise errors.not_read()


async def asked_once(request: Request) -> None:
    """Check that no parameter with one value is given twice: readers would not know which value counts.

    Raises: QueryError.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    for name, times in given.items():
        if times > 1 and name in _single_values(request.scope["endpoint"]):
            raise QueryError(f"{name}: it is given {times} times; give it once", name)


@cache
def _single_values(endpoint: Callable[..., object]) -> frozenset[str]:
    """Return the parameters of a route's query that are no lists."""
    query = signature(endpoint, eval_str=True).parameters.get("query")
    fields = query.annotation.__origin__.model_fields if query else {}
    kinds = {name: (field.annotation, *get_args(field.annotation)) for name, field in fields.items()}
    return frozenset(name for name, of in kinds.items() if {list, tuple}.isdisjoint(map(get_origin, of)))


async def known_replica(request: Request, stream: str) -> StreamReplica:
    """Return a stream's replica. Asynchronous, because FastAPI would run a plain function in a thread."""
    return replica_of(request, stream)


async def known_history(request: Request, stream: str) -> Succession:
    """Return a stream with the streams before it that the reader may see. Raises: as ``replica_of``."""
    return history_of(request, replica_of(request, stream))


def history_of(request: Request, replica: StreamReplica) -> Succession:
    """Return a stream with the streams before it that the reader may see."""
    by_name = all_replicas(request).by_name
    return Succession.of(replica, by_name, lambda other: may_ask_of(request, replica.stream, other))


Known = Annotated[StreamReplica, Depends(known_replica)]
WithHistory = Annotated[Succession, Depends(known_history)]
Nothing = Annotated[schemas.NoQuery, Query()]


@router.get("/streams", tags=["Streams"], response_model=schemas.StreamList)
async def list_streams(request: Request, _query: Nothing) -> schemas.StreamList:
    """All streams, each with the best current estimate of its running count."""
    views = (history_of(request, one).view for one in readable(request))
    return schemas.StreamList(streams=[streams.summary(view) for view in views if view is not None])


@router.get("/alerts", tags=["Alerts"], response_model=schemas.AlertList)
async def list_alerts(request: Request, _query: Nothing) -> schemas.AlertList:
    """Every alert rule: its state, since when it is watched, its last change and what it reads now."""
    replicas, now = all_replicas(request), dict[str, Now]()
    for replica in readable(request):
        now |= await request.app.state.rule_readings.of(replica)

    def private(stream: str) -> bool:
        found = replicas.streams.shown_as(stream)
        return found is None or found.private

    found = alerts.alerts(replicas.alerts, private, now, replicas.refused)
    return schemas.AlertList(alerts=[one for one in found.alerts if may_read(request, one.stream)])


@router.get("/streams/{stream}", tags=["Streams"], response_model=schemas.StreamDetail)
async def show_stream(request: Request, replica: WithHistory, _query: Nothing) -> Response:
    """One stream: its running count, its tree and its epochs."""
    view = replica.view
    if sees_panels_only(request):
        every_us = publish_every_us(request)
        make = streams.detail_for_board
        return await answered(request, replica, make, every_us, us=epochs_us(view), variant="board")
    before = after = None
    if view is not None:
        before, after = (
            one if one is not None and may_read(request, one) else None
            for one in (streams.predecessor(view), streams.successor(view))
        )
    return await answered(
        request,
        replica,
        streams.detail,
        publish_every_us(request),
        (before, after),
        us=epochs_us(view),
        variant=_words_beside(view, before, after),
    )


def _words_beside(view: StreamView | None, before: str | None, after: str | None) -> str:
    """Return a hash of facts that change without a new row: neighbouring generations, texts, a halt."""
    if view is None:
        return ""
    said = view.labels
    parts = (
        *(before, after, *streams.so_far(view), said.changes, said.next_changes),
        said.halted and "halted",
    )
    if not any(parts):
        return ""
    return sha256(":".join(part or "" for part in parts).encode()).hexdigest()[:16]


@router.get("/streams/{stream}/window", tags=["Values"], response_model=schemas.WindowAnswer)
async def window(
    request: Request, replica: Known, query: Annotated[schemas.WindowQuery, Query()]
) -> Response:
    """One tumbling window: its released histogram, cumulative counts and quantiles."""
    assert replica.view is not None
    key, known = windows.error_key(replica.view, query), windows.known_errors
    if key not in known:
        async with making_turn(request):  # before the view is locked
            await apart_of(request).fill(known, window_error, key)
    return await answered(request, replica, windows.window, query, {key: known[key]})


@router.get("/streams/{stream}/privacy", tags=["Streams"], response_model=schemas.PrivacyAnswer)
async def privacy(request: Request, replica: Known, _query: Nothing) -> schemas.PrivacyAnswer:
    """What is protected and how strongly: in words, in numbers, and the ledger of the source."""
    assert replica.view is not None
    ledger = all_replicas(request).ledgers.get(replica.view.strategy.source, ())
    return statements.privacy(replica.view, ledger, lambda stream: may_read(request, stream))


@router.get(
    "/streams/{stream}/events",
    tags=["Releases"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "one event per released bin"}},
)
async def events(
    request: Request,
    stream: str,
    replica: Known,
    query: Annotated[schemas.EventsQuery, Query()],
    last_event_id: Annotated[str | None, Header(pattern=schemas.EVENT_ID)] = None,
) -> StreamingResponse:
    """Every release as it becomes visible; a reader resumes from its ``id``: the seq in its generation.

    When a stream goes on as its next generation, so do its events: an event ``generation`` comes first.
    """
    asked = last_event_id if last_event_id is not None else query.after
    goes_on = "@" not in stream
    began, after = replica, max(replica.seq - 1, 0)
    if asked is not None:
        own = all_replicas(request).streams.generations(stream) if goes_on else [replica]
        began, after = sse.start_of(own, replica, sse.Place.of(asked))
    push = getattr(request.state, "push", None)
    return followed(request, sse.follow(began, after, goes_on=goes_on, push=push))


def followed(request: Request, events: AsyncIterator[bytes]) -> StreamingResponse:
    """Return a response that streams events. Raises: TooManyError if the reader follows too many streams."""
    followers: Places = request.app.state.followers
    return sse.Following(events, followers, reader_of(request))


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
    return alerts.marks(replica.view, replicas.alerts if is_newest else {}, now, replicas.refused)


@router.get("/streams/{stream}/transitions", tags=["Alerts"], response_model=schemas.AlertTransitions)
async def transitions(request: Request, replica: Known, _query: Nothing) -> schemas.AlertTransitions:
    """The last 1,000 changes of the alert rules over a stream, each a function of released rows."""
    assert replica.view is not None
    kept = all_replicas(request).transitions.get(replica.stream, ())
    return alerts.transitions(replica.view, kept, all_replicas(request).alerts)
