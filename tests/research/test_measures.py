"""What a trial measures, compared with sums written here and mechanisms that run here."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare

from dphist.mechanisms import release
from dphist.noise import SeededNoise
from research import measures
from research.cdf import theory
from research.hay2010 import crossing
from research.histograms import dawa_histograms
from research.intervals import clustered_intervals, intervals_of_length, rectangles, uniform_intervals

COUNTS = np.array([5, 0, 0, 9, 2, 2, 7, 1])


def test_answer_errors_are_those_of_the_released_answers():
    workload = np.array([[0, 8], [2, 3], [4, 7]])
    got = measures.answer_errors(
        mechanism="hb", counts=COUNTS, workload=workload, epsilon=0.5, seed=4, options={"branching": 2}
    )
    answers = release("hb", COUNTS, 0.5, workload, SeededNoise(4), continuous=True, branching=2).answer(
        workload
    )
    assert got["absolute"] == pytest.approx(np.mean(np.abs(answers - [26, 0, 11])))
    assert got["seconds"] > 0


def test_range_errors_round_answers_and_not_bins():
    # 4096 empty bins: the sum of rounded bins would be off by about 1800, squared 3e6.
    got = measures.errors_by_length(
        mechanism="identity", counts=np.zeros(4096, int), epsilon=1.0, seed=1, lengths=[1, 4000], ranges=500
    )
    # An answer that is not above zero is right: half of the variance of 4000 bins, 8000, is left.
    assert 0.3 < got["squared"][0] < 2
    assert got["squared"][1] < 40_000


def test_sorted_errors_are_per_count():
    got = measures.sorted_errors(mechanism="sorted", counts=COUNTS, epsilon=1.0, seed=2)
    noise = release("sorted", COUNTS, 1.0, noise=SeededNoise(2), continuous=True).counts - np.sort(COUNTS)
    assert got["squared"] == pytest.approx(np.mean(noise**2))


def brute_force_partition(counts, bucket_cost):
    """Return the partition of least cost, found by trying all partitions."""
    best = []
    for cuts in range(2 ** (counts.size - 1)):
        edges = [0, *(i + 1 for i in range(counts.size - 1) if cuts >> i & 1), counts.size]
        parts = [counts[a:b] for a, b in pairwise(edges)]
        cost = sum(np.abs(part - part.mean()).sum() for part in parts) + bucket_cost * len(parts)
        best.append((cost, len(parts)))
    return min(best)


@pytest.mark.parametrize("bucket_cost", [0.7, 2.9, 30.0])
def test_the_least_partition_is_the_least_of_all(bucket_cost):
    got = measures.least_partition(counts=COUNTS, bucket_cost=bucket_cost)
    cost, buckets = brute_force_partition(COUNTS, bucket_cost)
    assert got["buckets"] == buckets
    assert got["cost"] == pytest.approx(cost, abs=1e-3)


def test_equal_partitions_have_the_fewest_and_the_most_buckets_of_all_least_ones():
    # Cutting off the last bin costs one bucket more and saves exactly its price in deviation.
    counts = np.array([0, 0, 0, 6])
    costs = {
        tuple(edges): sum(
            Fraction(sum(abs(x * len(part) - sum(part)) for x in part), len(part)) + 9 for part in parts
        )
        for cuts in range(8)
        for edges in [[0, *(i + 1 for i in range(3) if cuts >> i & 1), 4]]
        for parts in [[counts[a:b].tolist() for a, b in pairwise(edges)]]
    }
    buckets = [len(edges) - 1 for edges, cost in costs.items() if cost == min(costs.values())]
    got = measures.equal_partitions(counts=counts, bucket_cost=9.0)
    assert (got["fewest"], got["most"]) == (min(buckets), max(buckets)) == (1, 2)


@pytest.mark.parametrize("mechanism", ["dawa", "p_hp", measures.AUTHORS_DAWA])
def test_chosen_partitions_cost_at_least_the_least_and_with_much_budget_little_more(mechanism):
    counts = np.repeat([0, 50, 3, 90], 16)
    least = measures.least_partition(counts=counts, bucket_cost=10.0)["cost"]
    given = {"mechanism": mechanism, "counts": counts, "bucket_cost": 10.0, "seed": 1, "options": {}}
    assert measures.private_partition_cost(epsilon_partition=0.01, **given)["cost"] > 1.5 * least
    assert least <= measures.private_partition_cost(epsilon_partition=1e4, **given)["cost"] < 1.01 * least


def test_cdf_errors_are_in_counts_and_consistency_keeps_to_n():
    got = measures.cdf_errors(mechanism="cdf_histogram", counts=COUNTS, epsilon=0.2, seed=3, options={})
    made = release(
        "cdf_histogram", COUNTS, 0.2, noise=SeededNoise(3), continuous=True, neighbours="substitute"
    )
    wrong = made.published["cumulative"][1:] - np.cumsum(COUNTS)
    assert got["raw L1"] == pytest.approx(np.abs(wrong).sum())
    assert got["raw L2"] == pytest.approx((wrong**2).sum())
    assert got["consistent_squared L1"] <= COUNTS.sum() * (COUNTS.size - 1)
    assert got["consistent_squared L1"] == int(got["consistent_squared L1"])


@pytest.mark.parametrize(
    ("label", "mechanism"),
    [
        ("direct", "cdf_direct"),
        ("histogram", "cdf_histogram"),
        ("binary tree", "cdf_binary"),
        ("optimal tree", "cdf_tree"),
    ],
)
def test_theory_is_the_sum_of_the_mechanisms_variances(label, mechanism):
    made = release(
        mechanism, np.ones(100, int), 1.0, noise=SeededNoise(1), continuous=True, neighbours="substitute"
    )
    ranges = [[0, end] for end in range(1, 101)]
    variances = made.variance(ranges)
    assert variances is not None
    assert theory(label, 100) == pytest.approx(variances.sum())


def test_theory_is_the_papers_formula_where_the_product_is_exact():
    # 4 m sum of (k - 1) / eps_l^2 with two levels of half of epsilon each.
    assert theory("17 at every level", 289) == pytest.approx(4 * 289 * 2 * 16 / 0.5**2)


def test_crossing_is_where_the_second_error_stays_below_the_first():
    flat = [(float(length), 0.0) for length in (1, 2, 4, 8, 16)]
    tree = [(6.0, 0.0)] * 5
    assert crossing([1, 2, 4, 8, 16], flat, tree) == pytest.approx(6.0)
    assert crossing([1, 2, 4, 8, 16], tree, flat) == np.inf
    assert crossing([8, 16], flat[3:], tree[3:]) == 8.0


def test_uniform_intervals_are_uniform_over_all_intervals():
    drawn = uniform_intervals(5, 30_000, seed=7)
    assert (drawn[:, 0] < drawn[:, 1]).all()
    kinds, seen = np.unique(drawn, axis=0, return_counts=True)
    assert len(kinds) == 15
    assert chisquare(seen).pvalue > 1e-6


def test_clustered_intervals_stay_inside_and_hold_their_centre():
    drawn = clustered_intervals(4096, 2000, 256.0, seed=1)
    assert drawn.shape == (2000, 2)
    assert (drawn[:, 0] >= 0).all()
    assert (drawn[:, 1] <= 4096).all()
    clusters = drawn.reshape(5, 400, 2)
    assert (clusters[:, :, 0].max(axis=1) < clusters[:, :, 1].min(axis=1)).all()
    # Two half-normals of 256 have a mean length of 408 each way added; borders cut some off.
    lengths = np.diff(clusters[1:4], axis=2).mean()
    assert 300 < lengths < 450


def test_intervals_and_rectangles_have_their_size_and_reach_both_ends():
    drawn = intervals_of_length(10, 4, 1000, seed=3)
    assert set(np.diff(drawn).ravel()) == {4}
    assert (drawn.min(), drawn.max()) == (0, 10)
    boxes = rectangles((6, 9), 2, 3, 1000, seed=3)
    assert boxes.min(axis=0).tolist() == [0, 2, 0, 3]
    assert boxes.max(axis=0).tolist() == [4, 6, 6, 9]


# (name, events in thousands, percent of empty bins) of the histograms that the generated ones stand for.
SHAPES = {
    "adult": (17.7, 98.0),
    "nettrace": (25.7, 96.6),
    "medcost": (9.4, 74.8),
    "searchlogs": (336, 51.0),
    "income": (20_787, 45.0),
    "patent": (27_948, 6.2),
    "hepph": (347, 21.2),
}


def test_generated_histograms_have_the_papers_shapes(monkeypatch):
    monkeypatch.setenv("DPHIST_DATA", "")
    made = {h.name.removesuffix("-like"): h for h in dawa_histograms()}
    assert list(made) == list(SHAPES)
    for name, (thousands, empty) in SHAPES.items():
        counts = made[name].counts
        assert not made[name].real
        assert counts.size == 4096
        assert counts.min() >= 0
        assert counts.sum() / 1000 == pytest.approx(thousands, rel=0.35), name
        assert 100 * (counts == 0).mean() == pytest.approx(empty, abs=8), name


def test_folding_adds_up_neighbours():
    folded = dawa_histograms()[0].folded(1000)
    assert folded.counts.size == 820
    assert folded.counts.sum() == dawa_histograms()[0].counts.sum()
