"""Describe streams: in short, and with their trees, axes and epochs. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from stream_app.api import schemas
from stream_app.api.answers import sums
from stream_app.api.answers.ranges import (
    counted,
    edge,
    edges_of,
    estimated,
    released,
    unmeasured_in,
)
from stream_app.api.answers.values import axes_of
from stream_app.api.answers.windows import described
from stream_app.api.schemas import DEFAULT_CONFIDENCE
from stream_app.core.answers.caps import proposed
from stream_app.core.answers.joined_history import same_columns
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.succession import edge_in_words
from stream_app.core.boards import Annotation
from stream_app.core.counting.bins import next_public_instant_us
from stream_app.core.instants import format_instant
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.meaning import epoch_in_words, left_out, meaning_of
from stream_app.core.promise import delta_in_words, in_words
from stream_app.core.segments.endings import ENDED
from stream_app.core.segments.names import address_of, asked_names


def summary(view: StreamView) -> schemas.StreamSummary:
    """Return the short description of a stream."""
    return schemas.StreamSummary(**_summary(view))


def detail_for_board(view: StreamView, publish_every_us: int) -> schemas.StreamDetail:
    """Return the description of a stream without numbers and keys, which a board's panels may not show."""
    whole = detail(view, publish_every_us)
    return whole.model_copy(
        update={
            "running": None,
            "caps": None,
            "this_epoch": None,
            "changes": None,
            "successor_changes": None,
            "annotations": as_told([*view.labels.annotations, *_edges(view, names_keys=False)]),
            "axes": whole.axes and whole.axes.model_copy(update={"first_keys": []}),
            "windows": whole.windows and whole.windows.model_copy(update={"first_keys": []}),
        }
    )


def detail(
    view: StreamView, publish_every_us: int, beside: tuple[str | None, str | None] = (None, None)
) -> schemas.StreamDetail:
    """Return the description of a stream with its tree and epochs.

    Args: publish_every_us, as for ``next_release``; beside, the stream that ends where this one begins, and
        the one that begins where it ends, if the reader may see them.
    """
    kind, meaning = view.strategy.kind, meaning_of(view.declared)
    tree = kind.tree_design
    return schemas.StreamDetail(
        **_summary(view),
        counts=view.declared.count or "events",
        noun=meaning.noun,
        where=str(view.declared.where) if view.declared.where else None,
        left_out=left_out(view.declared),
        warning=meaning.warning,
        shape=meaning.shape,
        next_release=next_release(view, publish_every_us),
        ends=ends(view),
        successor_of=beside[0],
        successor=beside[1],
        successor_changes=view.labels.next_changes or None,
        halted=view.labels.halted or None,
        epsilon_so_far=so_far(view)[0],
        delta_so_far=so_far(view)[1],
        strategy_hash=view.strategy.hash,
        branching=list(tree.branching) if tree else [],
        level_epsilons=[str(epsilon) for epsilon in tree.level_epsilons] if tree else [],
        level_stderrs=[math.sqrt(variance) for variance in tree.variances] if tree else [],
        release=kind.release,
        never_revised=kind.never_revised,
        caps=_caps(view.own),
        axes=axes_of(view.strategy),
        windows=described(view),
        sum=sums.described(view) if view.declared.amounts else None,
        annotations=as_told([*view.labels.annotations, *_edges(view)]),
        history=_history(view) or None,
        epochs=[_epoch(view.own, epoch) for epoch in view.own.epochs],
    )


def _caps(view: StreamView) -> schemas.CapsAnswer | None:
    found = proposed(view)
    if found is None:
        return None
    return schemas.CapsAnswer(
        start=format_instant(found.start_us),
        end=format_instant(found.end_us),
        users=list(found.users),
        reach=found.reach,
        now=found.now,
        caps=[schemas.CapAnswer(**asdict(cap)) for cap in found.caps],
        proposed=found.best.max_events,
        sentence=found.sentence,
    )


def _history(view: StreamView) -> list[schemas.HistoryPart]:
    """Return the streams before a stream whose counts its answers include, oldest first."""
    names = asked_names([one.strategy.stream for one in (*view.before, view.own)])
    return [
        schemas.HistoryPart(
            stream=name,
            **edges_of(one, one.span),
            bin=one.binning.text,
            bin_seconds=None if one.binning.timezone else one.binning.bin_us / 1e6,
            timezone=one.binning.timezone,
            bins_released=sum(epoch.bins for epoch in one.epochs),
            epochs_released=sum(1 for epoch in one.epochs if epoch.bins),
            in_total=same_columns(one.strategy, view.strategy),
        )
        for name, one in zip(names, view.before, strict=False)
    ]


def _edges(view: StreamView, names_keys: bool = True) -> Iterable[Annotation]:
    """Return an annotation for each edge between two streams of a history: the settings that change there."""
    for before, after in pairwise((*view.before, view.own)):
        yield Annotation(after.start_us, None, edge_in_words(before, after, names_keys))


def as_told(written: Iterable[Annotation]) -> list[schemas.AnnotationAnswer]:
    """Return annotations as the API states them."""
    return [
        schemas.AnnotationAnswer(
            start=format_instant(one.start_us), end=_instant(one.end_us), text=one.text, link=one.link
        )
        for one in written
    ]


def so_far(view: StreamView) -> tuple[str | None, str | None]:
    """Return the epsilon and the delta of all epochs over the source together; None where they do not add up.

    Epochs add up for users without a period. For them one epoch's epsilon alone would say too little.
    """
    stated = view.statement
    if stated is None or not view.private or stated.unit != "user" or view.declared.period is not None:
        return None, None
    if stated.epsilon == view.strategy.epsilon:
        return None, None
    return in_words(stated.epsilon), None if stated.delta is None else delta_in_words(stated.delta)


def next_release(view: StreamView, publish_every_us: int) -> str | None:
    """Return when a live stream's next bin becomes visible if no worker is late. Only the clock decides this.

    Args: publish_every_us, results become visible at multiples of this.
    """
    declared = view.declared
    if declared.until_us is not None or not view.epochs or view.history is not None or is_over(view):
        return None
    until_us = _until_us(view)
    if until_us is not None and view.binning.start_us(view.next_bin) >= until_us:
        return None
    closed_us = declared.time.closing.instant_us(view.next_bin)
    return format_instant(next_public_instant_us(closed_us, publish_every_us))


def is_over(view: StreamView) -> bool:
    """Return whether a stream has released everything that its total allows."""
    left = view.left
    return left is not None and left.is_spent and view.binning.start_us(view.next_bin) >= left.until_us


def predecessor(view: StreamView) -> str | None:
    """Return the stream, or the generation, that ends where this one begins; None if there is none."""
    if (edge := view.strategy.edge) is None:
        return None
    return address_of(edge.before) if edge.within else edge.before


def successor(view: StreamView) -> str | None:
    """Return the stream that begins where this one ends; None if there is none, or it is not known yet."""
    stated = () if view.statement is None else view.statement.measurements
    return next((one.stream for one in stated if one.successor_of == view.strategy.stream), None)


def _until_us(view: StreamView) -> int | None:
    """Return where a replay or a live stream ends; None for a stream without an end.

    A stream that has ended may have left the configuration. Its last epoch then says so.
    """
    if view.history is not None:
        return view.released_until_us
    if view.declared.until_us is not None:
        return view.declared.until_us
    stated = () if view.statement is None else view.statement.measurements
    own = [one.end_us for one in stated if one.stream == view.strategy.stream]
    if view.labels.until_us is not None and successor(view) is None:
        return view.labels.until_us
    last = view.epochs[-1].record if view.epochs else None
    if last is not None and last.end_reason == ENDED:
        return view.binning.start_us(last.final_bin + 1)
    if len(own) == 1 and own[0] is not None:
        return own[0]
    return view.left.until_us if view.left is not None and is_over(view) else None


def ends(view: StreamView) -> str | None:
    """Return where a stream ends, as text; None for a stream without an end."""
    return _instant(_until_us(view))


def _summary(view: StreamView) -> dict[str, Any]:
    until = view.released_until_us
    running = None if until is None else estimated(view.running(), DEFAULT_CONFIDENCE)
    binning = view.binning
    calendar = binning.timezone is not None
    return released(view) | {
        "title": view.labels.title or view.name,
        "generation_start": None if view.generation == 1 else _instant(view.declared.time.first_us),
        "changes": view.labels.changes or None,
        "display_timezone": view.labels.timezone,
        "source": view.labels.source(view.strategy.source),
        "epsilon": in_words(view.strategy.epsilon),
        "delta": None if view.strategy.delta is None else delta_in_words(view.strategy.delta),
        "bin": binning.text,
        "bin_seconds": None if calendar else binning.bin_us / 1e6,
        "timezone": binning.timezone,
        "start": format_instant(view.start_us),
        "kept_from": format_instant(view.start_us) if view.trimmed else None,
        "running": running,
        "counted": counted(view, view.span),
        "unmeasured": unmeasured_in(view, view.span),
        "retired": _instant(view.history.retired_us if view.history else None),
        "imported": _instant(view.history.imported_us if view.history else None),
        "this_epoch": users_of_epoch(view) if view.declared.count == "users" else None,
    }


def _instant(instant_us: int | None) -> str | None:
    return None if instant_us is None else format_instant(instant_us)


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


def _epoch(view: StreamView, epoch: EpochView) -> schemas.EpochAnswer:
    record = epoch.record
    return schemas.EpochAnswer(
        epoch=record.epoch,
        start=edge(view, record.first_bin),
        end=edge(view, record.final_bin + 1),
        bins=record.bins,
        bins_released=epoch.bins,
        first_seq=record.first_seq,
        end_reason=record.end_reason,
    )
