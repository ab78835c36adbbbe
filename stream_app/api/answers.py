"""Compute the API's answers from a view and a query. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from stream_app.api import formats, schemas, sums
from stream_app.api.distribution import axes_of
from stream_app.api.ranges import (
    about_keys,
    counted,
    days_of,
    edge,
    edges_of,
    estimated,
    points_answered,
    released,
    span_of,
    window_of,
)
from stream_app.api.windows import described
from stream_app.core.alerts.states import State
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.local_days import whole_groups
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import last_bin_of
from stream_app.core.counting.closing import next_public_instant_us
from stream_app.core.instants import format_instant
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.tables import Span, node_table
from stream_app.core.ledger import in_words, neighbouring_in_words, statement
from stream_app.core.meaning import epoch_in_words, left_out, meaning_of
from stream_app.core.records import LedgerEntry

DEFAULT_CONFIDENCE = 0.95
_CONSISTENT = (
    "Values are whole numbers that never fall and add up; they are biased, and stderr and intervals are "
    "those of the unbiased values."
)
MOST_NUMBERS = 100_000  # in one answer of /nodes
LARGEST_EXPONENT = 20  # for larger epsilons "the odds change by a factor of" has no meaning
PROTECTED = [
    "Whether any one event happened: everything shown changes these odds by at most the factor below.",
    "Against everybody who reads this, whatever else they know and however long they watch.",
    "Quiet times: bins close by the clock, and an empty bin is released like any other.",
]
NOT_PROTECTED = [
    "A person with many events: with k events the protection is k times weaker.",
    "What many events have in common: totals and trends are shown here.",
    "That the stream exists, how long its bins are and how it is configured.",
    "Events from anyone who can read the worker's machine: it holds exact counts of open bins.",
]
PROTECTED_USERS = [
    "Whether any one user was there: everything shown changes these odds by at most the factor below.",
    *PROTECTED[1:],
]
NOT_PROTECTED_USERS = [
    "A user for ever: each epoch costs its epsilon again, and the stated sum is over all epochs.",
    "People with several user names: with k names the protection is k times weaker.",
    *NOT_PROTECTED[1:],
]
_LENGTHS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))


def summary(view: StreamView) -> schemas.StreamSummary:
    """Return the short description of a stream."""
    return schemas.StreamSummary(**_summary(view))


def detail(view: StreamView, publish_every_us: int) -> schemas.StreamDetail:
    """Return the description of a stream with its tree and epochs. Args: as for ``next_release``."""
    design, meaning = view.strategy.design, meaning_of(view.declared)
    return schemas.StreamDetail(
        **_summary(view),
        noun=meaning.noun,
        where=str(view.declared.where) if view.declared.where else None,
        left_out=left_out(view.declared),
        warning=meaning.warning,
        next_release=next_release(view, publish_every_us),
        ends=ends(view),
        strategy_hash=view.strategy.hash,
        branching=list(design.branching),
        level_epsilons=[str(epsilon) for epsilon in design.level_epsilons],
        level_stderrs=[math.sqrt(variance) for variance in design.variances],
        release=design.release,
        axes=axes_of(view.strategy),
        windows=described(view),
        sum=sums.described(view) if view.declared.amounts else None,
        epochs=[_epoch(view, epoch) for epoch in view.epochs],
    )


def next_release(view: StreamView, publish_every_us: int) -> str | None:
    """Return when a live stream's next bin becomes visible if no worker is late. Only the clock decides this.

    Args: publish_every_us, results become visible at multiples of this.
    """
    declared = view.declared
    if declared.until_us is not None or not view.epochs:
        return None
    closed_us = declared.time.closing.instant_us(view.next_bin)
    return format_instant(next_public_instant_us(closed_us, publish_every_us))


def ends(view: StreamView) -> str | None:
    """Return where a replay ends; None for a live stream."""
    until_us = view.declared.until_us
    return None if until_us is None else format_instant(until_us)


def count(view: StreamView, query: schemas.CountQuery) -> schemas.CountAnswer:
    """Answer a range count. Raises: QueryError."""
    span = span_of(view, query)
    found = view.of_key(query.keys_asked).count(span)
    return schemas.CountAnswer(
        **released(view) | about_keys(view, query),
        counted=counted(view, span),
        **edges_of(view, span),
        **estimated(found, query.confidence),
    )


def series(view: StreamView, query: schemas.SeriesQuery) -> schemas.SeriesAnswer:
    """Answer a series. Consistent values get the intervals of the unbiased values, cut off at zero.

    Raises: QueryError.
    """
    consistent = query.view == "consistent"
    if query.method is not None and not consistent:
        raise QueryError("method: needs view=consistent; add that, or leave method out", "method")
    window = window_of(query.kind, query.window)
    shown = "unbiased" if query.view == "consistent" else query.view
    if shown != "unbiased" and query.keys_asked and not view.strategy.kind.keys_as_first_published:
        raise QueryError("view: only the total is kept as first published; leave out view or key", "view")
    of_key = view.of_key(query.keys_asked)
    span = span_of(view, query)
    groups = _groups(view, query, span)
    if groups is None:
        found = of_key.series(query.kind, span, query.step, window, shown, query.points)
    else:
        starts, stops = np.array(groups, np.int64).reshape(-1, 2).T
        found = of_key.over_ranges("bin", shown, starts, stops, query.points)
    fields = points_answered(view, query, found)
    if groups is not None:
        fields |= {"days": query.days, "timezone": query.timezone or "UTC"}
    if consistent:
        starts, stops = np.array(found.spans, np.int64).reshape(-1, 2).T
        fields["value"] = of_key.consistent(starts, stops, query.method or "top_down").tolist()
        fields |= {name: np.maximum(fields[name], 0.0).tolist() for name in ("lower", "upper")}
        fields["note"] = f"{_CONSISTENT} {fields['note']}"
    return schemas.SeriesAnswer(**fields)


def _groups(view: StreamView, query: schemas.SeriesQuery, span: Span) -> list[Span] | None:
    """Return the whole groups of calendar days that a series counts; None if it counts groups of bins.

    Raises: QueryError.
    """
    if query.days is not None and (query.kind != "bin" or query.step != 1):
        raise QueryError("days: need kind=bin and no step; change them, or leave days out", "days")
    groups = days_of(view, query, span, schemas.MAX_POINTS)
    if groups is None or query.days is None:
        return None
    return whole_groups(view.binning, groups, query.days, query.timezone or "UTC")


def rendered_series(view: StreamView, query: schemas.SeriesQuery, form: formats.Format) -> bytes:
    """Answer a series in a format. Raises: QueryError."""
    return formats.rendered(series(view, query), form)


def nodes(view: StreamView, query: schemas.NodesQuery) -> schemas.NodesAnswer:
    """Return released nodes of one level. Raises: QueryError for an unknown epoch or level."""
    design = view.strategy.design
    number = view.epoch if query.epoch is None else query.epoch
    epoch = next((one for one in view.epochs if one.record.epoch == number), None)
    if epoch is None:
        raise QueryError(f"epoch: {number} is not there; the last is {view.epoch}", "epoch")
    if not view.strategy.kind.node_levels:
        raise QueryError(
            "nodes: an anticipating stream over keys or values releases running counts only, every column's; "
            "ask for /series, /cdf or /quantile",
            "stream",
        )
    level = design.shape.height if query.level is None else query.level
    if level > design.shape.height:
        raise QueryError(
            f"level: {level} is not there; the tree has levels 1 to {design.shape.height}", "level"
        )
    values = epoch.rows(node_table(level))
    limit = min(query.limit, max(1, MOST_NUMBERS // values.shape[1]))
    return schemas.NodesAnswer(
        **released(view),
        epoch=number,
        level=level,
        first=query.first,
        node_bins=design.shape.widths[level],
        scale=None if view.strategy.kind.axes else float(design.scales[level - 1]),
        values=values[query.first : query.first + limit].tolist(),
        nodes_released=len(values),
    )


def privacy(
    view: StreamView, ledger: Sequence[LedgerEntry], may_read: Callable[[str], bool] = lambda _stream: True
) -> schemas.PrivacyAnswer:
    """Return the stream's privacy statement: what is protected, and how strongly.

    Args: ledger, of the stream's source; may_read, says whether the reader may see a stream's name.
    """
    design, source = view.strategy.design, view.labels.source(view.strategy.source)
    stated = replace(statement(view.strategy.source, ledger), source=source)
    private, per_user = view.declared.privacy.private and stated.private, view.declared.privacy.per_user
    for_users = stated.unit == "user"  # not if another stream protects only events, or other users
    return schemas.PrivacyAnswer(
        **released(view) | {"private": private},
        epsilon=in_words(view.strategy.epsilon),
        unit="event" if per_user is None else "user",
        max_events=None if per_user is None else per_user.max_events,
        neighbours=design.neighbours,
        neighbouring=stated.neighbouring,
        own_neighbouring=neighbouring_in_words("event" if per_user is None else "user", design.neighbours),
        source=source,
        source_epsilon=in_words(stated.epsilon),
        max_odds_factor=math.exp(stated.epsilon) if stated.epsilon < LARGEST_EXPONENT else None,
        promise=stated.sentences()[0],
        protected=(PROTECTED_USERS if for_users else PROTECTED) if private else [],
        not_protected=(NOT_PROTECTED_USERS if for_users else NOT_PROTECTED)
        if private
        else ["Anybody: these values show every event."],
        ledger=[_ledger_row(view, entry, may_read(entry.stream)) for entry in ledger],
    )


def alerts(states: Mapping[str, State], private: Callable[[str], bool]) -> schemas.AlertList:
    """Return the states of rules that ever changed. Args: private, says whether a stream is private now."""
    return schemas.AlertList(
        alerts=[
            schemas.AlertAnswer(
                **state.last | {"private": state.last["private"] and private(state.last["stream"])},
                phase=state.phase,
                since=format_instant(state.since_us),
                changed=format_instant(state.last["at_us"]),
            )
            for _, state in sorted(states.items())
            if state.last is not None
        ]
    )


def _summary(view: StreamView) -> dict[str, Any]:
    until = view.released_until_us
    running = None if until is None else estimated(view.running(), DEFAULT_CONFIDENCE)
    binning = view.binning
    calendar = binning.timezone is not None
    return released(view) | {
        "title": view.labels.title or view.strategy.stream,
        "display_timezone": view.labels.timezone,
        "source": view.labels.source(view.strategy.source),
        "epsilon": in_words(view.strategy.epsilon),
        "bin": f"1 day ({binning.timezone})" if calendar else length_in_words(binning.bin_us),
        "bin_seconds": None if calendar else binning.bin_us / 1e6,
        "timezone": binning.timezone,
        "start": format_instant(view.start_us),
        "running": running,
        "counted": counted(view, view.span),
        "this_epoch": users_of_epoch(view) if view.declared.count == "users" else None,
    }


def users_of_epoch(view: StreamView, confidence: float = DEFAULT_CONFIDENCE) -> schemas.EpochCount | None:
    """Return the users first seen in the last epoch with a release; None before the first release."""
    spans = [epoch.span for epoch in view.epochs if epoch.bins]
    if not spans:
        return None
    return schemas.EpochCount(
        **estimated(view.count(spans[-1]), confidence),
        **edges_of(view, spans[-1]),
        counted=epoch_in_words(view.declared, edge(view, spans[-1].start)),
    )


def _ledger_row(view: StreamView, entry: LedgerEntry, named: bool) -> schemas.LedgerRow:
    epochs = view.epochs if entry.stream == view.strategy.stream else ()
    ends = {epoch.record.epoch: epoch.record.end_reason for epoch in epochs}
    return schemas.LedgerRow(
        stream=entry.stream if named else "another stream",
        epoch=entry.epoch,
        start=format_instant(entry.start_us),
        end=format_instant(entry.end_us),
        epsilon=in_words(Fraction(entry.epsilon)),
        unit=entry.unit,
        private=entry.private,
        end_reason=ends.get(entry.epoch),
    )


def _epoch(view: StreamView, epoch: EpochView) -> schemas.EpochAnswer:
    record = epoch.record
    return schemas.EpochAnswer(
        epoch=record.epoch,
        start=edge(view, record.first_bin),
        end=edge(view, last_bin_of(record) + 1),
        bins=record.bins,
        bins_released=epoch.bins,
        first_seq=record.first_seq,
        end_reason=record.end_reason,
    )


def length_in_words(us: int) -> str:
    """Return a length of time as text in its largest whole unit.

    >>> length_in_words(3_600_000_000), length_in_words(900_000_000), length_in_words(1_500_000)
    ('1 hour', '15 minutes', '1.5 seconds')
    """
    for name, size in _LENGTHS:
        if us % size == 0:
            return f"1 {name}" if us == size else f"{us // size} {name}s"
    return f"{us / 1_000_000:g} seconds"
