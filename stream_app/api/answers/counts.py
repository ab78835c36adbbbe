"""Answer questions about counts: of a range, as a series, and node by node. Pure functions."""

from __future__ import annotations

import numpy as np

from stream_app.api import schemas
from stream_app.api.answers.ranges import (
    about_keys,
    counted,
    ends_left_out,
    estimated,
    measured_of,
    points_answered,
    ranges_of,
    released,
    span_of,
)
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.consistent import Method
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.tables import node_table

_CONSISTENT = (
    "Values are whole numbers that never fall and add up; they are biased, and stderr and intervals are "
    "those of the unbiased values."
)
MOST_NUMBERS = 100_000  # in one answer of /nodes


def count(view: StreamView, query: schemas.CountQuery) -> schemas.CountAnswer:
    """Answer a range count. Raises: QueryError."""
    of_key = view.of_key(query.keys_asked)
    span = span_of(of_key, query)
    found = of_key.count(span)
    return schemas.CountAnswer(
        **released(view) | about_keys(view, query),
        counted=counted(of_key, span),
        **measured_of(of_key, span),
        **estimated(found, query.confidence),
    )


def series(view: StreamView, query: schemas.SeriesQuery) -> schemas.SeriesAnswer:
    """Answer a series. Consistent values get the intervals of the unbiased values, cut off at zero.

    Raises: QueryError.
    """
    consistent = query.view == "consistent"
    if query.method is not None and not consistent:
        raise QueryError("method: needs view=consistent; add that, or leave method out", "method")
    shown = "unbiased" if query.view == "consistent" else query.view
    keyed = query.keys_asked and not all(kind.keys_as_first_published for kind in view.kinds)
    if shown != "unbiased" and keyed:
        raise QueryError("view: only the total is kept as first published; leave out view or key", "view")
    of_key = view.of_key(query.keys_asked)
    span = span_of(of_key, query)
    ranges = ranges_of(of_key, query, span)
    found = of_key.over_ranges(query.kind, shown, *ranges, query.points)
    fields = points_answered(view, query, found, ends_left_out(view, query, span, ranges))
    if consistent:
        starts, stops = np.array(found.spans, np.int64).reshape(-1, 2).T
        fields["value"] = of_key.consistent(starts, stops, _method(view, query)).tolist()
        fields |= {name: np.maximum(fields[name], 0.0).tolist() for name in ("lower", "upper")}
        fields["note"] = f"{_CONSISTENT} {fields['note']}"
    return schemas.SeriesAnswer(**fields)


def _method(view: StreamView, query: schemas.SeriesQuery) -> Method:
    """Return the method of consistent values: the one asked for, or the default.

    Raises: QueryError for a method that the stream has not.
    """
    if all(kind.tree_design is not None for kind in view.kinds):
        return query.method or "top_down"
    if query.method == "top_down":
        raise QueryError("method: top_down needs a tree, and this stream has none; write isotonic", "method")
    return "isotonic"


def nodes(view: StreamView, query: schemas.NodesQuery) -> schemas.NodesAnswer:
    """Return released nodes of one level. Raises: QueryError for an unknown epoch or level."""
    number = view.epoch if query.epoch is None else query.epoch
    epoch = next((one for one in view.epochs if one.record.epoch == number), None)
    if epoch is None:
        raise QueryError(f"epoch: {number} is not there; the last is {view.epoch}", "epoch")
    kind = view.kind_of(epoch.record)
    if kind.tree_design is None or not kind.node_levels:
        only = "releases running counts only, every column's; ask for /series, /cdf or /quantile"
        which = (
            "an anticipating stream over keys or values" if kind.drawn_ahead else "a stream without a tree"
        )
        raise QueryError(f"nodes: {which} {only}", "stream")
    design = kind.tree_design
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
        scale=None if kind.axes else float(design.scales[level - 1]),
        values=values[query.first : query.first + limit].tolist(),
        nodes_released=len(values),
    )
