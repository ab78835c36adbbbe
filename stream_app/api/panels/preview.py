"""Preview answers' errors at another epsilon, from a new plan; nothing is measured. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dphist.laws.interval import half_widths
from dphist.privacy import exact
from dphist.product.columns import KeyPlaces, column_sum
from stream_app.api.answers.ranges import about_keys, edges_s, released
from stream_app.api.panels.answers import shorter_in_words, slices_of
from stream_app.api.panels.schemas import PreviewAnswer, PreviewQuery, PreviewQuestion
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.errors import Errors
from stream_app.core.kinds.tables import Span
from stream_app.core.ledger import in_words
from stream_app.core.strategy import Strategy

_DAY_US = 86_400_000_000


def preview(view: StreamView, query: PreviewQuery) -> PreviewAnswer:
    """Return how wide the intervals of slices and of typical questions are, now and at another epsilon."""
    slices, place = slices_of(view, query), view.place_of(query.keys_asked)
    then = replanned(view.strategy, query.epsilon)
    released_counts = view.of_key(query.keys_asked)
    values = [float(released_counts.count(one).value) for one in slices]
    widths = [_half_widths(view, one, place, slices, query.confidence) for one in (view.strategy, then)]
    return PreviewAnswer(
        **released(view) | about_keys(view, query),
        **edges_s(view, slices),
        epsilon=in_words(view.strategy.epsilon),
        preview_epsilon=f"{query.epsilon:g}",
        confidence=query.confidence,
        value=values,
        half_width=widths[0],
        preview_half_width=widths[1],
        questions=_questions(view, then, place, query.confidence),
        note=shorter_in_words(slices).strip(),
    )


def plan(strategy: bytes, epsilon: float) -> None:
    """Make the plan that ``preview`` needs, and cache it in this process. Raises: as ``replanned``."""
    replanned(Strategy.from_json(strategy), epsilon)


def replanned(strategy: Strategy, epsilon: float) -> Strategy:
    """Return the strategy that the planner makes from the same declaration at another epsilon.

    If windows get a part of epsilon, the stream's own shares are kept.
    Raises: QueryError for an epsilon that no plan fits.
    """
    other = exact(f"{epsilon:.3g}")  # rounded to few values, so that plans are cached
    try:
        return _replanned(strategy.to_json(), other)
    except ValueError as refusal:
        raise QueryError(f"epsilon: {epsilon:g} has no plan here ({refusal})", "epsilon") from None


@lru_cache(maxsize=256)
def _replanned(text: bytes, other: Fraction) -> Strategy:
    strategy = Strategy.from_json(text)
    asked = strategy.declared.asked(other, strategy.design.release)  # the release that is in use
    return replace(strategy, kind=strategy.kind.at_epsilon(asked))


def _half_widths(
    view: StreamView, strategy: Strategy, place: KeyPlaces | None, slices: Sequence[Span], confidence: float
) -> list[float]:
    """Return half the width of the ranges' intervals if the visible epochs had this strategy."""
    starts, stops = np.array(slices, dtype=np.int64).T
    covers = strategy.kind.covers()
    over = covers and covers.grow(view.epochs)
    laws, _ = _errors(strategy, place).points(view.epochs, starts, stops, over)
    return list(half_widths(laws, confidence)[0].tolist())


def _errors(strategy: Strategy, place: KeyPlaces | None) -> Errors:
    """Return the errors of counts, of some keys if places are given."""
    axes = strategy.kind.axes
    return strategy.kind.errors(columns=None if place is None or axes is None else column_sum(axes, place))


def _questions(
    view: StreamView, then: Strategy, place: KeyPlaces | None, confidence: float
) -> list[PreviewQuestion]:
    """Return typical questions: a bin, a day, the running count, each at the end of a whole epoch."""
    horizon = then.design.horizon
    day = 1 if view.binning.timezone else _DAY_US // view.binning.bin_us
    asked = {"the last bin of an epoch": 1}
    if 1 < day < horizon:
        asked["the last day of an epoch"] = day
    asked["a whole epoch, its running count at the end"] = horizon
    spans = [Span(horizon - bins, horizon) for bins in asked.values()]
    widths = [_whole_epoch(one, place, spans, confidence) for one in (view.strategy, then)]
    return [
        PreviewQuestion(question=words, half_width=now, preview_half_width=other)
        for words, now, other in zip(asked, *widths, strict=True)
    ]


def _whole_epoch(
    strategy: Strategy, place: KeyPlaces | None, spans: Sequence[Span], confidence: float
) -> list[float]:
    """Return half the width of the intervals of ranges within a complete epoch."""
    starts, stops = np.array(spans, dtype=np.int64).T
    laws, _ = _errors(strategy, place).within(strategy.design.horizon, starts, stops)
    return list(half_widths(laws, confidence)[0].tolist())
