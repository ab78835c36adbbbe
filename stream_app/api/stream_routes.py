"""One table row for each question about a stream; each row becomes a route."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, getdoc
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel

from stream_app.api import errors, schemas
from stream_app.api.admission.work import LONG_US, epochs_us
from stream_app.api.answers import counts, formats, keys, slices, sums, values
from stream_app.api.replies import Askable, answered, rendered
from stream_app.api.routes import Known, WithHistory

router = APIRouter(prefix="/v1/streams/{stream}", responses=errors.REPLIES)
_OTHER_FORMATS: dict[int | str, dict[str, Any]] = {
    200: {"content": {formats.CONTENT_TYPES[form]: {} for form in ("csv", "arrow")}}
}


def count_us(replica: Askable, query: schemas.CountQuery) -> float:
    """Return an estimate of the work to count a range."""
    return LONG_US if query.of_group else epochs_us(replica.view)


class StreamRoute(NamedTuple):
    """The route of a question. The docstring of the answer is its text in the documentation.

    Args: path, below a stream's; tag, its group in the documentation; make, returns the answer to what is
        asked from the view; asked and answer, the models of both; of, the stream alone, or with the streams
        before it; us, estimates the work.
    """

    path: str
    tag: str
    make: Callable[..., BaseModel]
    asked: type[BaseModel]
    answer: type[BaseModel]
    of: Any = WithHistory
    us: Callable[[Any, Any], float] = lambda _replica, _query: LONG_US


ROUTES = (
    StreamRoute("/count", "Counts", counts.count, schemas.CountQuery, schemas.CountAnswer, us=count_us),
    StreamRoute("/series", "Counts", counts.series, schemas.SeriesQuery, schemas.SeriesAnswer),
    StreamRoute("/keys", "Counts", keys.keys, schemas.KeysQuery, schemas.KeysAnswer),
    StreamRoute("/sum", "Amounts", sums.total, schemas.CountQuery, schemas.SumAnswer),
    StreamRoute("/sum/series", "Amounts", sums.total_series, schemas.SeriesQuery, schemas.SumSeriesAnswer),
    StreamRoute("/sum/keys", "Amounts", keys.sums_by_key, schemas.KeysQuery, schemas.SumKeysAnswer),
    StreamRoute("/mean", "Amounts", sums.mean, schemas.CountQuery, schemas.MeanAnswer),
    StreamRoute("/mean/series", "Amounts", sums.means, schemas.MeanSeriesQuery, schemas.MeanSeriesAnswer),
    StreamRoute("/mean/keys", "Amounts", keys.means_by_key, schemas.KeysQuery, schemas.MeanKeysAnswer),
    StreamRoute("/cdf", "Values", values.cdf, schemas.CdfQuery, schemas.CdfAnswer),
    StreamRoute("/cdfs", "Values", slices.running_cdfs, schemas.SlicesQuery, schemas.CdfsAnswer),
    StreamRoute("/quantile", "Values", values.quantiles, schemas.QuantileQuery, schemas.QuantilesAnswer),
    StreamRoute(
        "/quantiles",
        "Values",
        slices.quantile_slices,
        asked=schemas.QuantileSlicesQuery,
        answer=schemas.QuantileSlicesAnswer,
    ),
    StreamRoute("/heat", "Values", slices.heat, schemas.HeatQuery, schemas.HeatAnswer),
    StreamRoute("/nodes", "Streams", counts.nodes, schemas.NodesQuery, schemas.NodesAnswer, Known),
    StreamRoute(
        "/keys/list",
        "Streams",
        keys.key_list,
        asked=schemas.KeyListQuery,
        answer=schemas.KeyListAnswer,
        of=Known,
        us=lambda _replica, _query: keys.LIST_US,
    ),
)


def _add(one: StreamRoute) -> None:
    """Add a route. A series is also given in the format that the header Accept names."""
    in_formats = issubclass(one.asked, schemas.PointsQuery)

    async def ask(request: Request, replica: Askable, query: Any, accept: str = "") -> Response:
        us = one.us(replica, query)
        if not in_formats:
            return await answered(request, replica, one.make, query, us=us)
        form = formats.chosen(query.format, accept)
        return await rendered(request, replica, formats.in_form, one.make, query, form, us=us, form=form)

    # FastAPI reads here what each question asks for.
    asked: dict[str, Any] = {"request": Request, "replica": one.of, "query": Annotated[one.asked, Query()]}
    parameters = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in asked.items()]
    if in_formats:
        kind = Annotated[str, Header()]
        parameters.append(Parameter("accept", Parameter.KEYWORD_ONLY, default="", annotation=kind))
    ask.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    router.add_api_route(
        one.path,
        ask,
        name=one.path[1:].replace("/", "_"),
        tags=[one.tag],
        response_model=one.answer,
        description=getdoc(one.answer),
        responses=_OTHER_FORMATS if in_formats else None,
    )


for _route in ROUTES:
    _add(_route)
