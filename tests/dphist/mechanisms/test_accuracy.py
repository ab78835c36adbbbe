"""On the papers' histograms, the mechanisms win where the papers say so."""

import numpy as np
import pytest

from dphist.mechanisms import release
from dphist.mechanisms.ranges import range_sums
from dphist.noise import SeededNoise
from research import datasets

TRIALS = 4
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def mean_error(papers_counts):
    workload = datasets.workload("ranges_n4096_m2000")

    def error(name, dataset, epsilon=0.1, **options):
        counts = papers_counts(dataset)
        truth = range_sums(counts.astype(float), workload)
        errors = [
            np.abs(
                release(name, counts, epsilon, workload, SeededNoise(seed), **options).answer(workload)
                - truth
            )
            for seed in range(TRIALS)
        ]
        return np.mean(errors)

    return error


@pytest.mark.parametrize("dataset", ["adult", "nettrace", "medcost"])
def test_dawa_beats_data_independent_mechanisms_on_easy_data(mean_error, dataset):
    # Measured: about 0.65 of HB's error and 0.5 of GreedyH's; the slack is for the noise of four trials.
    dawa = mean_error("dawa", dataset)
    assert dawa < 0.9 * mean_error("hb", dataset)
    assert dawa < 0.75 * mean_error("greedy_h", dataset)


def test_privelet_has_the_error_that_the_paper_prints(mean_error):
    # 196.6 on any data at epsilon 0.1; theirs are other uniform ranges, and ours has 4 trials: within 25 %.
    assert mean_error("privelet", "nettrace") == pytest.approx(196.6, rel=0.25)


def test_noise_chooses_the_buckets_without_a_bucket_penalty(mean_error, papers_counts):
    free = release("dawa", papers_counts("adult"), 0.1, noise=SeededNoise(1), bucket_penalty=0)
    paid = release("dawa", papers_counts("adult"), 0.1, noise=SeededNoise(1))
    assert free.published["edges"].size > 1500
    assert paid.published["edges"].size < 200
    assert mean_error("dawa", "adult") < 0.75 * mean_error("dawa", "adult", bucket_penalty=0)


@pytest.mark.parametrize("dataset", ["nettrace", "medcost", "income", "hepph"])
def test_the_adaptive_tree_beats_dawa(mean_error, dataset):
    # Measured over thirty trials: 0.26 to 0.83 of its error.
    assert mean_error("adaptive_tree", dataset) < 0.9 * mean_error("dawa", dataset)


@pytest.mark.parametrize("dataset", ["searchlogs", "patent", "hepph"])
def test_deviations_from_the_median_find_better_buckets(mean_error, dataset):
    # Measured over six trials: 0.63 to 0.76 of the error; on easy data both are alike.
    assert mean_error("dawa", dataset) < 0.9 * mean_error("dawa", dataset, deviation_from="mean")
