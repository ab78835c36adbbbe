"""Intervals compared with laws convolved by brute force: never too narrow, and no wider than stated."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.laws.interval import DITHER, IntervalSearch, half_width, half_widths, half_widths_of_few
from dphist.laws.inversion import tail_bounds
from dphist.laws.law import NORMAL, LawTable, WeightedNoise
from tests.examples import examples
from tests.oracles import probability_within, weighted_sum_pmf

SCALES = st.floats(0.15, 9.0)
CONFIDENCES = st.sampled_from([0.3, 0.5, 0.9, 0.95, 0.99, 0.9999])
# Two computations of one probability may differ by this much. Certificates cost up to 2e-5 of 1 - confidence.
ROUNDING = 1e-9
DEVIATIONS = st.floats(1e-6, 1e9)


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6), SCALES), min_size=1, max_size=3), CONFIDENCES)
def test_half_width_for_whole_weights_is_the_least_integer(
    groups: list[tuple[int, int, float]], confidence: float
) -> None:
    law = weighted_sum_pmf(groups)
    found = half_width(WeightedNoise.of(groups), confidence)
    unit = min(weight for weight, _, _ in groups)
    if any(weight % unit for weight, _, _ in groups):
        return
    assert found.value == int(found.value)
    reached, below = (probability_within(law, int(found.value) - less) for less in (0, unit))
    assert reached >= found.level - ROUNDING
    assert found.level >= confidence
    assert found.level == pytest.approx(reached, abs=3e-5 * (1 - confidence) + ROUNDING) or found.value == 0
    assert found.value == 0 or below < confidence + 3e-5 * (1 - confidence)


@pytest.mark.slow
@examples(60)
@given(
    st.lists(st.tuples(st.sampled_from([3, 5, 7, 8, 11]), st.integers(1, 5), SCALES), min_size=2, max_size=4),
    CONFIDENCES,
)
def test_half_widths_for_other_weights_are_certified_and_near_the_least(
    groups: list[tuple[int, int, float]], confidence: float
) -> None:
    # Weights are eighths, so the law lies on a lattice. Brute force uses the lattice, the inversion does not.
    law = weighted_sum_pmf(groups)
    noise = WeightedNoise.of([(weight / 8, copies, scale) for weight, copies, scale in groups])
    found = half_width(noise, confidence)
    assert probability_within(law, math.floor(found.value * 8 + 1e-9)) >= found.level - ROUNDING
    assert found.level >= confidence
    narrower = found.value - 2.1 * DITHER * math.sqrt(noise.variance)
    if found.value > 0:
        below = probability_within(law, math.ceil(narrower * 8 - 1e-9) - 1) if narrower > 0 else 0.0
        assert below < confidence + 3e-5 * (1 - confidence) + ROUNDING


@pytest.mark.parametrize("lattice", [False, True])
def test_only_negligible_frequencies_are_dropped(lattice: bool) -> None:
    # Far from 0 the characteristic function comes near 1 again, where all weights nearly agree.
    skipped = 0
    for groups in (
        [(2, 40, 5.0), (5, 40, 5.0)],
        [(1, 3, 200.0), (3, 1, 0.5)],
        [(1, 1, 30.0)],
        [(2, 500, 2.0), (3, 1, 90.0), (7, 2, 9.0)],
    ):
        laws = LawTable.of([WeightedNoise.of(groups)])
        search = IntervalSearch(laws if lattice else laws.scaled(1 / laws.deviations()), 0.95, lattice)
        starts, needed = search.needed_blocks()
        blocks = [(int(starts[i]), int(starts[i + 1])) for i in np.flatnonzero(needed[0])]
        kept = search.refined(np.array([0]), blocks)
        dropped = np.setdiff1d(np.arange(1, search.frequencies + 1), kept)
        theta = 2 * np.pi * dropped / search.period[0]
        weights, copies, variances = next(search.laws.columns(1))
        decay = (copies * np.log1p(variances * (1 - np.cos(weights * theta)))).sum(axis=(0, 1))
        assert np.exp(-decay).max(initial=0.0) * np.sum(1 / dropped) <= search.error
        skipped += dropped.size
    assert skipped > 1000


@pytest.mark.parametrize(("laws", "groups"), [(3, 2_000), (700, 7), (1, 1)])
def test_sums_over_groups_do_not_depend_on_the_block_size(laws: int, groups: int) -> None:
    draws = np.random.default_rng(6)
    weights, copies = draws.uniform(0, 1, (laws, groups)), draws.integers(0, 5, (laws, groups))
    table = LawTable(weights, copies.astype(float), draws.uniform(0.2, 30, (laws, groups)))
    theta = draws.uniform(0, 40, (laws, 61))
    sines = np.sin(0.5 * weights[..., np.newaxis] * theta[:, np.newaxis]) ** 2
    logs = np.log1p(2 * table.variances[..., np.newaxis] * sines)
    np.testing.assert_allclose(table.decay(theta), np.einsum("lg,lgp->lp", copies, logs), rtol=1e-11)


@examples(40)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6), SCALES), min_size=1, max_size=3),
    st.sampled_from([0.5, 0.05, 1e-3, 1e-6]),
)
def test_tail_bounds_hold_and_are_near_the_best_bound(
    groups: list[tuple[int, int, float]], probability: float
) -> None:
    laws = LawTable.of([WeightedNoise.of(groups)])
    [[bound]] = tail_bounds(laws, (probability,))
    assert 1 - probability_within(weighted_sum_pmf(groups), math.ceil(bound) - 1) <= probability + 1e-12
    weights, copies, variances = laws.weights[0], laws.copies[0], laws.variances[0]
    pole = (2 * np.arcsinh(np.sqrt(0.5 / variances)) / weights).min()
    exponents = pole * np.linspace(0, 1, 2_000)[1:-1]
    growth = 2 * variances * np.sinh(0.5 * np.outer(exponents, weights)) ** 2
    best = ((np.log(2 / probability) - np.log1p(-growth) @ copies) / exponents).min()
    assert best * (1 - 1e-9) <= bound * (1 + 1e-3)
    assert bound <= 1.1 * best


def test_many_small_weights_approach_the_normal_law() -> None:
    found = half_width(WeightedNoise.of([(0.01, 10**6, 5.0), (0.013, 10**6, 4.0)]), 0.95)
    deviation = math.sqrt(WeightedNoise.of([(0.01, 10**6, 5.0), (0.013, 10**6, 4.0)]).variance)
    assert found.value / deviation == pytest.approx(1.959964, abs=2 * DITHER)


def test_interval_of_one_variable_matches_the_closed_form() -> None:
    # P(|Z| > m) = 2 a^(m + 1) / (1 + a); above scale 10^4 the certificates are wider than an integer.
    for scale in (0.7, 13.0, 4000.0, 3e7):
        a = math.exp(-1 / scale)
        for confidence in (0.5, 0.95, 0.999):
            least = math.ceil(math.log((1 - confidence) * (1 + a) / 2) / math.log(a) - 1)
            found = half_width(WeightedNoise.of([(1.0, 1, scale)]), confidence).value
            assert max(0, least) <= found <= max(0, least) + 3e-5 * scale


def test_half_the_weight_gives_half_the_width() -> None:
    plain = half_width(WeightedNoise.of([(1.0, 3, 2.0)]), 0.9)
    assert half_width(WeightedNoise.of([(0.5, 3, 2.0)]), 0.9).value == 0.5 * plain.value


@pytest.mark.parametrize("confidence", [0.1, 0.9])
def test_rounded_sums_on_a_lattice_stay_inside_the_interval(confidence: float) -> None:
    """An error of exactly three times 0.2 must be inside the interval, although 3 * 0.2 > 0.6 in doubles."""
    noise = [(0.2, 1, 0.3), (0.8, 4, 0.3)]
    found = half_width(WeightedNoise.of(noise), confidence).value
    on_it = half_width(WeightedNoise.of([(1.0, 1, 0.3), (4.0, 4, 0.3)]), confidence).value * 0.2
    assert on_it + 1e-6 < found < on_it + 0.2 / 1000


def test_law_without_noise_has_width_zero() -> None:
    assert half_width(WeightedNoise.of([]), 0.99).value == 0.0
    assert half_width(WeightedNoise.of([(1.0, 10**6, 1e-9)]), 0.999999).value == 0.0
    assert half_width(WeightedNoise.of([(0.0, 5, 9.0)]), 0.9).level == 1.0


@pytest.mark.slow
def test_width_grows_with_confidence() -> None:
    noise = WeightedNoise.of([(1.0, 2, 3.0), (0.37, 5, 4.0)])
    widths = [half_width(noise, 1 - 10.0**-digits).value for digits in (1, 2, 4, 8)]
    assert all(low < high for low, high in pairwise(widths))
    law = weighted_sum_pmf([(100, 2, 3.0), (37, 5, 4.0)])
    for digits, width in zip((1, 2, 4, 8), widths, strict=True):
        assert 1 - probability_within(law, math.floor(width * 100)) <= 10.0**-digits * (1 + 1e-3) + 1e-13


def test_a_table_gives_the_half_widths_of_its_rows() -> None:
    draws = np.random.default_rng(1)
    laws = [
        WeightedNoise.of(
            [
                (float(draws.choice([1.0, 0.25, draws.uniform(0.01, 1)])), int(draws.integers(1, 40)), scale)
                for scale in draws.uniform(0.2, 30, draws.integers(1, 6))
            ]
        )
        for _ in range(300)
    ]
    values, levels = half_widths(LawTable.of(laws), 0.95)
    for law, value, level in zip(laws, values, levels, strict=True):
        single = half_width(law, 0.95)
        assert value == pytest.approx(single.value, abs=DITHER / 8 * math.sqrt(law.variance))
        assert level >= 0.95


def test_repeated_laws_of_a_table_are_inverted_once() -> None:
    laws = [WeightedNoise.of([(1.0, 2, 3.0), (0.37, n, 4.0)]) for n in (1, 2, 1, 3, 2, 1)]
    table = LawTable.of(laws)
    first, place = table.distinct()
    assert len(first) == 3
    assert [laws[row] for row in first[place]] == laws
    assert half_widths(table, 0.9)[0].tolist() == [half_widths(LawTable.of([law]), 0.9)[0][0] for law in laws]
    # Laws that differ in copies, or in the place of a group, are distinct.
    assert len(table.repeated(np.arange(1.0, 7.0)).distinct()[0]) == 6


def test_equal_tables_are_inverted_once_and_shared_by_nobody() -> None:
    table = LawTable.of([WeightedNoise.of([(1.0, n, 3.0), (0.371, 2, 4.0)]) for n in (1, 2, 5)])
    before = half_widths_of_few.cache_info().misses
    first = half_widths(table, 0.9)
    first[0][:] = 0.0  # a caller may change its own arrays
    again, other = half_widths(table.repeated(1), 0.9), half_widths(table, 0.91)
    assert half_widths_of_few.cache_info().misses == before + 2
    assert (again[0] > 0).all()
    assert (other[0] >= again[0]).all()
    [alone] = half_widths(table.take(np.array([2])), 0.9)[0]
    assert again[0][2] == pytest.approx(alone, abs=DITHER)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0, math.nan])
def test_confidence_outside_0_to_1_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        half_width(WeightedNoise.of([(1.0, 1, 1.0)]), confidence)


def test_laws_do_not_depend_on_order_and_signs_of_groups() -> None:
    one = WeightedNoise.of([(0.5, 2, 3.0), (1.0, 1, 4.0), (-0.5, 1, 3.0)])
    assert one == WeightedNoise.of([(1.0, 1, 4.0), (0.5, 3, 3.0), (0.0, 9, 1.0)])
    assert hash(one) == hash(WeightedNoise.of(one.groups))


@examples(200)
@given(DEVIATIONS, st.floats(0.01, 0.9999999))
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
