"""Normal laws beside sums of discrete Laplace variables: intervals, tables, tail bounds, moments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.laws.interval import half_width, half_widths
from dphist.laws.inversion import tail_bounds
from dphist.laws.law import NORMAL, LawTable, WeightedNoise
from tests.examples import examples

DEVIATIONS = st.floats(1e-6, 1e9)
CONFIDENCES = st.floats(0.01, 0.9999999)


@examples(200)
@given(DEVIATIONS, CONFIDENCES)
def test_half_width_of_a_normal_law_is_certified_and_near_the_least(sd: float, confidence: float) -> None:
    found = half_width(WeightedNoise.normal(sd), confidence)
    missed = math.erfc(found.value / sd / math.sqrt(2.0))
    assert 1.0 - missed >= found.level - 1e-15
    assert found.level >= confidence
    assert missed >= (1.0 - confidence) * (1.0 - 2e-5) - 1e-15


@examples(50)
@given(st.lists(st.tuples(st.floats(-9.0, 9.0), st.integers(0, 5)), min_size=1, max_size=5))
def test_sum_of_normal_errors_has_the_sum_of_their_variances(parts: list[tuple[float, int]]) -> None:
    law = WeightedNoise.weighted((w, n, WeightedNoise.normal(2.0)) for w, n in parts)
    variance = sum(4.0 * n * w * w for w, n in parts)
    assert law.variance == pytest.approx(variance, rel=1e-12)
    assert law == WeightedNoise.normal(math.sqrt(variance)) or law.variance == pytest.approx(variance)


def test_one_table_may_hold_normal_and_other_laws() -> None:
    laws = [WeightedNoise.of([(1.0, 3, 10.0)]), WeightedNoise.normal(7.0), WeightedNoise.of([])]
    table = LawTable.of(laws)
    assert table.normal.tolist() == [False, True, False]
    assert table.deviations() == pytest.approx([math.sqrt(law.variance) for law in laws])
    values, levels = half_widths(table, 0.9)
    assert values.tolist() == [half_width(law, 0.9).value for law in laws]
    assert levels.tolist() == [half_width(law, 0.9).level for law in laws]
    bounds = tail_bounds(table.take(np.array([0, 1])), (0.1,))[0]
    assert bounds[0] == tail_bounds(LawTable.of(laws[:1]), (0.1,))[0][0]
    assert math.erfc(bounds[1] / 7.0 / math.sqrt(2.0)) <= 0.1


def test_table_of_different_normal_laws_keeps_each_of_them() -> None:
    table = LawTable.of_normal(np.array([1.0, 2.0, 1.0, 0.0]))
    values, _ = half_widths(table, 0.95)
    assert values == pytest.approx([1.959964, 3.919928, 1.959964, 0.0], rel=1e-4)
    assert table.repeated(4).scaled(np.full(4, 0.5)).deviations() == pytest.approx([1.0, 2.0, 1.0, 0.0])
    assert [table.law(row).variance for row in range(4)] == pytest.approx([1.0, 4.0, 1.0, 0.0])


def test_fourth_moment_of_a_normal_law_is_three_times_its_squared_variance() -> None:
    laws = LawTable.of([WeightedNoise.normal(2.0), WeightedNoise.of([(1.0, 1, 5.0)])])
    steps = np.arange(-2000, 2001)
    weights = np.exp(-np.abs(steps) / 5.0)
    exact = float((weights / weights.sum()) @ steps.astype(float) ** 4)
    assert laws.fourth_moments() == pytest.approx([48.0, exact])


def test_a_sum_of_normal_and_laplace_noise_has_no_interval() -> None:
    mixed = WeightedNoise.of([(1.0, 1, 5.0), (1.0, 1, NORMAL)])
    with pytest.raises(ValueError, match="normal and of Laplace"):
        half_width(mixed, 0.95)
