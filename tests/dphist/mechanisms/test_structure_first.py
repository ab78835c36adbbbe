"""StructureFirst: least costs by brute force, exact costs and sensitivities, privacy loss, variance."""

from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import mechanisms
from dphist.mechanisms.dawa.deviations import DeviationIndex
from dphist.mechanisms.structure_first import least_costs, squared_deviations
from dphist.noise import SeededNoise

counts_lists = st.lists(st.integers(0, 9), min_size=2, max_size=9)


def squared_deviation(values):
    mean = Fraction(sum(values), len(values))
    return sum((value - mean) ** 2 for value in values)


@given(counts_lists, st.integers(1, 12), st.data())
def test_squared_cost_is_exact_and_moves_by_at_most_its_sensitivity(values, largest, data):
    start = data.draw(st.integers(0, len(values) - 1))
    end = data.draw(st.integers(start + 1, len(values)))
    bucket = np.array([start]), np.array([end])
    got = int(squared_deviations(np.array(values), largest)(*bucket)[0])
    clipped = [min(value, largest) for value in values]
    assert got == squared_deviation(clipped[start:end]) // 1
    changed = np.array(values)
    changed[data.draw(st.integers(0, len(values) - 1))] += 1
    again = int(squared_deviations(changed, largest)(*bucket)[0])
    assert abs(again - got) <= 2 * largest - 1


def test_the_squared_sensitivity_is_nearly_reached():
    values = np.zeros(1000, dtype=int)
    values[0] = 49
    whole = np.array([0]), np.array([1000])
    changed = values.copy()
    changed[0] = 50
    moved = squared_deviations(changed, 50)(*whole) - squared_deviations(values, 50)(*whole)
    assert 2 * 50 - 3 <= moved[0] <= 2 * 50 - 1


@given(counts_lists, st.integers(1, 4), st.integers(1, 9), st.sampled_from(["absolute", "squared"]))
def test_least_costs_are_those_of_all_partitions(values, buckets, longest, kind):
    counts = np.array(values)
    costs = squared_deviations(counts, 5) if kind == "squared" else DeviationIndex(counts, 0).from_median
    size = len(values)
    longest = min(longest, size)
    table = least_costs(costs, size, buckets, longest)
    for parts in range(1, buckets + 1):
        for end in range(parts, size + 1):
            partitions = [(0, *inner, end) for inner in combinations(range(1, end), parts - 1)]
            allowed = [edges for edges in partitions if max(np.diff(edges)) <= longest]
            least = min(
                (int(costs(np.array(edges[:-1]), np.array(edges[1:])).sum()) for edges in allowed),
                default=None,
            )
            if least is None:
                assert table[parts - 1, end] > 2**60
            else:
                assert table[parts - 1, end] == least


@pytest.mark.parametrize(
    ("options", "worst"),
    [
        ({"deviation": "absolute"}, 1),
        ({"deviation": "squared", "largest_count": 8}, 15),
    ],
)
def test_boundaries_share_their_budget_equally_at_the_worst_sensitivity(options, worst, transcript):
    """For each of five boundaries 2 D / scale is a fifth of their half of epsilon; from medians D = 1."""
    steps = transcript("structure_first", np.arange(50), 1.0, buckets=6, partition_share=0.5, **options)
    scales = [scale for kind, _, scale, _ in steps if kind == "select"]
    assert len(scales) == 5
    assert all(Fraction(1, 10) >= 2 * worst / scale > Fraction(1, 10) * Fraction(15, 16) for scale in scales)


def test_without_noise_the_boundaries_are_the_best():
    counts = np.repeat([5, 90, 0, 30], [7, 9, 16, 32])
    options: dict[str, Any] = {"buckets": 4, "partition_share": 0.5}
    for deviation in ("absolute", "squared"):
        made = mechanisms.release(
            "structure_first", counts, 1e6, noise=SeededNoise(1), deviation=deviation, **options
        )
        assert made.published["edges"].tolist() == [0, 7, 16, 32, 64]
