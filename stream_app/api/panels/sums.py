"""Answers for the panel of keys about sums and means of each key. Pure functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dphist.tree.estimate import Estimate
from stream_app.api.admission.work import check_work
from stream_app.api.answers.ranges import OWN_POINT, estimated, measured_of, reach, released, span_of
from stream_app.api.answers.sums import described
from stream_app.api.panels.answers import at_places, check_numbers, slices_of
from stream_app.api.panels.schemas import KeyCounts, KeyMean, KeysQuery, MeanKeysAnswer, Over, SumKeysAnswer
from stream_app.core.answers.answered import QueryError, declared_keys
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, sums_of_keys
from stream_app.core.meaning import OfAmounts, meaning_of_amounts

_REMEDY = "configure keys"
_MEAN_US = 10_000  # at most, for the mean of a key


def sums_by_key(view: StreamView, query: KeysQuery) -> SumKeysAnswer:
    """Return the keys with the largest sums, over the whole range and in every slice. Raises: QueryError."""
    common = _common(view, query, "sum")
    labels, slices = declared_keys(view.strategy, _REMEDY).labels, slices_of(view, query)
    span = span_of(view, query)
    totals = sums_of_keys(view, span)
    order = _largest(view, totals, query)
    check_numbers(len(order), len(slices.spans))
    found = [at_places(sums_of_keys(view, one), order) for one in slices.spans]
    values, halves = np.array([one.value for one in found]), reach(found, query.confidence)
    return SumKeysAnswer(
        **common,
        **slices.answered(view),
        over=Over(**measured_of(view, span)),
        keys=[
            KeyCounts(
                **estimated(at_places(totals, place), query.confidence),
                key=labels[place],
                counts=of_key.tolist(),
                lower=(of_key - halves).tolist(),
                upper=(of_key + halves).tolist(),
            )
            for place, of_key in zip(order, values.T, strict=True)
        ],
        keys_available=len(labels),
        note=_left_out(len(labels) - len(order), "sums") + slices.in_words + OWN_POINT,
    )


def means_by_key(view: StreamView, query: KeysQuery) -> MeanKeysAnswer:
    """Return the means of the keys with the most events over a range. Raises: QueryError.

    Cost: 2 to 10 ms for each key.
    """
    common = _common(view, query, "mean")
    labels, span = declared_keys(view.strategy, _REMEDY).labels, span_of(view, query)
    check_work(_MEAN_US * min(query.limit, len(labels)), "limit", "write 400 or less")
    order = _largest(view, view.counts_of_keys(span), query)
    means = [mean_over(view, span, labels[place], query.confidence) for place in order]
    return MeanKeysAnswer(
        **common,
        **measured_of(view, span),
        confidence=query.confidence,
        keys=[
            KeyMean(key=labels[place], value=one.value, interval=(one.lower, one.upper))
            for place, one in zip(order, means, strict=True)
        ],
        keys_available=len(labels),
        note=_left_out(len(labels) - len(order), "counts") + "Each interval holds for its own key.",
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


def _largest(view: StreamView, totals: Estimate, query: KeysQuery) -> list[int]:
    """Return the places of the keys with the largest estimates, of all keys or of those asked for."""
    values, wanted = np.asarray(totals.value), view.place_of(query.keys_asked)
    listed = np.arange(len(values)) if wanted is None else np.atleast_1d(wanted)
    largest: list[int] = listed[np.argsort(-values[listed], kind="stable")][: query.limit].tolist()
    return largest


def _left_out(keys: int, what: str) -> str:
    return f"{keys:,} keys with smaller {what} are not shown. " if keys > 0 else ""
