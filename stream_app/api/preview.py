"""What the same answers would look like at another epsilon: planned anew, nothing is measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from dphist.privacy import exact
from dphist.product.columns import column_sum
from dphist.product.planner import plan_product
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from dphist.tree.interval import half_widths
from dphist.tree.law import WeightedNoise
from dphist.tree.planner import plan_tree
from dphist.tree.weights import range_weights
from stream_app.api.panel_schemas import PreviewAnswer, PreviewQuery, PreviewQuestion
from stream_app.api.panels import edges_s, reach, slices_of
from stream_app.api.ranges import released
from stream_app.core.bounding import PerUser
from stream_app.core.epoch_view import Span
from stream_app.core.ledger import in_words
from stream_app.core.levels_view import EpochCovers
from stream_app.core.published_series import PublishedErrors, published_points
from stream_app.core.query import QueryError, StreamView
from stream_app.core.strategy import Strategy

_DAY_US = 86_400_000_000


def preview(view: StreamView, query: PreviewQuery) -> PreviewAnswer:
    """Set the intervals of a range's slices, and of some questions, beside those of another epsilon."""
    slices, place = slices_of(view, query), view.place_of(query.key)
    then = replanned(view.strategy, query.epsilon)
    released_counts = view.of_key(query.key)
    values = [float(released_counts.count(one).value) for one in slices]
    widths = [_half_widths(view, one, place, slices, query.confidence) for one in (view.strategy, then)]
    return PreviewAnswer.model_validate(
        released(view)
        | edges_s(view, slices)
        | {
            "epsilon": in_words(view.strategy.epsilon),
            "preview_epsilon": f"{query.epsilon:g}",
            "confidence": query.confidence,
            "value": values,
            "half_width": widths[0],
            "preview_half_width": widths[1],
            "questions": _questions(view, then, place, query.confidence),
        }
    )


def replanned(strategy: Strategy, epsilon: float) -> Strategy:
    """Return what the planner would choose for the same declaration at another epsilon.

    Where the plan leaves a part of epsilon to windows, the stream's own shares are kept.
    Raises: QueryError for an epsilon that no plan fits.
    """
    other = exact(f"{epsilon:.3g}")  # few of them, so that plans are remembered
    try:
        return _replanned(strategy.to_json(), other)
    except ValueError as refusal:
        raise QueryError(f"epsilon: {epsilon:g} has no plan here ({refusal})", "epsilon") from None


@lru_cache(maxsize=256)
def _replanned(text: bytes, other: Fraction) -> Strategy:
    strategy = Strategy.from_json(text)
    design = strategy.design
    if strategy.window is not None:
        return replace(strategy, design=replace(design, epsilon=other))
    if strategy.over_epochs is not None:
        epoch = replace(design, epsilon=design.epsilon * other / strategy.epsilon)
        return replace(strategy, design=epoch, over_epochs=strategy.over_epochs.at_epsilon(other, epoch))
    tree, per_user = strategy.declared["tree"], PerUser.of(strategy.declared)
    asked: dict[str, Any] = {
        "horizon": design.horizon,
        "epsilon": other,
        "workload": tree["workload"],
        "release": design.release,
        "neighbours": design.neighbours,
        "max_events": 1 if per_user is None else per_user.max_events,
        "branching": tree["branching"],
        "shares": tree["shares"] if isinstance(tree["shares"], list) else None,
    }
    product = strategy.product
    if product is None:
        return replace(strategy, design=plan_tree(**asked))
    again = plan_product(
        **asked,
        keys=product.keys.keys,
        buckets=product.values.buckets,
        total_share=product.keys.total_share,
    )
    return replace(strategy, design=again.time, product=again)


def _half_widths(
    view: StreamView, strategy: Strategy, place: int | None, slices: Sequence[Span], confidence: float
) -> list[float]:
    if strategy.design.release == "anticipating":
        starts, stops = (np.array(edges, dtype=np.int64) for edges in zip(*slices, strict=True))
        errors, over = PublishedErrors.of(strategy, place), strategy.over_epochs
        covers = None if over is None else EpochCovers(over).grow(view.epochs)
        laws, _ = published_points(errors, view.epochs, starts, stops, covers)
        halves, _ = half_widths(laws, confidence)
    else:
        joined = [_joined(view, strategy, place, one) for one in slices]
        halves = reach([Estimate(0.0, law.variance, law) for law in joined], confidence)
    return [float(half) for half in halves]


def _joined(view: StreamView, strategy: Strategy, place: int | None, span: Span) -> WeightedNoise:
    """Join the laws of a range's parts: epochs have independent noise."""
    parts = [(epoch.bins, epoch.within(span)) for epoch in view.epochs]
    laws = [_causal_law(strategy, place, bins, part) for bins, part in parts if part.start < part.stop]
    return WeightedNoise.of(group for law in laws for group in law.groups)


def _causal_law(strategy: Strategy, place: int | None, bins: int, part: Span) -> WeightedNoise:
    """Return the law of a range within an epoch of which ``bins`` bins are closed."""
    if strategy.product is None:
        return _law_over_time(strategy.design, bins, part)
    laws = [_law_over_time(group.design, bins, part) for group in strategy.product.groups]
    return column_sum(strategy.product, place).law(laws)


@lru_cache(maxsize=8192)
def _law_over_time(design: TreeDesign, bins: int, part: Span) -> WeightedNoise:
    return range_weights(design, bins, part.start, part.stop).law()


def _questions(
    view: StreamView, then: Strategy, place: int | None, confidence: float
) -> list[PreviewQuestion]:
    """Ask what people ask: a bin, a day, the running count, each at the end of a whole epoch."""
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
    strategy: Strategy, place: int | None, spans: Sequence[Span], confidence: float
) -> list[float]:
    """Return half the width of intervals of ranges within an epoch that is complete."""
    if strategy.design.release == "anticipating":
        starts, stops = (np.array(edges, dtype=np.int64) for edges in zip(*spans, strict=True))
        halves, _ = half_widths(PublishedErrors.of(strategy, place).laws(starts, stops), confidence)
    else:
        laws = [_causal_law(strategy, place, strategy.design.horizon, one) for one in spans]
        halves = reach([Estimate(0.0, law.variance, law) for law in laws], confidence)
    return [float(half) for half in halves]
