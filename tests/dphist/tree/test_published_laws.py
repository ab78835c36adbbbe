"""Laws of published ranges, for many ranges at once, compared with a walk over every node."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import plan_tree
from dphist.tree.design import TreeDesign
from dphist.tree.published_laws import published_law, published_laws
from dphist.tree.shape import TreeShape
from dphist.tree.weights import weighted_law
from tests.dphist.tree.dense import merged, noise_weights, published_variance
from tests.dphist.tree.strategies import weighted_ranges

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module


@st.composite
def designs(draw: st.DrawFn) -> TreeDesign:
    """Draw small trees whose horizon may be anywhere inside the tree."""
    shape = TreeShape(tuple(draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))))
    wanted = draw(st.lists(st.integers(1, 9), min_size=shape.height, max_size=shape.height))
    shares = tuple(Fraction(part, sum(wanted)) for part in wanted)
    horizon = draw(st.integers(1, shape.capacity))
    return TreeDesign(shape, horizon, Fraction(1), shares, release="anticipating")


def node_by_node(design: TreeDesign, a: int, b: int) -> dict[tuple[float, float], float]:
    """Return the law that the oracle computes from the weight of every single node."""
    return merged(
        (weight, 1, float(design.scales[level]))
        for level, weights in enumerate(noise_weights(design, a, b))
        for weight in weights.tolist()
    )


@given(designs(), st.data())
def test_groups_match_the_weights_of_single_nodes(design: TreeDesign, data: st.DataObject) -> None:
    edges = st.integers(0, design.horizon)
    ranges = data.draw(st.lists(st.tuples(edges, edges).map(sorted), min_size=1, max_size=6))
    prefixes = [(0, b) for _, b in ranges]
    for asked in (ranges, prefixes):
        starts, stops = np.array(asked).T
        table = published_laws(design, starts, stops)
        for row, (a, b) in enumerate(asked):
            expected = node_by_node(design, a, b)
            columns = zip(table.weights[row], table.copies[row], table.scales[row], strict=True)
            assert merged(columns) == expected
            assert merged(published_law(design, a, b).groups) == expected


@given(designs(), st.data())
def test_the_law_of_a_weighted_sum_has_the_weight_of_every_node(
    design: TreeDesign, data: st.DataObject
) -> None:
    ranges = data.draw(weighted_ranges(design.horizon))
    parts = [[weight * own for own in noise_weights(design, a, b)] for a, b, weight in ranges]
    expected = merged(
        (weight, 1, float(design.scales[level]))
        for level, weights in enumerate(zip(*parts, strict=True))
        for weight in np.sum(weights, axis=0).tolist()
    )
    assert merged(weighted_law(design, design.horizon, ranges).groups) == expected


def test_groups_and_single_nodes_give_equal_variances_in_a_long_epoch() -> None:
    design = plan_tree(2**16 + 77, 1, release="anticipating")
    starts, stops = np.array([0, 0, 5, 4096, 65_000]), np.array([1, 65_613, 6, 60_001, 65_613])
    table = published_laws(design, starts, stops)
    for row, (a, b) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        variance = published_variance(design, a, b)
        assert table.deviations()[row] ** 2 == pytest.approx(variance, rel=1e-9)
        assert published_law(design, a, b).variance == pytest.approx(variance, rel=1e-9)
