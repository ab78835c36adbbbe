"""The distance of two distributions: bounds against brute force, and intervals against the truth."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import SeededNoise, plan_product
from dphist.product.answers import Cdf, Histogram, distance_bounds, ks_distance, ks_estimate, share_bounds
from dphist.product.columns import ColumnSum
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.forest import ProductForest
from tests.dphist.product.strategies import product_designs

counts = st.lists(st.integers(0, 6), min_size=2, max_size=5)


def forest_of(design: ProductDesign, cells: np.ndarray, seed: int) -> ProductForest:
    forest = ProductForest(design)
    forest.append_many(ProductCounter(design, SeededNoise(seed)).push_many(cells))
    return forest


@given(counts, st.integers(0, 3))
def test_share_bounds_contain_every_distribution_in_the_band(truth: list[int], reach: int) -> None:
    cumulative = np.cumsum(truth).astype(float)
    band = Cdf(cumulative, np.ones(len(truth)), np.full(len(truth), float(reach)), 0.9)
    low, high = share_bounds(band)
    seen_low, seen_high = np.ones(len(truth)), np.zeros(len(truth))
    totals = range(max(0, int(cumulative[-1]) - reach), int(cumulative[-1]) + reach + 1)
    for place, count in enumerate(cumulative.astype(int).tolist()):
        for at in range(max(0, count - reach), count + reach + 1):
            for total in totals:
                if total and at <= total and (place < len(truth) - 1 or at == total):
                    seen_low[place] = min(seen_low[place], at / total)
                    seen_high[place] = max(seen_high[place], at / total)
    if max(totals):
        assert (low <= seen_low + 1e-12).all()
        assert (high >= seen_high - 1e-12).all()
    if not reach and cumulative[-1]:
        assert np.allclose(low, cumulative / cumulative[-1])
        assert np.allclose(high, cumulative / cumulative[-1])


@given(counts, counts)
def test_a_band_of_width_zero_gives_the_distance_of_the_shares(one: list[int], other: list[int]) -> None:
    size = min(len(one), len(other))
    cumulative = [np.cumsum(values[:size]).astype(float) for values in (one, other)]
    if not all(values[-1] for values in cumulative):
        return
    bands = [Cdf(values, np.ones(size), np.zeros(size), 0.9) for values in cumulative]
    truth = np.abs(cumulative[0] / cumulative[0][-1] - cumulative[1] / cumulative[1][-1]).max()
    assert np.allclose(distance_bounds(bands[0], bands[1]), truth)


@pytest.mark.slow
@given(product_designs(), st.integers(0, 99), st.data())
def test_a_weighted_sum_of_buckets_equals_the_sum_over_the_histogram(
    design: ProductDesign, seed: int, data: st.DataObject
) -> None:
    cells = np.random.default_rng(seed).integers(0, 9, (design.time.horizon, design.cells))
    total = forest_of(design, cells, seed).range(0, design.time.horizon)
    places = st.lists(st.integers(0, design.keys.keys - 1), min_size=1, unique=True)
    keys = data.draw(st.none() | places)
    weights = np.random.default_rng(seed).normal(size=design.values.buckets).round(2)
    together = Histogram.of(total, keys)
    apart = [Histogram.of(total, key) for key in (range(design.keys.keys) if keys is None else keys)]
    size = 1.0 + np.abs(together.buckets).max()
    assert np.allclose(together.buckets, sum(one.buckets for one in apart), atol=1e-8 * size)
    found = ColumnSum(design, keys, weights).of_range(total)
    assert found.value == pytest.approx(float(weights @ together.buckets), abs=1e-7 * size)
    # A count of the first buckets is such a sum too, and its law is known from elsewhere.
    some = data.draw(st.integers(1, design.values.buckets))
    prefix = np.where(np.arange(design.values.buckets) < some, 1.0, 0.0)
    same = ColumnSum(design, keys, prefix).of_range(total)
    assert same.variance == pytest.approx(together.count(0, some).variance, rel=1e-6)


def test_keys_that_are_named_twice_are_refused() -> None:
    design = plan_product(4, Fraction(1), 3, 1)
    for keys in ((0, 0), (1, 3), (-1,)):
        with pytest.raises(ValueError, match="key"):
            ColumnSum(design, keys)


@pytest.mark.slow
def test_the_interval_contains_the_distance_and_is_short() -> None:
    design = plan_product(8, Fraction(1), 1, 16)
    generator = np.random.default_rng(5)
    rates = np.linspace(10, 400, 16)
    cells = np.vstack([generator.poisson(rates, (4, 16)), generator.poisson(rates[::-1], (4, 16))])
    exact = [cells[part].sum(axis=0).cumsum() for part in (slice(0, 4), slice(4, 8))]
    truth = np.abs(exact[0] / exact[0][-1] - exact[1] / exact[1][-1]).max()
    found = []
    for seed in range(100):
        forest = forest_of(design, cells, seed)
        one, other = (Histogram.of(forest.range(*part)) for part in ((0, 4), (4, 8)))
        found.append(ks_distance(one, other, 0.9))
        assert found[-1].value == ks_estimate(one, other)
    # At most 10 of 100 may miss it; 25 or more would happen once in 10^5 at 10 %.
    assert sum(not one.lower <= truth <= one.upper for one in found) <= 25
    assert np.median([one.lower for one in found]) > truth / 2
    assert np.median([one.upper - one.lower for one in found]) < truth / 2


def test_bad_questions_are_refused() -> None:
    histograms = [
        Histogram.of(forest_of(design, np.zeros((4, design.cells), np.int64), 1).range(0, 4))
        for design in (plan_product(4, Fraction(1), 1, 4), plan_product(4, Fraction(1), 1, 8))
    ]
    with pytest.raises(ValueError, match="buckets"):
        ks_distance(histograms[0], histograms[1])
    with pytest.raises(ValueError, match="confidence"):
        ks_distance(histograms[0], histograms[0], 0.999)
