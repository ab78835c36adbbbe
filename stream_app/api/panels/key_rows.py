"""The rows of /keys: the keys of the list, or the values of one of several key fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dphist.arrays import Int64Array
from dphist.product.columns import column_sum, key_counts
from dphist.product.forest import RangeSum
from dphist.tree.estimate import Estimate
from stream_app.api.panels.schemas import KeysQuery
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.whole import whole_estimate
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds.tables import Span


@dataclass(frozen=True)
class KeyRows:
    """The keys that each row counts.

    Args: labels of all rows; listed, the places of the rows that are asked for; over and within, return the
        numbers of all rows over the range, and within a slice of it. All rows have one law.
    """

    labels: Sequence[str]
    listed: Int64Array
    over: Callable[[Span], Estimate]
    within: Callable[[Span], Estimate]

    def largest_first(self, totals: Estimate, limit: int) -> list[int]:
        """Return the places of the rows with the largest numbers, at most ``limit``."""
        values = np.asarray(totals.value)[self.listed]
        found: list[int] = self.listed[np.argsort(-values, kind="stable")][:limit].tolist()
        return found


def key_rows_of(view: StreamView, query: KeysQuery, keys: KeyList) -> KeyRows:
    """Return the rows that a question asks for. Raises: QueryError."""
    if query.by is None:

        def counts_within(span: Span) -> Estimate:
            return whole_estimate(key_counts(view.cells(span)))

        return KeyRows(keys.labels, listed_of(view, query, keys), view.counts_of_keys, counts_within)
    wanted = view.place_of(query.keys_asked)
    fields = [part.field for part in keys.fields]
    if query.by not in fields:
        known = f"those of this stream are {', '.join(fields)}" if fields else "this stream has only one"
        raise QueryError(f"by: {query.by[:80]!r} is not a key field; {known}", "by")
    if wanted is not None:
        raise QueryError("by: leave key and not_key out; rows are of all values of the field", "by")
    axis = fields.index(query.by)
    labels = [keys.pattern_of(axis, value) for value in range(keys.sizes[axis])]

    def within(span: Span) -> Estimate:
        return rolled_up(keys, axis, view.cells(span))

    return KeyRows(labels, np.arange(len(labels)), within, lambda span: whole_estimate(within(span)))


def listed_of(view: StreamView, query: KeysQuery, keys: KeyList) -> Int64Array:
    """Return the places of the keys that a question names; of all if it names none. Raises: QueryError."""
    wanted = view.place_of(query.keys_asked)
    if wanted is None:
        return np.arange(len(keys.labels))
    named = np.atleast_1d(np.array(wanted, np.int64))
    listed = named[named < len(keys.labels)]  # without the total less all keys, whose error is larger
    if not listed.size:
        raise QueryError("key: other is no row, but the total less all rows; ask /count for it", "key")
    return listed


def rolled_up(keys: KeyList, axis: int, total: RangeSum) -> Estimate:
    """Return the counts of every value of a field: (values,), and one law, since all have as many keys.

    Guarantee: sums of the keys' own estimates, so rows of all fields add up to the total.
    Args: axis, the field's index.
    """
    counts = np.asarray(key_counts(total).value).reshape(keys.sizes)
    others = tuple(at for at in range(len(keys.sizes)) if at != axis)
    together = keys.matching(keys.pattern_of(axis, 0))
    return replace(column_sum(total.design, together).of_range(total), value=counts.sum(axis=others))
