"""Preview answers' errors at another epsilon, from a new plan; nothing is measured. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dphist.laws.interval import half_widths
from dphist.laws.law import LawTable
from dphist.privacy import exact
from dphist.product.columns import KeyPlaces, column_sum
from dphist.product.sums import sum_columns
from dphist.tree.forest_laws import RangeErrors
from stream_app.api.answers.ranges import about_keys, released
from stream_app.api.answers.slices import slices_of
from stream_app.api.answers.sums import released_amounts
from stream_app.api.schemas import PreviewAnswer, PreviewQuery, PreviewQuestion
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import declared_sum, sum_of
from stream_app.core.counting.cells import Amounts
from stream_app.core.kinds import Kind
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.errors import Errors
from stream_app.core.kinds.tables import Span
from stream_app.core.promise import in_words
from stream_app.core.strategy import Strategy

_DAY_US = 86_400_000_000


def preview(view: StreamView, query: PreviewQuery) -> PreviewAnswer:
    """Return how wide the intervals of slices and of typical questions are, now and at another epsilon."""
    sliced, asked = slices_of(view, query), _Quantity.of(view, query)
    slices = sliced.spans
    then = replanned(view.strategy, query.epsilon)
    # Streams that have ended stay as they are.
    earlier = [run for run in view.runs if run[1] and run[1][0] not in view.own.epochs]
    widths = [
        _half_widths(view, runs, asked, slices, query.confidence)
        for runs in (view.runs, [*earlier, (then.kind, view.own.epochs)])
    ]
    of_counts = released(view) | about_keys(view, query)
    return PreviewAnswer(
        **of_counts if asked.amounts is None else released_amounts(view, query, "sum"),
        **sliced.answered(view),
        epsilon=in_words(view.strategy.epsilon),
        preview_epsilon=f"{query.epsilon:g}",
        confidence=query.confidence,
        value=_values(view, query, slices),
        half_width=widths[0],
        preview_half_width=widths[1],
        questions=_questions(view, then, asked, query.confidence),
        note=sliced.in_words.strip(),
    )


@dataclass(frozen=True)
class _Quantity:
    """The previewed quantity. Args: place, of keys, None for all; amounts, of sums, None for counts."""

    place: KeyPlaces | None
    amounts: Amounts | None

    @classmethod
    def of(cls, view: StreamView, query: PreviewQuery) -> _Quantity:
        """Read a question. Raises: QueryError."""
        return cls(view.place_of(query.keys_asked), declared_sum(view) if query.of == "sum" else None)

    def errors(self, kind: Kind) -> Errors:
        """Return the errors of this quantity in a kind of release; of sums in units of the amount."""
        axes, columns = kind.axes, None
        if axes is not None and self.amounts is not None:
            columns = sum_columns(axes, self.amounts.range, self.place)
        elif axes is not None and self.place is not None:
            columns = column_sum(axes, self.place)
        return kind.errors(columns=columns)

    def half_widths(self, laws: LawTable, confidence: float) -> list[float]:
        """Return half the width of each interval, in events or in amounts."""
        unit = 1.0 if self.amounts is None else float(self.amounts.unit)
        return [half * unit for half in half_widths(laws, confidence)[0].tolist()]


def _values(view: StreamView, query: PreviewQuery, slices: Sequence[Span]) -> list[float]:
    if query.of == "sum":
        return [float(sum_of(view, one, query.keys_asked).value) for one in slices]
    counts = view.of_key(query.keys_asked)
    return [float(counts.count(one).value) for one in slices]


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
    asked = strategy.declared.asked(other, strategy.kind.release)  # the release that is in use
    return replace(strategy, kind=strategy.kind.at_epsilon(asked))


def _half_widths(
    view: StreamView,
    runs: Sequence[tuple[Kind, Sequence[EpochView]]],
    asked: _Quantity,
    slices: Sequence[Span],
    confidence: float,
) -> list[float]:
    """Return half the width of the ranges' intervals, if the visible epochs were released by these kinds."""
    starts, stops = np.array(slices, dtype=np.int64).T
    parts = []
    for kind, epochs in runs:
        covers = kind.new_covers()
        over = covers and covers.grow(epochs)
        parts.append(asked.errors(kind).points(epochs, starts, stops, over))
    return asked.half_widths(RangeErrors.added(parts).laws, confidence)


def _questions(
    view: StreamView, then: Strategy, asked: _Quantity, confidence: float
) -> list[PreviewQuestion]:
    """Return typical questions: a bin, a day, the running count, each at the end of a whole epoch."""
    horizon = then.time.horizon
    day = 1 if view.binning.timezone else _DAY_US // view.binning.bin_us
    questions = {"the last bin of an epoch": 1}
    if 1 < day < horizon:
        questions["the last day of an epoch"] = day
    running = "count" if asked.amounts is None else "total"
    questions[f"a whole epoch, its running {running} at the end"] = horizon
    spans = [Span(horizon - bins, horizon) for bins in questions.values()]
    widths = [_whole_epoch(one, asked, spans, confidence) for one in (view.strategy, then)]
    return [
        PreviewQuestion(question=words, half_width=now, preview_half_width=other)
        for words, now, other in zip(questions, *widths, strict=True)
    ]


def _whole_epoch(
    strategy: Strategy, asked: _Quantity, spans: Sequence[Span], confidence: float
) -> list[float]:
    """Return half the width of the intervals of ranges within a complete epoch."""
    starts, stops = np.array(spans, dtype=np.int64).T
    laws, _ = asked.errors(strategy.kind).within(strategy.time.horizon, starts, stops)
    return asked.half_widths(laws, confidence)
