"""Answers over several axes compared with dense least squares, and their laws with the drawn noise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import SeededNoise, SystemNoise
from dphist.arrays import FloatArray
from dphist.planning.product import TOTAL_SHARE, plan_product
from dphist.product.answers import Cdf, Histogram, distance_bounds, ks_distance, ks_estimate, share_bounds
from dphist.product.columns import ColumnSum
from dphist.product.design import ProductDesign
from dphist.product.forest import ProductForest, RangeSum
from tests.dphist.product.strategies import forest_of, product_designs, span
from tests.examples import examples
from tests.oracles import complete_nodes
from tests.oracles import span as bins_under

counts = st.lists(st.integers(0, 6), min_size=2, max_size=5)


def drawn_forest(
    design: ProductDesign, noise: SeededNoise | SystemNoise, seed: int, bins: int
) -> ProductForest:
    return forest_of(design, np.random.default_rng(seed).integers(0, 9, (bins, design.cells)), noise)


def axis_rows(design: ProductDesign, bins: int) -> list[tuple[FloatArray, FloatArray]]:
    """Return, for time, keys and values, one 0/1 row per node, and the factor of each node's variance."""
    nodes = complete_nodes(design.time.branching, bins)
    time = np.array([[float(b in bins_under(design.time.branching, n)) for b in range(bins)] for n in nodes])
    shares = [design.time.shares[level - 1] for level, _ in nodes]
    keys, key_shares = np.eye(design.keys.keys), [design.keys.key_share] * design.keys.keys
    if design.keys.total_share:
        keys = np.vstack([np.ones(design.keys.keys), keys])
        key_shares.insert(0, design.keys.total_share)
    axis = design.values
    places = [(j, v) for j, count in enumerate(axis.node_counts, start=1) for v in range(count)]
    values = np.array([[float(b in span(axis, j, v)) for b in range(axis.buckets)] for j, v in places])
    value_shares = [axis.shares[j - 1] for j, _ in places]
    return [
        (rows, np.array([1.0 / float(share) ** 2 for share in wanted]))
        for rows, wanted in ((time, shares), (keys, key_shares), (values, value_shares))
    ]


def decoder(rows: FloatArray, variances: FloatArray) -> FloatArray:
    weighted = rows.T / variances
    return np.asarray(np.linalg.solve(weighted @ rows, weighted), np.float64)


@examples(40)
@given(product_designs(), st.integers(0, 99), st.data())
def test_one_axis_at_a_time_equals_dense_least_squares(
    design: ProductDesign, seed: int, data: st.DataObject
) -> None:
    # Scales are so large that discrete noise is as good as continuous noise.
    design = replace(design, time=replace(design.time, epsilon=Fraction(1, 10**4)))
    bins = data.draw(st.integers(1, design.time.horizon))
    a = data.draw(st.integers(0, bins - 1))
    forest = drawn_forest(design, SeededNoise(seed), seed, bins)
    axes = axis_rows(design, bins)
    # The released columns as an array over (time node, key row, value node).
    rows = []
    for level, index in complete_nodes(design.time.branching, bins):
        by_key = []
        for total in ([True] if design.keys.total_share else []) + [False]:
            groups = [group for group in design.groups if group.total == total]
            nodes = [forest.nodes(level)[index, group.columns].reshape(group.keys, -1) for group in groups]
            by_key.append(np.concatenate(nodes, axis=1))
        rows.append(np.concatenate(by_key))
    released = np.array(rows, dtype=np.float64)
    time, keys, values = (decoder(*axis) for axis in axes)
    one_order = np.einsum("bt,kx,vy,txy->bkv", time, keys, values, released)
    # All at once, with the covariance of the whole.
    model = np.kron(np.kron(axes[0][0], axes[1][0]), axes[2][0])
    variances = np.kron(np.kron(axes[0][1], axes[1][1]), axes[2][1])
    at_once = np.linalg.lstsq(
        model / np.sqrt(variances)[:, np.newaxis], released.ravel() / np.sqrt(variances), rcond=None
    )[0].reshape(one_order.shape)
    size = np.abs(released).max()
    assert np.allclose(one_order, at_once, atol=1e-7 * size)
    asked = forest.range(a, bins)
    for key in range(design.keys.keys):
        found = Histogram.of(asked, key)
        assert np.allclose(found.buckets, at_once[a:bins, key].sum(axis=0), atol=1e-5 * size)
    everything = Histogram.of(asked)
    assert np.allclose(everything.buckets, at_once[a:bins].sum(axis=(0, 1)), atol=1e-5 * size)
    # Its variance is that of dense least squares: (model' V^-1 model)^-1.
    scale = float(design.time.sensitivity / design.epsilon)
    covariance = [np.linalg.inv(rows.T / own @ rows) for rows, own in axes]
    expected = (
        2.0 * scale**2 * covariance[0][a:bins, a:bins].sum() * covariance[1][0, 0] * covariance[2].sum()
    )
    assert Histogram.of(asked, 0).count().variance == pytest.approx(expected, rel=1e-5)


@examples(40)
@given(product_designs(), st.integers(0, 99), st.data())
def test_answers_without_noise_are_exact(design: ProductDesign, seed: int, data: st.DataObject) -> None:
    design = replace(design, time=replace(design.time, epsilon=Fraction(10**9)))
    bins = design.time.horizon
    forest = drawn_forest(design, SystemNoise(), seed, bins)
    cells = np.random.default_rng(seed).integers(0, 9, (bins, design.cells))
    a, b = sorted((data.draw(st.integers(0, bins)), data.draw(st.integers(0, bins))))
    key = data.draw(st.none() | st.integers(0, design.keys.keys - 1))
    table = cells[a:b].sum(axis=0).reshape(design.keys.keys, -1)
    truth = table.sum(axis=0) if key is None else table[key]
    found = Histogram.of(forest.range(a, b), key)
    cdf = found.cdf()
    assert np.allclose(cdf.values, truth.cumsum(), atol=1e-3)
    assert np.allclose(cdf.upper - cdf.lower, 0.0, atol=1e-2)
    assert found.count().value == pytest.approx(truth.sum(), abs=1e-3)
    assert cdf.consistent().tolist() == truth.cumsum().tolist()
    for q in (0.05, 0.5, 0.95):
        quantile = cdf.quantile(q)
        expected = int(np.argmax(truth.cumsum() >= q * truth.sum())) if truth.sum() else None
        assert quantile.bucket == expected
        if expected is not None:
            assert quantile.first <= expected <= quantile.last


def test_ranges_of_two_epochs_add_up() -> None:
    design = plan_product(10, 1, keys=3, buckets=6, total_share=TOTAL_SHARE)
    one, two = (drawn_forest(design, SeededNoise(seed), seed, 10).range(2, 9) for seed in (1, 2))
    for key in (None, 2):
        parts = [Histogram.of(part, key).count(1, 4) for part in (one, two)]
        both = Histogram.of(RangeSum.joined([one, two]), key).count(1, 4)
        assert both.value == pytest.approx(sum(part.value for part in parts))
        assert both.variance == pytest.approx(sum(part.variance for part in parts))
    other = plan_product(10, 1, keys=4, buckets=6)
    with pytest.raises(ValueError, match="add up"):
        RangeSum.joined([one, drawn_forest(other, SeededNoise(1), 1, 10).range(0, 1)])


def test_a_measured_total_lowers_the_errors_of_answers_that_use_it() -> None:
    plain, with_total = (
        plan_product(10, 1, keys=50, total_share=share) for share in (Fraction(0), TOTAL_SHARE)
    )
    variances = [
        Histogram.of(drawn_forest(design, SeededNoise(1), 1, 10).range(0, 10)).count().variance
        for design in (plain, with_total)
    ]
    assert variances[1] < 0.6 * variances[0]


def test_unknown_keys_buckets_and_quantiles_are_refused() -> None:
    total = drawn_forest(plan_product(4, 1, keys=2, buckets=3), SeededNoise(1), 1, 4).range(0, 4)
    with pytest.raises(ValueError, match="key 2"):
        Histogram.of(total, 2)
    with pytest.raises(ValueError, match="buckets"):
        Histogram.of(total, 1).count(2, 2)
    with pytest.raises(ValueError, match="q:"):
        Histogram.of(total, 1).cdf().quantile(1.0)
    with pytest.raises(ValueError, match="confidence"):
        Histogram.of(total, 1).cdf(0.9999)


def test_a_band_without_information_allows_every_bucket() -> None:
    cdf = Cdf(np.array([1.0, 2.0]), np.ones(2), np.full(2, 10.0), 0.95)
    assert (cdf.quantile(0.5).first, cdf.quantile(0.5).last) == (0, 1)
    assert Cdf(np.array([-1.0, -2.0]), np.ones(2), np.full(2, 10.0), 0.95).quantile(0.5).bucket is None


@examples(50)
@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_consistent_counts_and_quantiles_lie_in_the_band(seed: int, size: int, narrow: bool) -> None:
    """Also where the noise exceeds the counts, and where a band that missed crosses itself."""
    rng = np.random.default_rng(seed)
    values = rng.poisson(3, size).cumsum() + rng.normal(0, 30, size)
    cdf = Cdf(values, np.ones(size), rng.uniform(1, 5 if narrow else 90, size), 0.95)
    drawn = cdf.consistent()
    assert np.all(np.diff(drawn) >= 0)
    assert np.all(np.diff(cdf.lower) >= 0)
    assert np.all(np.diff(cdf.upper) >= 0)
    assert np.all(cdf.lower <= cdf.upper)
    whole = np.ceil(cdf.lower) <= np.floor(cdf.upper)  # where the band holds a whole number
    assert np.all((cdf.lower - (1 - whole) <= drawn) & (drawn <= cdf.upper))
    if drawn[-1]:
        found = [cdf.quantile(q) for q in (0.1, 0.5, 0.9)]
        assert all(one.bucket is not None and one.first <= one.bucket <= one.last for one in found)


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
    total = forest_of(design, cells, SeededNoise(seed)).range(0, design.time.horizon)
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
        forest = forest_of(design, cells, SeededNoise(seed))
        one, other = (Histogram.of(forest.range(*part)) for part in ((0, 4), (4, 8)))
        found.append(ks_distance(one, other, 0.9))
        assert found[-1].value == ks_estimate(one, other)
    # At most 10 of 100 may miss it; 25 or more would happen once in 10^5 at 10 %.
    assert sum(not one.lower <= truth <= one.upper for one in found) <= 25
    assert np.median([one.lower for one in found]) > truth / 2
    assert np.median([one.upper - one.lower for one in found]) < truth / 2


def test_bad_questions_are_refused() -> None:
    histograms = [
        Histogram.of(forest_of(design, np.zeros((4, design.cells), np.int64), SeededNoise(1)).range(0, 4))
        for design in (plan_product(4, Fraction(1), 1, 4), plan_product(4, Fraction(1), 1, 8))
    ]
    with pytest.raises(ValueError, match="buckets"):
        ks_distance(histograms[0], histograms[1])
    with pytest.raises(ValueError, match="confidence"):
        ks_distance(histograms[0], histograms[0], 0.999)
