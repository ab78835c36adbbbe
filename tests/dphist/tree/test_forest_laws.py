"""Laws of many causal ranges side by side, against those of single ranges."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import plan_tree
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import live_estimate
from dphist.tree.forest_laws import RangeErrors, forest_errors, live_errors
from dphist.tree.upward import UNITS_PER_COUNT
from dphist.tree.weights import range_weights
from tests.dphist.tree.strategies import designs
from tests.examples import examples


def merged(groups: Iterable[tuple[float, float, float]]) -> dict[tuple[float, float], float]:
    """Return copies by weight and scale; weights that differ by rounding of doubles only are one."""
    law: dict[tuple[float, float], float] = {}
    for weight, copies, scale in groups:
        if copies and abs(weight) > 1e-12:
            key = (round(abs(weight), 10), scale)
            law[key] = law.get(key, 0) + copies
    return law


def groups_of(found: RangeErrors, row: int) -> dict[tuple[float, float], float]:
    laws = found.laws
    return merged(zip(laws.weights[row], laws.copies[row], laws.scales[row], strict=True))


@examples(40)
@given(designs(most=60), st.data())
def test_side_by_side_ranges_have_the_laws_of_single_ones(design: TreeDesign, data: st.DataObject) -> None:
    bins = data.draw(st.integers(1, design.horizon))
    edges = st.integers(0, bins)
    ranges = data.draw(st.lists(st.tuples(edges, edges).map(sorted), min_size=1, max_size=8))
    for asked in (ranges, [(0, b) for _, b in ranges]):
        found = forest_errors(design, bins, *np.array(asked, np.int64).T)
        for row, (a, b) in enumerate(asked):
            alone = range_weights(design, bins, a, b)
            assert groups_of(found, row) == merged(alone.law().groups)
            assert found.roundings[row] * UNITS_PER_COUNT == pytest.approx(alone.rounding_units)


@examples(40)
@given(designs(most=60), st.data())
def test_side_by_side_live_counts_have_the_laws_of_single_ones(
    design: TreeDesign, data: st.DataObject
) -> None:
    stops = data.draw(st.lists(st.integers(0, design.horizon), min_size=1, max_size=8))
    found = live_errors(design, np.array(stops))
    for row, b in enumerate(stops):
        alone = live_estimate(design, b, np.zeros(1, np.int64))
        assert groups_of(found, row) == merged(alone.law.groups)
        assert found.roundings[row] == pytest.approx(alone.rounding)


def test_a_long_epoch_has_the_same_variances_either_way() -> None:
    design = plan_tree(2**16, 1)
    bins = 2**16 - 4_321
    edges = np.sort(np.random.default_rng(4).integers(0, bins + 1, (60, 2)), axis=1)
    found = forest_errors(design, bins, *edges.T)
    expected = [range_weights(design, bins, a, b).variance for a, b in edges.tolist()]
    assert found.laws.deviations() ** 2 == pytest.approx(np.array(expected), rel=1e-10)
