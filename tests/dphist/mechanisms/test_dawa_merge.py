"""DAWA's merging of buckets: the fit against dense algebra, what is merged; merging reads no exact counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.mechanisms import release
from dphist.mechanisms.dawa.mechanism import merged_buckets
from dphist.mechanisms.trees.hierarchical import MeasuredTree
from dphist.mechanisms.trees.weighted_tree import IntervalTree
from dphist.noise import SeededNoise
from tests.examples import examples


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


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["adult", "nettrace", "medcost"])
def test_merging_lowers_the_error_where_data_are_easy(papers_counts, dataset):
    counts = papers_counts(dataset)
    ranges = np.sort(np.random.default_rng(1).integers(0, 4097, (1000, 2)), axis=1)
    truth = np.array([counts[a:b].sum() for a, b in ranges])
    plain, merged = (
        np.mean(
            [
                np.abs(
                    release("dawa", counts, 0.01, ranges, SeededNoise(s), merge=merge).answer(ranges) - truth
                ).mean()
                for s in range(6)
            ]
        )
        for merge in (False, True)
    )
    # Measured: 0.5 to 0.7 of it.
    assert merged < 0.85 * plain
