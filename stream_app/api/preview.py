"""What the same answers would look like at another epsilon: planned anew, nothing is measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dphist.privacy import exact
from dphist.product.columns import column_sum
from dphist.product.design import ProductDesign
from dphist.product.planner import plan_product
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from dphist.tree.interval import half_width
from dphist.tree.law import WeightedNoise
from dphist.tree.node_design import NodeDesign
from dphist.tree.planner import plan_tree
from dphist.tree.published_error import published_law
from dphist.tree.weights import range_weights
from stream_app.api.panel_schemas import PreviewAnswer, PreviewQuery, PreviewQuestion
from stream_app.api.panels import edges_s, reach, slices_of
from stream_app.api.ranges import released
from stream_app.core.bounding import PerUser
from stream_app.core.epoch_view import Span
from stream_app.core.ledger import in_words
from stream_app.core.query import StreamView
from stream_app.core.strategy import Strategy

_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Shares:
    """A tree over time, with what is counted beside time. Args: key, its place; None for all keys."""

    time: TreeDesign | NodeDesign
    product: ProductDesign | None
    key: int | None = None

    @classmethod
    def of(cls, strategy: Strategy, key: int | None = None) -> Shares:
        """Return a stream's own."""
        return cls(strategy.design, strategy.product, key)

    def law(self, bins: int, part: Span) -> WeightedNoise:
        """Return the law of a range within an epoch of which ``bins`` bins are closed."""
        if self.product is None:
            return _law(self.time, bins, part)
        laws = [_law(group.design, bins, part) for group in self.product.groups]
        return column_sum(self.product, self.key).law(laws)


def preview(view: StreamView, query: PreviewQuery) -> PreviewAnswer:
    """Set the intervals of a range's slices, and of some questions, beside those of another epsilon."""
    slices, key = slices_of(view, query), view.place_of(query.key)
    now = Shares.of(view.strategy, key)
    then = replanned(view.strategy, query.epsilon, key)
    released_counts = view.of_key(query.key)
    values = [float(released_counts.count(one).value) for one in slices]
    return PreviewAnswer.model_validate(
        released(view)
        | edges_s(view, slices)
        | {
            "epsilon": in_words(view.strategy.design.epsilon),
            "preview_epsilon": f"{query.epsilon:g}",
            "confidence": query.confidence,
            "value": values,
            "half_width": _half_widths(view, now, slices, query.confidence),
            "preview_half_width": _half_widths(view, then, slices, query.confidence),
            "questions": _questions(view, now, then, query.confidence),
        }
    )


def replanned(strategy: Strategy, epsilon: float, key: int | None = None) -> Shares:
    """Return what the planner would choose for the same declaration at another epsilon."""
    design, tree = strategy.design, strategy.declared["tree"]
    per_user = PerUser.of(strategy.declared)
    asked: dict[str, Any] = {
        "horizon": design.horizon,
        "epsilon": f"{epsilon:.3g}",  # few of them, so that plans are remembered
        "workload": tree["workload"],
        "release": design.release,
        "neighbours": design.neighbours,
        "max_events": 1 if per_user is None else per_user.max_events,
        "branching": tree["branching"],
        "shares": tree["shares"] if isinstance(tree["shares"], list) else None,
    }
    product = strategy.product
    if isinstance(design, NodeDesign):
        # The best shares hardly depend on epsilon, and a new plan would take seconds.
        return Shares(replace(design, epsilon=exact(asked["epsilon"])), None)
    if product is None:
        return Shares(plan_tree(**asked), None)
    again = plan_product(
        **asked,
        keys=product.keys.keys,
        buckets=product.values.buckets,
        total_share=product.keys.total_share,
    )
    return Shares(again.time, again, key)


def _half_widths(view: StreamView, shares: Shares, slices: Sequence[Span], confidence: float) -> list[float]:
    laws = [_joined(view, shares, one) for one in slices]
    return [float(half) for half in reach([Estimate(0.0, law.variance, law) for law in laws], confidence)]


def _joined(view: StreamView, shares: Shares, span: Span) -> WeightedNoise:
    """Join the laws of a range's parts: epochs have independent noise."""
    parts = [(epoch, epoch.within(span)) for epoch in view.epochs]
    laws = [shares.law(epoch.bins, part) for epoch, part in parts if part.start < part.stop]
    return WeightedNoise.joined(laws)


def _questions(view: StreamView, now: Shares, then: Shares, confidence: float) -> list[PreviewQuestion]:
    """Ask what people ask: a bin, a day, the running count, each at the end of a whole epoch."""
    horizon = now.time.horizon
    day = 1 if view.binning.timezone else _DAY_US // view.binning.bin_us
    asked = {"the last bin of an epoch": 1}
    if 1 < day < horizon:
        asked["the last day of an epoch"] = day
    asked["a whole epoch, its running count at the end"] = horizon
    return [
        PreviewQuestion(
            question=words,
            half_width=half_width(now.law(horizon, Span(horizon - bins, horizon)), confidence).value,
            preview_half_width=half_width(then.law(horizon, Span(horizon - bins, horizon)), confidence).value,
        )
        for words, bins in asked.items()
    ]


@lru_cache(maxsize=8192)
def _law(design: TreeDesign | NodeDesign, bins: int, part: Span) -> WeightedNoise:
    if isinstance(design, NodeDesign) or design.release == "anticipating":
        return published_law(design, part.start, part.stop)
    return range_weights(design, bins, part.start, part.stop).law()
