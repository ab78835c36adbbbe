"""Privacy, grey box: the cost of every difference between neighbouring streams, added up in fractions.

With the same noise, the released nodes differ by the differences of the exact counts. A difference d in a
node of scale s costs |d| / s. All differences together may cost at most epsilon.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dphist.arrays import Int64Array
from dphist.tree.counter import TreeCounter
from dphist.tree.design import TreeDesign
from tests.dphist.tree.strategies import designs
from tests.oracles import KeyedNoise


def loss(design: TreeDesign, counts: Int64Array, neighbour: Int64Array) -> Fraction:
    """Return the privacy loss of all released nodes together, between a stream and its neighbour."""
    transcripts = []
    for stream in (counts, neighbour):
        counter = TreeCounter(design, KeyedNoise(6), stream.shape[1])
        transcripts.append([node for row in stream for node in counter.push(row)])
    total = Fraction(0)
    for one, other in zip(*transcripts, strict=True):
        assert (one.level, one.index) == (other.level, other.index)
        total += int(np.abs(one.values - other.values).sum()) / design.scales[one.level - 1]
    return total


@given(designs(), st.data())
def test_neighbours_cost_at_most_epsilon(design: TreeDesign, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 3))
    cell = st.tuples(st.integers(0, design.horizon - 1), st.integers(0, width - 1))
    counts = np.random.default_rng(data.draw(st.integers(0, 999))).integers(0, 3, (design.horizon, width))
    neighbour = counts.copy()
    max_events = design.sensitivity if design.neighbours == "add_remove" else design.sensitivity // 2
    places = data.draw(st.lists(cell, min_size=1, max_size=max_events))
    if design.neighbours == "substitute":
        for place in places:
            counts[place] += 1
            neighbour[data.draw(cell)] += 1
    else:
        for place in places:
            neighbour[place] += 1
    assert loss(design, counts, neighbour) <= design.epsilon
    assert loss(design, neighbour, counts) <= design.epsilon


@given(designs(dyadic=True), st.data())
def test_neighbours_cost_exactly_epsilon_without_rounded_scales(
    design: TreeDesign, data: st.DataObject
) -> None:
    # A cost counted too high would waste accuracy, and a test that cannot reach its bound could hide a leak.
    counts = np.zeros((design.shape.capacity, 1), np.int64)
    full = TreeDesign(
        design.shape,
        design.shape.capacity,
        design.epsilon,
        design.shares,
        design.neighbours,
        design.sensitivity,
    )
    neighbour = counts.copy()
    first = data.draw(st.integers(0, len(counts) - 1))
    neighbour[first] += 1
    if design.neighbours == "substitute":
        # Far enough apart that no measured node holds both.
        if design.branching[0] == 1:
            return
        counts[(first + design.shape.widths[1]) % len(counts)] += 1
    assert loss(full, counts, neighbour) == full.epsilon * sum(full.shares)
