"""A series as CSV or as an Arrow stream, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel

from stream_app.api.schemas import MeanSeriesAnswer, SeriesAnswer
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.instants import format_instant
from stream_app.core.meaning import EVERY_EVENT

Columns = SeriesAnswer | MeanSeriesAnswer
Format = Literal["json", "csv", "arrow"]

CONTENT_TYPES: Mapping[Format, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
_NUMBERS = ("value", "stderr", "lower", "upper")


def as_json(view: StreamView, make: Callable[..., BaseModel], *arguments: object) -> bytes:
    """Return ``make(view, *arguments)`` as JSON."""
    return make(view, *arguments).model_dump_json().encode()


def chosen(parameter: Format | None, accept: str) -> Format:
    """Return the requested format: the parameter wins over the header, JSON is the default.

    >>> chosen(None, "text/csv"), chosen(None, "*/*"), chosen("arrow", "text/csv")
    ('csv', 'json', 'arrow')
    """
    if parameter is not None:
        return parameter
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for form, content_type in CONTENT_TYPES.items():
        if content_type.partition(";")[0] in wanted:
            return form
    return "json"


def in_form(view: StreamView, make: Callable[..., Columns], query: BaseModel, form: Format) -> bytes:
    """Return the series ``make(view, query)`` in a format.

    Raises: QueryError, also if this service cannot produce the format.
    """
    answer = make(view, query)
    if form == "csv":
        return _csv(answer)
    if form == "arrow":
        return _arrow(answer)
    return answer.model_dump_json().encode()


def _csv(answer: Columns) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    # The column is left out where every event counts.
    words = {} if answer.meaning == EVERY_EVENT.counts else {"meaning": answer.meaning}
    numbers = _numbers_of(answer)
    writer.writerow(["start", "end", *numbers, "private", *words])
    private = str(answer.private).lower()
    columns = [getattr(answer, name) for name in numbers]
    for start, end, *row in zip(answer.start, answer.end, *columns, strict=True):
        writer.writerow([_instant(start), _instant(end), *row, private, *words.values()])
    return text.getvalue().encode()


def _numbers_of(answer: Columns) -> list[str]:
    """Return the answer's columns of numbers; a mean has no standard error."""
    return [name for name in _NUMBERS if hasattr(answer, name)]


def load_arrow() -> Any:
    """Return pyarrow, which is loaded on first use only. Raises: QueryError if it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise QueryError(
            "format: this service has no pyarrow; install the extra 'parquet' beside it, or ask for csv",
            "format",
        ) from None
    return pyarrow


def _arrow(answer: Columns) -> bytes:
    """Return the JSON's columns as Arrow, with UTC timestamps; single values are the schema's metadata."""
    pyarrow = load_arrow()
    times = pyarrow.timestamp("us", tz="UTC")
    columns = {
        name: pyarrow.array([_us(one) for one in getattr(answer, name)], times) for name in ("start", "end")
    } | {name: pyarrow.array(getattr(answer, name), pyarrow.float64()) for name in _numbers_of(answer)}
    said = answer.model_dump(exclude={"start", "end", "nodes", "amounts", *_NUMBERS}, exclude_none=True)
    table = pyarrow.table(columns).replace_schema_metadata(
        {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in said.items()}
    )
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _instant(seconds: float) -> str:
    return format_instant(_us(seconds))


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
