"""Pages for browsers without JavaScript: released numbers as tables in HTML. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote

from dphist.laws.interval import half_widths
from stream_app.api.answers.ranges import edges_s
from stream_app.api.answers.streams import summary
from stream_app.api.schemas import DEFAULT_CONFIDENCE, EstimatedCount, Overview
from stream_app.core.answers.query import StreamView
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import Span

MOST_BINS = 200
_SURE = f"{100 * DEFAULT_CONFIDENCE:g} % interval, for each row by itself"


def stream_page(view: StreamView) -> bytes:
    """Return a stream's number of all time and those of its last bins, the newest first."""
    about, (first, stop) = summary(view), view.span
    if any(one.binning != view.own.binning for one in view.before):
        first = view.own.span.start  # rows of bins of one length
    found = view.series("bin", Span(max(first, stop - MOST_BINS), stop))
    halves = half_widths(found.laws, DEFAULT_CONFIDENCE)[0] + found.roundings
    starts = (format_instant(round(at * 1e6)) for at in edges_s(view, found.spans)["start"])
    columns = (starts, found.values, found.values - halves, found.values + halves)
    rows = [(start, *_number(*numbers)) for start, *numbers in zip(*columns, strict=True)]
    path = f"/v1/streams/{quote(about.stream, safe='')}"
    return _page(
        about.title,
        [] if about.private else ["NOT PRIVATE: these numbers protect nobody."],
        _paragraph(f"{about.meaning} {about.intervals}"),
        _headline(about.running, f"{about.counted}, since {about.start}"),
        _table((f"{about.bin} from (UTC)", about.counted, _SURE), reversed(rows)),
        '<p><a href="/?table">All streams</a> · '
        f'<a href="{path}/series?kind=bin&amp;format=csv">All bins as CSV</a> · '
        f'<a href="{path}/privacy">What is protected, as JSON</a></p>',
    ).encode()


def overview_page(overview: Overview) -> bytes:
    """Return the number of each stream."""
    streams = overview.streams
    rows = [
        (
            f"{one.title}: {one.counted}",
            *(("nothing yet", "") if now is None else _number(now.value, *now.interval)),
        )
        for one in streams
        for now in [one.running]
    ]
    links = [f"/streams/{quote(one.stream, safe='')}?table" for one in streams]
    return _page(
        "Streams",
        [f"{one.title} is NOT PRIVATE: it protects nobody." for one in streams if not one.private],
        _table(("stream", "number", _SURE), rows, links),
    ).encode()


def _page(title: str, alarms: Iterable[str], *parts: str) -> str:
    said = "".join(f'<p class="alarm">{escape(one)}</p>' for one in alarms)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="/dashboard/style.css"></head><body class="plain">'
        f"<main>{said}<h1>{escape(title)}</h1>{''.join(parts)}</main></body></html>"
    )


def _paragraph(text: str) -> str:
    return f'<p class="muted">{escape(text)}</p>'


def _headline(now: EstimatedCount | None, counted: str) -> str:
    """Return a number in large digits, with its interval."""
    if now is None:
        return _paragraph("Nothing is released yet.")
    number, interval = _number(now.value, *now.interval)
    said = _paragraph(
        f"{counted}; with {100 * now.confidence:g} % probability the true number is in {interval}"
    )
    return f'<p class="value">{number}</p>{said}'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], links: Sequence[str] = ()) -> str:
    """Return a table; the first cell of each row links to the link at its place, if there are links."""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = ""
    for place, row in enumerate(rows):
        cells = list(map(escape, row))
        if links:
            cells[0] = f'<a href="{escape(links[place])}">{cells[0]}</a>'
        body += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _number(value: float, lower: float, upper: float) -> tuple[str, str]:
    """Return a number and its interval as texts; the ends are rounded outward."""
    return f"{value:,.0f}", f"{math.floor(lower):,} to {math.ceil(upper):,}"
