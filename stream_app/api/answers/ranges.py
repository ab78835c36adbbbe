"""Fields that many answers share: the release, the range of time, a count with its error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.interval import half_widths
from dphist.laws.law import LawTable
from dphist.product.columns import KeyPlaces
from dphist.tree.estimate import Estimate
from stream_app.api import schemas
from stream_app.core.answers.answered import QueryError, SeriesPoints
from stream_app.core.answers.asked_keys import AskedKeys, group_in_words
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.steps import point_ranges
from stream_app.core.counting.unlisted import OTHER
from stream_app.core.instants import format_instant, parse_instant
from stream_app.core.kinds.tables import SeriesKind, Span
from stream_app.core.meaning import Meaning, meaning_of, range_in_words

_SHOWN_MOVED = 3  # keys that are named
INNER = (0.8, 0.5)  # the confidences of the inner parts of a drawn band
OWN_POINT = "Each interval is for one point. Of many 95 % intervals, about 1 in 20 misses the true number."


def released(view: StreamView) -> dict[str, Any]:
    """Return the fields that every answer about a stream carries."""
    until_us, meaning = view.released_until_us, meaning_of(view.declared)
    return {
        "stream": view.name,
        "generation": None if view.generation == 1 else view.generation,
        "private": view.private,
        "released_until": None if until_us is None else format_instant(until_us),
        "seq": view.visible_seq,
        "meaning": meaning.counts,
        "intervals": meaning.intervals,
    }


def about_keys(view: StreamView, query: schemas.RangeQuery, meaning: Meaning | None = None) -> dict[str, Any]:
    """Return the fields that say which keys an answer is about; the meaning of a group's answer names it.

    Args: meaning, of the answer; None: what the stream counts.
    Raises: QueryError.
    """
    asked = query.keys_asked
    if asked is None:
        return {"key": None}
    places, counts = _places(view, asked), (meaning or meaning_of(view.declared)).counts
    if not (words := group_in_words(asked, places)):
        moved = _moved_in_words(view) if asked.names == (OTHER,) else ""
        return {"key": asked.text} | ({"meaning": f"{counts} {moved}"} if moved else {})
    names = {"not_keys" if asked.without else "keys": list(asked.names)}
    return {"key": asked.text, "meaning": f"{counts} {words}", **names}


def _moved_in_words(view: StreamView) -> str:
    """Return which keys the running epoch found last, and how many events left ``other`` with each.

    Guarantee: post-processing of released values. Empty if keys are not found, or none was.
    """
    if not view.declared.finds_keys or not view.epochs:
        return ""
    record, said = view.epochs[-1].record, list[str]()
    new = [(one.bin, name) for one in record.found if one.bin >= record.first_bin for name in one.names]
    for bin, name in new[: -_SHOWN_MOVED - 1 : -1]:
        past = view.own.of_key(name).count(Span(record.first_bin, bin + 1))
        value, low = float(past.value), float(past.interval(0.95).lower)
        at = format_instant(view.binning.end_us(bin))
        said.append(f"{value:,.0f} (± {value - low:,.0f}) are under {name} since {at}")
    more = f" So it is with {len(new) - len(said):,} more keys." if len(new) > len(said) else ""
    return f"Other is the total less all shown keys. Of its events, {', '.join(said)}.{more}" if said else ""


def _places(view: StreamView, asked: AskedKeys) -> KeyPlaces:
    places = view.place_of(asked)
    assert places is not None  # some names are given
    return places


def counted(view: StreamView, span: Span) -> str:
    """Return the unit of a count over a range of bins, in words."""
    return range_in_words(view.declared, epochs=sum(1 for _ in view.parts(span)))


def estimated(estimate: Estimate, confidence: float) -> dict[str, Any]:
    """Return the fields of a single count and its error."""
    interval = estimate.interval(confidence)
    return {
        "value": float(estimate.value),
        "stderr": estimate.stderr,
        "interval": (float(interval.lower), float(interval.upper)),
        "confidence": confidence,
    }


def reach(estimates: Sequence[Estimate], confidence: float) -> FloatArray:
    """Return half the width of every estimate's interval; equal laws are inverted once."""
    halves, _ = half_widths(LawTable.of([one.law for one in estimates]), confidence)
    return np.asarray(halves + np.array([one.rounding for one in estimates]))


def span_of(view: StreamView, query: schemas.RangeQuery) -> Span:
    """Return the range of bins of a query. Raises: QueryError."""
    return view.bins_between(parsed_time("start", query.start), parsed_time("end", query.end))


def ranges_of(
    view: StreamView, query: schemas.SeriesQuery | schemas.MeanSeriesQuery, span: Span
) -> tuple[Int64Array, Int64Array]:
    """Return the starts and the stops of a series' points: groups of bins, or whole steps of the calendar.

    Raises: QueryError.
    """
    window, calendar = window_of(query.kind, query.window), query.calendar(view.binning.timezone)
    if calendar is None:
        return point_ranges(view.binning, query.kind, span, query.step, window, view.span.start)
    if query.kind != "bin" or query.step != 1:
        unit = calendar.unit
        raise QueryError(f"{unit}: need kind=bin and no step; change them, or leave {unit} out", unit)
    groups = calendar.groups(view.binning, span, schemas.MAX_POINTS)
    whole = [one for one in groups if calendar.is_whole(view.binning, one)]
    starts, stops = np.array(whole, np.int64).reshape(-1, 2).T
    return starts, stops


def calendar_answered(view: StreamView, query: schemas.CalendarQuery) -> dict[str, Any]:
    """Return the fields that say which calendar days or months the points are of."""
    calendar = query.calendar(view.binning.timezone)
    return {} if calendar is None else {calendar.unit: calendar.count, "timezone": calendar.zone}


def parsed_time(parameter: str, text: str | None) -> int | None:
    """Return an instant in microseconds. Raises: QueryError."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise QueryError(f"{parameter}: {error}", parameter) from None


def edges_of(view: StreamView, span: Span) -> dict[str, Any]:
    """Return the start and the end of a range of bins, as text."""
    return {"start": edge(view, span.start), "end": edge(view, span.stop)}


def measured_of(view: StreamView, span: Span) -> dict[str, Any]:
    """Return the start and the end of a range of bins, and the parts of it that were not measured."""
    return {**edges_of(view, span), "unmeasured": unmeasured_in(view, span)}


def unmeasured_in(view: StreamView, span: Span) -> list[schemas.Gap]:
    """Return the parts of a range that no epoch measured."""
    return [schemas.Gap(**edges_of(view, gap)) for gap in view.unmeasured(span)]


def edges_s(view: StreamView, spans: Sequence[Span]) -> dict[str, Any]:
    """Return the starts and the ends of ranges of bins, in seconds since 1970."""
    starts, ends = ((span.start for span in spans), (span.stop for span in spans))
    return {"start": instants_s(view, starts), "end": instants_s(view, ends)}


def window_of(kind: SeriesKind, window: int | None) -> int:
    """Return the bins in a window; 1 for other kinds of series. Raises: QueryError."""
    if bool(window) != (kind == "window"):
        raise QueryError("window: say how many bins with kind=window, and leave it out otherwise", "window")
    return window or 1


def ends_left_out(
    view: StreamView,
    query: schemas.SeriesQuery | schemas.MeanSeriesQuery,
    span: Span,
    ranges: tuple[Int64Array, Int64Array],
) -> list[str]:
    """Return a sentence for each end of a range whose bins fill no group; only groups of bins have such ends.

    Args: ranges, of all points: their starts and stops.
    """
    if query.kind != "bin":
        return []
    starts, stops = ranges
    ends = [(span.start, span.stop)]
    if len(starts):
        ends = [(span.start, int(starts[0])), (int(stops[-1]), span.stop)]
    calendar = query.calendar(view.binning.timezone)
    partial = "its bins fill no group" if calendar is None else f"it is only a part of {calendar.text}"
    return [
        f"{edge(view, start)} to {edge(view, stop)} is left out: {partial}."
        for start, stop in ends
        if start < stop
    ]


def points_answered(
    view: StreamView, query: schemas.SeriesQuery, found: SeriesPoints, left_out: Sequence[str]
) -> dict[str, Any]:
    """Return the fields of a series' answer. Args: left_out, of ``ends_left_out``."""
    halves = _half(found, query.confidence)
    return {
        **released(view) | about_keys(view, query),
        **query.model_dump(include={"kind", "view", "step", "window", "confidence"}),
        **edges_s(view, found.spans),
        **calendar_answered(view, query),
        "value": found.values.tolist(),
        "stderr": found.laws.deviations().tolist(),
        "lower": (found.values - halves).tolist(),
        "upper": (found.values + halves).tolist(),
        "inner": [_half(found, level).tolist() for level in INNER] if query.inner else None,
        "nodes": found.laws.draws().astype(int).tolist(),
        "points_available": found.available,
        "downsampled": len(found.spans) + found.unmeasured < found.available,
        "note": _note(found, left_out),
    }


def _half(found: SeriesPoints, confidence: float) -> FloatArray:
    """Return half the width of each point's interval."""
    return half_widths(found.laws, confidence)[0] + found.roundings


def _note(found: SeriesPoints, left_out: Sequence[str]) -> str:
    lines = []
    shown = len(found.spans)
    if shown + found.unmeasured < found.available:
        lines.append(
            f"{found.available:,} points are shortened to {shown:,}: least and greatest of each stretch."
        )
    lines += [*left_out, *points_left_out(found.unmeasured)]
    if not found.available and not left_out:
        lines.append("The range has no point: it is shorter than one step or window.")
    lines.append(OWN_POINT)
    return " ".join(lines)


def points_left_out(unmeasured: int) -> list[str]:
    """Return a sentence about points that were not counted whole; none without such points."""
    each = f"{unmeasured:,} points are" if unmeasured > 1 else "1 point is"
    return [f"{each} left out: not all of their bins were counted."] if unmeasured else []


def instants_s(view: StreamView, bins: Iterable[int]) -> list[float]:
    """Return the starts of bins, in seconds since 1970."""
    return [view.binning.start_us(bin) / 1e6 for bin in bins]


def edge(view: StreamView, bin: int) -> str:
    """Return the start of a bin, as text."""
    return format_instant(view.binning.start_us(bin))
