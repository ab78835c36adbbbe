"""Weighted sums of counts of different times, each with the exact law of its error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dphist.laws.law import WeightedNoise
from dphist.tree.estimate import Estimate
from stream_app.core.answers.joined_history import columns_of
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.tables import Span


def weighted_count(view: StreamView, ranges: Sequence[tuple[Span, float]]) -> Estimate:
    """Return a weighted sum of the counts of disjoint ranges.

    Guarantee: value and law are those of the released values. Ranges within one epoch share the noise of its
        nodes; epochs have independent noise.
    Raises: as ``StreamView.count``.
    Cost: a millisecond.
    """
    counts = [(view.count(span), weight) for span, weight in ranges]
    law = _law(view, ranges)
    value = sum(weight * float(one.value) for one, weight in counts)
    return Estimate(value, law.variance, law, sum(abs(weight) * one.rounding for one, weight in counts))


def _law(view: StreamView, ranges: Sequence[tuple[Span, float]]) -> WeightedNoise:
    parts, counted = list[tuple[float, int, WeightedNoise]](), set[EpochView]()
    for _, epochs in view.runs:
        if (over := view.over(epochs)) is None:
            continue
        for span, weight in ranges:
            [nodes] = over.covers(np.array([span.start]), np.array([span.stop])).nodes
            parts += [(weight, 1, over.estimate(node).law) for node in nodes]
            for node in nodes:  # its epochs are wholly in this range, so in no other one
                counted.update(epochs[node.first : node.first + node.epochs])
    for epoch in view.epochs:
        own = [(epoch.within(span), weight) for span, weight in ranges]
        asked = tuple((*part, weight) for part, weight in own if part.start < part.stop)
        if asked and epoch not in counted:
            errors = view.kind_of(epoch.record).errors(columns=columns_of([epoch]))
            parts.append((1.0, 1, errors.weighted(epoch.bins, asked)))
    return WeightedNoise.weighted(parts)
