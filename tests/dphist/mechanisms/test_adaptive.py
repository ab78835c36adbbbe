"""The adaptive tree: network against dense algebra, buckets against all cuts, privacy step by step."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.mechanisms import release
from dphist.mechanisms import uniform_buckets as bucket_rule
from dphist.mechanisms.adaptive import plan_tree
from dphist.mechanisms.dawa.query_tree import LATTICE
from dphist.mechanisms.measured_runs import MeasuredRuns, fit_runs
from dphist.mechanisms.trees.weighted_tree import range_variance
from dphist.mechanisms.uniform_buckets import uniform_buckets
from dphist.noise import SeededNoise
from tests.examples import examples


@examples(40)
@given(buckets=st.integers(1, 12), extra=st.integers(0, 20), seed=st.integers(0, 10**6))
def test_the_network_is_dense_weighted_least_squares(buckets, extra, seed):
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.integers(0, buckets + 1, (extra, 2)), axis=1)
    edges = edges[edges[:, 0] < edges[:, 1]]  # overlapping as they fall
    starts = np.concatenate([np.arange(buckets), edges[:, 0]])
    ends = np.concatenate([np.arange(1, buckets + 1), edges[:, 1]])
    noisy, variances = rng.normal(0, 50, starts.size), rng.uniform(0.1, 9, starts.size)
    runs = [
        MeasuredRuns(starts[some], ends[some], noisy[some], variances[some])
        for some in (slice(buckets), slice(buckets, None))
    ]
    place = np.arange(buckets)
    rows = ((starts[:, None] <= place) & (place < ends[:, None])).astype(float)
    covariance = np.linalg.inv(rows.T @ (rows / variances[:, None]))
    np.testing.assert_allclose(fit_runs(buckets, runs), covariance @ rows.T @ (noisy / variances), atol=1e-8)


def cut_cost(noisy, widths, variances, cuts):
    total = 0.0
    short = 2 + 1.2 * max(0, math.log(noisy.size / 64))
    for start, end in itertools.pairwise(cuts):
        y, w, s = noisy[start:end], widths[start:end], variances[start:end]
        rate = (w * y / s).sum() / (w**2 / s).sum()
        total += ((y - rate * w) ** 2 / s).sum() / 2 + 2 + short / (end - start)
    return total


@pytest.mark.parametrize("all_runs", [100, 0])
def test_buckets_are_the_cheapest_of_all_cuts(monkeypatch, all_runs):
    monkeypatch.setattr(bucket_rule, "ALL_RUNS", all_runs)
    rng = np.random.default_rng(3)
    for size in (1, 2, 5, 9):
        for _ in range(20):
            widths = 2 ** rng.integers(0, 3, size)
            noisy = widths * rng.choice([0, 1, 9], size) + rng.normal(0, 1, size)
            variances = rng.uniform(0.5, 2, size)
            inner = itertools.chain.from_iterable(
                itertools.combinations(range(1, size), k) for k in range(size)
            )
            cuts = [[0, *some, size] for some in inner]
            if all_runs == 0:  # runs of a power of two only
                cuts = [
                    cut for cut in cuts if all((b - a).bit_count() == 1 for a, b in itertools.pairwise(cut))
                ]
            least = min(cut_cost(noisy, widths, variances, cut) for cut in cuts)
            found = uniform_buckets(noisy, widths, variances).tolist()
            assert found in cuts
            assert cut_cost(noisy, widths, variances, found) == pytest.approx(least)


def test_planned_tree_spends_less_on_known_leaves_and_all_of_epsilon_per_path():
    ends = np.sort(np.random.default_rng(1).uniform(0, 256, (300, 2)), axis=1)
    unknown = plan_tree(np.full(256, 1e-6), 1.0, *ends.T)
    known = plan_tree(np.full(256, 100.0), 1.0, *ends.T)
    assert unknown[1][0][0] > 0
    assert 2 * known[1][0][0] < unknown[1][0][0]
    assert sum(int(level[0]) for level in unknown[1]) in range(LATTICE - 9, LATTICE + 1)

    def error(planned, other):
        tree, parts = planned
        weights = [(part / LATTICE) ** 2 / 2 for part in parts]
        weights[0] = weights[0] + other
        return np.sqrt(range_variance(tree, weights, *ends.T)).mean()

    assert error(known, 100.0) < error(unknown, 100.0)
    assert error(unknown, 1e-6) < error(plan_tree(np.full(256, 0.5), 1.0, *ends.T), 1e-6)


def test_data_are_measured_three_times_and_no_selection_reads_them(transcript):
    steps = transcript("adaptive_tree", np.arange(300) * 50, 1)
    assert [kind for kind, *_ in steps] == ["measure"] * 3
    assert steps[0][1].size == 64
    assert steps[1][1].size > 250  # dense blocks are cut into bins


def test_blocks_are_cut_only_where_there_are_events():
    counts = np.zeros(1024, dtype=np.int64)
    counts[700] = 50_000
    made = release("adaptive_tree", counts, 1, noise=SeededNoise(3))
    pieces = made.published["pieces"]
    assert pieces.size < 120
    assert {700, 701} <= set(pieces.tolist())
    assert {700, 701} <= set(made.published["edges"].tolist())
    assert made.counts[700] == pytest.approx(50_000, abs=40)


def test_many_pieces_are_merged_without_trying_every_run(monkeypatch):
    monkeypatch.setattr(bucket_rule, "ALL_RUNS", 100)
    counts = np.repeat([10**6, 0, 5 * 10**5], [300, 400, 324])
    made = release("adaptive_tree", counts, 1, noise=SeededNoise(5))
    assert np.abs(made.counts - counts).mean() < 1
    assert made.published["edges"].size < 40
