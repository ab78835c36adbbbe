"""The counts of all keys of a stream in one pass over columns; the same answers as each key's view gives."""

from __future__ import annotations

from dphist.laws.law import WeightedNoise
from dphist.tree.estimate import Estimate
from stream_app.core.answered import QueryError
from stream_app.core.cells import KeyList
from stream_app.core.kinds.tables import Span
from stream_app.core.query import StreamView


def declared_keys(view: StreamView, remedy: str) -> KeyList:
    """Return the keys that have counts over any range. Raises: QueryError with the remedy if none have."""
    strategy = view.strategy
    if strategy.axes.keys is not None:
        return strategy.axes.keys
    if strategy.declared.cells.keys is not None:
        raise QueryError("this stream's keys are counted in windows only; ask for /window", "stream")
    raise QueryError(f"this stream has no keys; {remedy}", "stream")


def counts_of_keys(view: StreamView, span: Span) -> Estimate:
    """Return the events of every key in the measured part of a range: values (keys,), one law for each.

    The law joins epoch by epoch, as for one key, so no error depends on the number of keys asked for.
    Cost: O(columns) for each epoch that the range only partly covers, O(keys) for each whole epoch.
    """
    parts = [axes.of_keys(part) for epoch, part in view.parts(span) if (axes := epoch.over_axes)]
    if len(parts) == 1:
        return parts[0]
    return Estimate(
        value=sum(part.value for part in parts),
        variance=sum(part.variance for part in parts),
        law=WeightedNoise.joined(part.law for part in parts),
        rounding=sum(part.rounding for part in parts),
    )
