"""DAWA's second stage against dense algebra and the paper's examples; privacy step by step."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dphist.mechanisms import prepare, release
from dphist.mechanisms.dawa.mechanism import merged_buckets
from dphist.mechanisms.dawa.query_tree import (
    LATTICE,
    best_odds,
    best_tree,
    greedy_parts,
    greedy_tree,
    workload_variance,
)
from dphist.mechanisms.ranges import bucket_positions
from dphist.mechanisms.trees.hierarchical import MeasuredTree, largest_path, measure_tree
from dphist.mechanisms.trees.weighted_tree import IntervalTree
from dphist.noise import SeededNoise
from tests.dphist.mechanisms.stated import stated_variance
from tests.examples import examples
from tests.oracles import NoNoise


def span(tree, level, node):
    width = tree.branching**level
    return node * width, min((node + 1) * width, tree.size)


def dense_greedy(tree, queries, unit_weight):
    """Compute algorithm 2 as the paper writes it: traces of dense inverses, lambda searched in [0, 0.99]."""
    scaling = [np.zeros(size) for size in tree.sizes]
    scaling[0][:] = 1
    for level in range(1, len(tree.sizes)):
        decay = tree.branching ** (-0.5 * (len(tree.sizes) - 1 - level))
        for node in range(tree.sizes[level]):
            low, high = span(tree, level, node)
            gram = queries[:, low:high].T @ queries[:, low:high] + unit_weight * np.eye(high - low)
            blocks, strategy = np.zeros_like(gram), np.zeros_like(gram)
            below = [(lv, v) for lv in range(level) for v in range(tree.sizes[lv])]
            below = [
                (lv, v) for lv, v in below if span(tree, lv, v)[0] >= low and span(tree, lv, v)[1] <= high
            ]
            for lv, v in below:
                inside = slice(span(tree, lv, v)[0] - low, span(tree, lv, v)[1] - low)
                strategy[inside, inside] += scaling[lv][v] ** 2
                if lv == level - 1:
                    blocks[inside, inside] = gram[inside, inside]
            target = decay * gram + (1 - decay) * blocks

            def error(share, target=target, strategy=strategy):
                return np.trace(target @ np.linalg.inv((1 - share) ** 2 * strategy + share**2))

            grid = np.linspace(0, 0.99, 200)
            best = int(np.argmin([error(share) for share in grid]))
            share = grid[best]
            if 0 < best < len(grid) - 1:
                bounds = (grid[best - 1], grid[best + 1])
                share = minimize_scalar(error, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x
            for lv, v in below:
                scaling[lv][v] *= 1 - share
            scaling[level][node] = share
    return scaling


@pytest.mark.parametrize(
    ("size", "branching", "unit_weight"),
    [(5, 2, 0.1), (16, 2, 0), (24, 2, 0.03), (27, 3, 0.01), (20, 7, 0.01)],
)
def test_greedy_parts_match_the_papers_algorithm_in_dense_algebra(size, branching, unit_weight):
    rng = np.random.default_rng(size)
    tree = IntervalTree(size, branching)
    starts = np.concatenate([rng.uniform(0, size / 8, 30), rng.integers(0, size, 10)])
    ends = np.concatenate([rng.uniform(7 * size / 8, size, 30), np.full(10, size)])
    leaf = np.arange(size)
    queries = np.clip(np.minimum(ends[:, None], leaf + 1) - np.maximum(starts[:, None], leaf), 0, None)
    expected = dense_greedy(tree, queries, unit_weight)
    found = greedy_parts(tree, starts, ends, unit_weight=unit_weight)
    assert max(level.max() for level in expected[1:]) > 0.05  # some budget does move up
    for parts, scaling in zip(found, expected, strict=True):
        np.testing.assert_allclose(parts / LATTICE, scaling, atol=2e-5)


def test_an_identity_workload_leaves_all_budget_at_the_leaves():
    _, parts = greedy_tree(64, np.arange(64.0), np.arange(1.0, 65.0))
    assert (parts[0] == LATTICE).all()
    assert all((level == 0).all() for level in parts[1:])


@examples(50)
@given(
    size=st.integers(1, 40),
    branching=st.integers(2, 5),
    ends=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12),
)
def test_every_path_spends_exactly_the_lattice_and_no_leaf_is_left_out(size, branching, ends):
    edges = np.sort(np.array(ends), axis=1) * size
    tree, parts = greedy_tree(size, edges[:, 0], edges[:, 1], branching)
    path = parts[-1]
    for level in range(len(tree.sizes) - 2, -1, -1):
        path = parts[level] + tree.to_children(level, path)
    assert (path == LATTICE).all()
    assert largest_path(tree, parts) == LATTICE
    assert (parts[0] >= 1).all()
    assert all((level >= 0).all() for level in parts)


@given(total=st.floats(0.01, 100), error=st.floats(0.01, 100), correlation=st.floats(0, 1))
def test_best_odds_is_the_least_of_a_fine_grid(total, error, correlation):
    gain = total * error * correlation

    def workload_error(odds):
        return (1 + odds) ** 2 * (error - gain * odds**2 / (1 + total * odds**2))

    found = float(best_odds(np.array([total]), np.array([error]), np.array([gain]))[0])
    shares = np.linspace(0, 0.99, 2000)
    assert 0 <= found <= 99
    assert workload_error(found) <= workload_error(shares / (1 - shares)).min() * (1 + 1e-9)


def test_the_best_tree_is_never_worse_than_the_greedy_one():
    rng = np.random.default_rng(2)
    for leaves in (1, 2, 9, 300):
        edges = np.sort(rng.uniform(0, leaves, (200, 2)), axis=1)
        variances = [
            workload_variance(*make(leaves, edges[:, 0], edges[:, 1]), edges[:, 0], edges[:, 1])
            for make in (best_tree, greedy_tree)
        ]
        assert variances[0] <= variances[1]


def test_workload_variance_is_what_the_release_states():
    ranges = np.array([[0, 9], [3, 30], [8, 31]])
    made = release("greedy_h", np.zeros(31, dtype=int), 1e-3, ranges, SeededNoise(1))
    tree, parts = greedy_tree(31, *ranges.T.astype(float))
    # The noise of a node given all of epsilon = 0.001 has variance 2e6, to a part in a million.
    expected = workload_variance(tree, parts, *ranges.T.astype(float)) * 2e6
    assert stated_variance(made, ranges).mean() == pytest.approx(expected, rel=1e-5)


def test_example_3_a_range_of_bins_is_a_range_of_buckets():
    # q = x_2 + ... + x_6 becomes 1/2 s_1 + s_2 + 3/4 s_3
    edges = np.array([0, 2, 3, 7, 10])
    start, end = bucket_positions(np.array([1, 6]), edges)
    leaf = np.arange(4)
    weights = np.clip(np.minimum(end, leaf + 1) - np.maximum(start, leaf), 0, None)
    assert weights.tolist() == [0.5, 1, 0.75, 0]


def test_at_huge_epsilon_dawa_finds_the_buckets_and_answers_exactly():
    counts = np.repeat([7, 0, 3, 100], [8, 4, 16, 4])
    ranges = np.array([(a, b) for a in range(32) for b in range(a + 1, 33)])
    for name in ("dawa", "dawa_all", "partition_laplace", "partition_uniform", "partition_geometric"):
        made = release(name, counts, 1e6, ranges, SeededNoise(1))
        assert made.published["edges"].tolist() == [0, 8, 12, 28, 32]
        np.testing.assert_allclose(made.counts, counts, atol=1e-3)


def test_more_penalty_means_fewer_buckets():
    counts = np.random.default_rng(1).integers(0, 100, 256)
    buckets = [
        release("dawa", counts, 0.1, noise=SeededNoise(1), bucket_penalty=penalty).published["edges"].size
        for penalty in (0, 1, 3, 30)
    ]
    assert buckets == sorted(buckets, reverse=True)
    assert buckets[0] > 3 * buckets[-1]


@examples(40)
@given(
    buckets=st.lists(st.integers(0, 50), min_size=1, max_size=15),
    parts_seed=st.integers(0, 99),
    data=st.data(),
)
def test_a_measured_tree_with_any_parts_spends_its_epsilon(buckets, parts_seed, data):
    rng = np.random.default_rng(parts_seed)
    tree = IntervalTree(len(buckets), int(rng.integers(2, 5)))
    parts = [rng.integers(0, 9, size) for size in tree.sizes]
    parts[0] += 1
    noise = NoNoise()
    leaves = np.array(buckets)
    neighbour = leaves.copy()
    neighbour[data.draw(st.integers(0, leaves.size - 1))] += 1
    epsilon, values = Fraction(3, 7), []
    for counts in (leaves, neighbour):
        request = prepare("dawa", counts, 1, noise=noise)
        measured = measure_tree(request, tree, counts, parts, epsilon)
        values.append(
            np.concatenate([part * noisy for part, noisy in zip(parts, measured.noisy, strict=True)])
        )
    [scale] = {scale for scale, _ in noise.draws}
    assert Fraction(round(np.abs(values[1] - values[0]).sum())) / scale <= epsilon


@examples(30)
@given(buckets=st.integers(1, 14), branching=st.integers(2, 4), seed=st.integers(0, 10**6))
def test_fit_is_dense_least_squares_over_the_merged_buckets(buckets, branching, seed):
    rng = np.random.default_rng(seed)
    tree = IntervalTree(buckets, branching)
    edges = np.concatenate([[0], np.cumsum(rng.integers(1, 6, buckets))])
    rate = rng.choice([0.0, 0.0, 30.0], buckets)
    noisy = [total + rng.normal(0, 2, total.size) for total in tree.totals(rate * np.diff(edges))]
    weights = [rng.uniform(0.5, 2, size) for size in tree.sizes]
    weights[-1][:] = 0 if len(weights) > 1 else 1  # as a root that is not measured
    kept, fitted = merged_buckets(MeasuredTree(tree, noisy, weights, 4.0), edges)
    assert set(kept) <= set(edges)
    assert kept[0] == 0
    assert kept[-1] == edges[-1]

    bins = np.arange(edges[-1])
    owner = np.searchsorted(kept, bins, side="right") - 1
    per_bin = (owner[:, None] == np.arange(kept.size - 1)) / np.diff(kept)
    rows, counts, inverse = [], [], []
    width = 1
    for level, size in enumerate(tree.sizes):
        for node in range(size):
            if weights[level][node] > 0:
                first, last = edges[node * width], edges[min((node + 1) * width, buckets)]
                rows.append(per_bin[first:last].sum(axis=0))
                counts.append(noisy[level][node])
                inverse.append(weights[level][node] / 4.0)
        width *= tree.fans[level] if level < len(tree.fans) else 1
    model, precision = np.array(rows), np.array(inverse)
    covariance = np.linalg.inv(model.T @ (model * precision[:, None]))
    np.testing.assert_allclose(fitted, covariance @ model.T @ (precision * counts), atol=1e-7)


def test_merging_reads_no_data_and_keeps_real_differences(transcript):
    counts = np.repeat([0, 9000, 300, 40_000], [128, 4, 60, 64])
    plain, merged = (transcript("dawa", counts, 1, merge=merge) for merge in (False, True))
    assert [step[0] for step in plain] == [step[0] for step in merged]
    assert all((one[1] == other[1]).all() for one, other in zip(plain, merged, strict=True))
    cut = release("dawa", counts, 1, noise=SeededNoise(3)).published["edges"]
    left = release("dawa", counts, 1, noise=SeededNoise(3), merge=True).published["edges"]
    assert {0, 128, 132, 192, 256} <= set(left.tolist())
    assert left.size < cut.size
    assert set(left) <= set(cut)
