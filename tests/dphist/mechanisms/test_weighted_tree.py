"""Trees of weighted measurements against dense linear algebra and the paper's figure."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dphist.mechanisms import release
from dphist.mechanisms.privelet import from_haar_differences, haar_differences
from dphist.mechanisms.trees.hierarchical import best_branching, fewest_nodes, largest_path
from dphist.mechanisms.trees.weighted_tree import IntervalTree, least_squares, range_variance
from dphist.noise import SeededNoise

SHAPES: list[tuple[int, int | tuple[int, ...]]] = [
    (size, branching) for size in (1, 2, 3, 5, 8, 13, 40) for branching in (2, 3, 17)
]
SHAPES += [(12, (2, 6)), (11, (3, 2, 2)), (40, (4, 2, 5)), (2, (2,))]


def rows_of(tree):
    """Return the tree's nodes as rows over its leaves, level by level, leaves first."""
    rows = []
    for level, size in enumerate(tree.sizes):
        width = math.prod(tree.fans[:level])
        for node in range(size):
            row = np.zeros(tree.size)
            row[node * width : (node + 1) * width] = 1
            rows.append(row)
    return np.array(rows)


def dense_inverse(tree, weights):
    rows = rows_of(tree)
    return np.linalg.inv(rows.T @ np.diag(np.concatenate(weights)) @ rows)


def random_weights(tree, rng):
    weights = [rng.uniform(0.2, 2, size) for size in tree.sizes]
    for level in weights[1:]:
        level[rng.random(level.size) < 0.3] = 0  # some nodes are not measured
    return weights


@pytest.mark.parametrize(("size", "branching"), SHAPES)
def test_two_passes_are_weighted_least_squares(size, branching):
    tree = IntervalTree(size, branching)
    rng = np.random.default_rng(size * 100 + math.prod(tree.fans))
    weights = random_weights(tree, rng)
    noisy = [rng.normal(size=nodes) for nodes in tree.sizes]
    rows = rows_of(tree)
    leaves = dense_inverse(tree, weights) @ rows.T @ (np.concatenate(weights) * np.concatenate(noisy))
    np.testing.assert_allclose(
        np.concatenate(least_squares(tree, noisy, weights)), rows @ leaves, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(("size", "branching"), SHAPES)
def test_range_variances_are_those_of_the_dense_inverse_for_fractional_ends_too(size, branching):
    tree = IntervalTree(size, branching)
    rng = np.random.default_rng(size * 100 + math.prod(tree.fans))
    weights = random_weights(tree, rng)
    ends = np.sort(rng.uniform(0, size, (60, 2)), axis=1)
    ends = np.vstack([ends, np.round(ends), [[0, 0], [0, size], [size, size]]])
    leaf = np.arange(size)
    queries = np.clip(np.minimum(ends[:, 1:], leaf + 1) - np.maximum(ends[:, :1], leaf), 0, None)
    expected = np.einsum("qi,ij,qj->q", queries, dense_inverse(tree, weights), queries)
    np.testing.assert_allclose(
        range_variance(tree, weights, ends[:, 0], ends[:, 1]), expected, rtol=1e-9, atol=1e-10
    )


@pytest.mark.parametrize("branching", [(2, 2), (3, 1, 2)])
def test_a_tree_that_does_not_reach_its_leaves_is_refused(branching):
    with pytest.raises(ValueError, match="does not reach 6 leaves"):
        IntervalTree(6, branching).sizes  # noqa: B018


def test_hay_figure_2():
    # The paper lists nodes breadth first from the root: <13, 3, 11, 4, 1, 12, 1> -> <14, 3, 11, 3, 0, 11, 0>.
    tree = IntervalTree(4, 2)
    noisy = [np.array(level, dtype=float) for level in ([4, 1, 12, 1], [3, 11], [13])]
    consistent = least_squares(tree, noisy, [np.ones(size) for size in tree.sizes])
    assert [level.round(12).tolist() for level in consistent] == [[3, 0, 11, 0], [3, 11], [14]]


def test_hay_closed_form_in_exact_fractions():
    # z[v] = (k^l - k^(l-1)) / (k^l - 1) h[v] + (k^(l-1) - 1) / (k^l - 1) sum z[children], l the height of v.
    rng = np.random.default_rng(5)
    k, height = 3, 4
    tree = IntervalTree(k ** (height - 1), k)
    noisy = [rng.integers(-20, 20, size) for size in tree.sizes]
    z = [[Fraction(int(value)) for value in noisy[0]]]
    for level in range(1, height):
        power = k ** (level + 1)
        below = [sum(z[-1][k * v : k * v + k]) for v in range(tree.sizes[level])]
        own, rest = Fraction(power - power // k, power - 1), Fraction(power // k - 1, power - 1)
        z.append([own * int(y) + rest * s for y, s in zip(noisy[level], below, strict=True)])
    bar = [z[-1]]
    for level in range(height - 2, -1, -1):
        parents = bar[-1]
        bar.append(
            [
                z[level][v] + (parents[v // k] - sum(z[level][v // k * k : v // k * k + k])) / k
                for v in range(tree.sizes[level])
            ]
        )
    found = least_squares(
        tree, [level.astype(float) for level in noisy], [np.ones(size) for size in tree.sizes]
    )
    for values, exact in zip(found, bar[::-1], strict=True):
        np.testing.assert_allclose(values, [float(value) for value in exact], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "branching"), [(1, 2), (6, 2), (16, 2), (11, 3), (27, 3), (11, (2, 3, 2))])
def test_the_fewest_nodes_make_up_every_range(size, branching):
    tree = IntervalTree(size, branching)
    spans = [
        (node * width, min((node + 1) * width, size))
        for width, nodes in zip(np.cumprod([1, *tree.fans]).tolist(), tree.sizes, strict=True)
        for node in range(nodes)
    ]
    least = {start: {start: 0} for start in range(size + 1)}
    for start in range(size):  # shortest paths from start over nodes that begin where the last one ended
        for end in range(start, size):
            if end in least[start]:
                for a, b in spans:
                    if a == end:
                        least[start][b] = min(least[start].get(b, size + 1), least[start][end] + 1)
    ranges = np.array([(a, b) for a in range(size) for b in range(a, size + 1)])
    covered = np.zeros((len(ranges), size))
    number = np.zeros(len(ranges))
    for level, firsts, ends in fewest_nodes(tree, ranges):
        number += ends - firsts
        width = math.prod(tree.fans[:level])
        for row, (a, b) in enumerate(zip(firsts * width, ends * width, strict=True)):
            covered[row, a : min(b, size)] += 1
    for row, (a, b) in enumerate(ranges):
        assert covered[row].tolist() == [float(a <= leaf < b) for leaf in range(size)]
        assert number[row] == least[a][b]


def test_best_branching_is_the_best_of_all():
    def error(bins, b):
        height = next(h for h in range(1, 99) if b**h >= bins)
        return Fraction((b - 1) * height**3) - Fraction(2 * (b + 1) * height**2, 3)

    for bins in (*range(2, 200), 1000, 4096, 5000):
        best = min(error(bins, b) for b in range(2, bins + 1))
        assert error(bins, best_branching(bins)) == best


def test_largest_path_adds_parts_from_leaf_to_root():
    tree = IntervalTree(3, 2)
    parts = [np.array([1, 5, 2]), np.array([10, 20]), np.array([100])]
    assert largest_path(tree, parts) == 122


def test_haar_differences_are_privelets_coefficients_times_their_weights():
    values = np.random.default_rng(3).integers(0, 50, 16)
    found = haar_differences(values)
    assert found[0] == values.sum()
    for level in range(
        1, 5
    ):  # node of 2^level bins: coefficient (mean left - mean right) / 2, weight 2^level
        width = 1 << level
        for node in range(16 // width):
            left, right = np.split(values[node * width : (node + 1) * width], 2)
            coefficient = (left.mean() - right.mean()) / 2
            assert found[16 // width + node] == coefficient * width
    np.testing.assert_array_equal(from_haar_differences(found.astype(float)), values)


def test_nonnegative_subtrees():
    counts = np.zeros(64, dtype=int)
    counts[5] = 1000
    made = release("h_bar_nonnegative", counts, 0.5, noise=SeededNoise(1))
    plain = release("h_bar", counts, 0.5, noise=SeededNoise(1))
    assert (made.counts >= 0).all()
    assert (made.counts == np.rint(made.counts)).all()
    kept = made.counts > 0
    np.testing.assert_array_equal(made.counts[kept], np.rint(plain.counts[kept]))
    assert abs(made.counts - counts).sum() < abs(plain.counts - counts).sum() / 3
    whole = IntervalTree(64, 2).totals(np.arange(64))[3]  # a zero subtree takes its leaves with it
    assert whole.size == 8
    sums = np.add.reduceat(plain.counts, np.arange(0, 64, 8))
    for octet in np.flatnonzero(sums <= 0):
        assert (made.counts[octet * 8 : octet * 8 + 8] == 0).all()


def test_nonnegative_ranges_are_answered_by_their_fewest_nodes():
    counts = np.zeros(256, dtype=int)
    counts[17] = 300
    blocks = np.array([[0, 256], [0, 128], [16, 32], [17, 18]])
    made = release("h_bar_nonnegative", counts, 0.1, noise=SeededNoise(3))
    plain = release("h_bar", counts, 0.1, noise=SeededNoise(3))
    np.testing.assert_array_equal(made.answer(blocks), np.rint(plain.answer(blocks)))
    assert made.counts.sum() > 2 * made.answer([[0, 256]])[0]  # what a sum of bins would have answered
    assert made.answer([[64, 128]])[0] in (0, np.rint(plain.answer([[64, 128]])[0]))
