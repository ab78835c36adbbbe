"""Answers for the panel of keys about sums and means of each key. Pure functions."""

from __future__ import annotations

from functools import partial
from typing import Any

from stream_app.api.admission.work import check_work
from stream_app.api.answers.ranges import measured_of, released, span_of
from stream_app.api.answers.sums import described
from stream_app.api.panels.answers import largest_rows, not_shown
from stream_app.api.panels.key_rows import KeyRows, listed_of
from stream_app.api.panels.schemas import KeyMean, KeysQuery, MeanKeysAnswer, SumKeysAnswer
from stream_app.core.answers.answered import QueryError, declared_keys
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, sums_of_keys
from stream_app.core.meaning import OfAmounts, meaning_of_amounts

_REMEDY = "configure keys"
_MEAN_US = 10_000  # at most, for the mean of a key


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
