"""The keys of a stream: its public list, and those with the largest counts, sums or means. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate, islice
from typing import Any

import numpy as np

from dphist.arrays import Int64Array
from dphist.product.columns import column_sum, key_counts
from dphist.product.forest import RangeSum
from dphist.tree.estimate import Estimate
from stream_app.api import schemas
from stream_app.api.admission.work import check_work
from stream_app.api.answers.ranges import OWN_POINT, estimated, measured_of, reach, released, span_of
from stream_app.api.answers.slices import slices_of
from stream_app.api.answers.sums import described
from stream_app.api.schemas import KeyMean, KeysAnswer, KeysQuery, MeanKeysAnswer, SumKeysAnswer
from stream_app.core.answers.answered import QueryError, declared_keys, whole_estimate
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, sums_of_keys
from stream_app.core.counting.keys import KeyList
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import Span
from stream_app.core.meaning import OfAmounts, meaning_of_amounts

LIST_US = 2_000.0  # a part of a list of 100,000 keys
_MEAN_US = 10_000  # of computing the mean of one key, at most
_REMEDY = "configure keys"
_BETWEEN = "\n"  # names, where they are searched as one text


def key_list(view: StreamView, query: schemas.KeyListQuery) -> schemas.KeyListAnswer:
    """Return a part of a stream's list of keys, or which of some names it has. Raises: QueryError."""
    declared = view.declared.keys
    if declared is None:
        raise QueryError("this stream has no keys; ask for its count", "stream")
    names = _names(declared, query.field)
    if query.key:
        return looked_up(view, declared, query)
    found = list(islice(containing(names, query.contains.lower(), query.after), query.limit + 1))
    shown = found[: query.limit]
    return schemas.KeyListAnswer(
        stream=view.name,
        field=query.field,
        found=found_at(view, shown),
        listed=len(names),
        keys=[names[place] for place in shown],
        next=shown[-1] + 1 if len(found) > len(shown) else None,
        unknown=[],
    )


def found_at(view: StreamView, places: Sequence[int | None]) -> list[str | None] | None:
    """Return when the keys at these places were found, null for listed ones; None if no keys are found.

    Args: places, in the list of keys, with ``other`` after it; None for a pattern, which is no key.
    """
    if not view.declared.finds_keys:
        return None
    found = view.epochs[-1].record.found if view.epochs else ()
    ends = [format_instant(view.binning.end_us(one.bin)) for one in found for _ in one.names]
    listed = len(view.declared.keys.labels) - len(ends) if view.declared.keys else 0
    has = range(listed, listed + len(ends))
    return [ends[place - listed] if place is not None and place in has else None for place in places]


def looked_up(view: StreamView, declared: KeyList, query: schemas.KeyListQuery) -> schemas.KeyListAnswer:
    """Return which of the asked names are keys, or patterns of several fields that match keys."""
    if query.contains or query.field is not None or query.after:
        line = "key: looks names up, so it stands alone; leave contains, field and after out"
        raise QueryError(line, "key")
    known = [name for name in query.key if name in declared.place_of_label or declared.matches(name)]
    known_names = set(known)
    return schemas.KeyListAnswer(
        stream=view.name,
        field=None,
        found=found_at(view, [declared.place_of_label.get(name) for name in known]),
        listed=len(declared.labels),
        keys=known,
        next=None,
        unknown=[name for name in query.key if name not in known_names],
    )


def _names(declared: KeyList, field: str | None) -> tuple[str, ...]:
    """Return the keys, or the values of one of several fields. Raises: QueryError."""
    if field is None:
        return declared.labels
    for one in declared.fields:
        if one.field == field:
            return one.values
    known = ", ".join(one.field for one in declared.fields)
    several = f"known are {known}" if known else "this stream has one; leave field out"
    raise QueryError(f"field: {field[:80]!r} is none of several key fields; {several}", "field")


def containing(names: tuple[str, ...], sought: str, after: int) -> Iterator[int]:
    """Yield the places of names that contain a text, from one place on.

    Args: sought, in lower case.
    Cost: one search through the text of the names that are passed, in C.
    """
    if not sought:
        yield from range(after, len(names))
        return
    if _BETWEEN in sought:  # between any two names the text below would hold a part of it
        yield from (place for place in range(after, len(names)) if sought in names[place].lower())
        return
    text, starts = _searched(names)
    while after < len(names):
        at = text.find(sought, int(starts[after]))
        if at < 0:
            return
        after = int(np.searchsorted(starts, at, side="right"))
        yield after - 1


@lru_cache(maxsize=8)
def _searched(names: Sequence[str]) -> tuple[str, Int64Array]:
    """Return all names in one text in lower case, and where each begins; at the end, where the text ends."""
    lowered = [f"{name.lower()}{_BETWEEN}" for name in names]
    return "".join(lowered), np.fromiter(accumulate(map(len, lowered), initial=0), np.int64)


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


def sums_by_key(view: StreamView, query: KeysQuery) -> SumKeysAnswer:
    """Return the keys with the largest sums, over the whole range and in every slice. Raises: QueryError."""
    common, declared = _common(view, query, "sum"), declared_keys(view.strategy, _REMEDY)
    view = view.of_one_list()
    sums = partial(sums_of_keys, view)
    rows = KeyRows(declared.labels, listed_of(view, query, declared), sums, sums)
    return SumKeysAnswer(**common, **largest_rows(view, query, rows, "sums"))


def means_by_key(view: StreamView, query: KeysQuery) -> MeanKeysAnswer:
    """Return the means of the keys with the most events over a range. Raises: QueryError.

    Cost: 2 to 10 ms for each key.
    """
    common, declared = _common(view, query, "mean"), declared_keys(view.strategy, _REMEDY)
    view = view.of_one_list()
    span, listed = span_of(view, query), listed_of(view, query, declared)
    check_work(_MEAN_US * min(query.limit, len(listed)), "limit", "write 400 or less")
    rows = KeyRows(declared.labels, listed, view.counts_of_keys, view.counts_of_keys)
    order = rows.largest_first(rows.over(span), query.limit)
    means = [mean_over(view, span, rows.labels[place], query.confidence) for place in order]
    return MeanKeysAnswer(
        **common,
        **measured_of(view, span),
        confidence=query.confidence,
        keys=[
            KeyMean(key=rows.labels[place], value=one.value, interval=(one.lower, one.upper))
            for place, one in zip(order, means, strict=True)
        ],
        keys_available=len(listed),
        note=not_shown(len(listed) - len(order), "counts") + "Each interval holds for its own key.",
    )


def _common(view: StreamView, query: KeysQuery, of: OfAmounts) -> dict[str, Any]:
    """Return the fields that every answer carries. Raises: QueryError, also for a stream without a sum."""
    if query.by is not None:
        raise QueryError(
            "by: sums and means are listed by key; leave it out, or ask /sum with a pattern", "by"
        )
    amounts, meaning = described(view), meaning_of_amounts(view.declared, of)
    words = {"meaning": meaning.counts, "intervals": meaning.intervals}
    return {**released(view), **words, "amounts": amounts}


def keys(view: StreamView, query: KeysQuery) -> KeysAnswer:
    """Return the keys with the largest estimates, with counts over the whole range and in every slice."""
    declared, view = declared_keys(view.strategy, _REMEDY), view.of_one_list()
    rows = key_rows_of(view, query, declared)
    return KeysAnswer(**released(view), **largest_rows(view, query, rows, "estimates"))


def largest_rows(view: StreamView, query: KeysQuery, rows: KeyRows, what: str) -> dict[str, Any]:
    """Return the fields of an answer about the rows with the largest numbers. Args: what, the rows' noun.

    Raises: QueryError.
    """
    slices, span = slices_of(view, query), span_of(view, query)
    totals = rows.over(span)
    order = rows.largest_first(totals, query.limit)
    check_numbers(len(order), len(slices.spans))
    # Slice by slice, keeping only the rows shown: all slices at once may not fit in memory.
    found = [at_places(rows.within(one), order) for one in slices.spans]
    values, halves = np.array([one.value for one in found]), reach(found, query.confidence)
    by_released = "The order is that of released values. " if view.declared.finds_keys else ""
    instants = (query.by is None and found_at(view, order)) or [None] * len(order)
    return {
        **slices.answered(view),
        "over": schemas.Over(**measured_of(view, span)),
        "keys": [
            schemas.KeyCounts(
                **estimated(at_places(totals, place), query.confidence),
                key=rows.labels[place],
                found=at,
                counts=of_key.tolist(),
                lower=(of_key - halves).tolist(),
                upper=(of_key + halves).tolist(),
            )
            for place, of_key, at in zip(order, values.T, instants, strict=True)
        ],
        "keys_available": len(rows.listed),
        "note": not_shown(len(rows.listed) - len(order), what) + by_released + slices.in_words + OWN_POINT,
    }


def check_numbers(keys: int, slices: int) -> None:
    """Check that an answer has not too many counts. Raises: QueryError."""
    if keys * slices > schemas.MOST_OF_KEYS:
        raise QueryError(
            f"limit: {keys:,} keys in {slices:,} slices; at most {schemas.MOST_OF_KEYS:,} counts are given "
            f"at once, write {schemas.MOST_OF_KEYS // slices:,} or less, or a longer step",
            "limit",
        )


def not_shown(keys: int, what: str) -> str:
    """Return a sentence about the keys that an answer leaves out; empty if it has all of them."""
    return f"{keys:,} keys with smaller {what} are not shown. " if keys else ""


def at_places(counts: Estimate, places: int | list[int]) -> Estimate:
    """Return the counts of the keys at these indices: an array, or one number for a single index."""
    found = np.asarray(counts.value)[places]
    return replace(counts, value=float(found) if isinstance(places, int) else found)
