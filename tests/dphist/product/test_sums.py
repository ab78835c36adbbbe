"""Sums and means: brute force of the sensitivity, exact laws, coverage of the intervals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product as pairs_of
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from dphist import plan_product
from dphist.laws.interval import DITHER, half_width
from dphist.laws.law import WeightedNoise
from dphist.noise import SeededNoise
from dphist.planning.product import plan_sums
from dphist.privacy import Neighbours
from dphist.product.columns import MOST_WEIGHT, column_sum
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.forest import RangeSum
from dphist.product.published import CellTotals, publish_bins
from dphist.product.sums import LARGEST_WEIGHT, AmountRange, Mean, end_columns, mean_of_ends, sum_columns
from dphist.tree.design import Release
from dphist.units import FullError
from tests.dphist.product.strategies import released

HORIZON = 12
RANGES = (AmountRange(0, 500), AmountRange(-40, 60), AmountRange(900, 1000), AmountRange(-7, 0))
both_releases = pytest.mark.parametrize("release", ["causal", "anticipating"])


def planned(
    amounts: AmountRange, release: Release, epsilon: float = 1.0, keys: int = 1, total: Fraction = Fraction(0)
) -> ProductDesign:
    return plan_sums(HORIZON, epsilon, amounts.weight, keys, total_share=total, release=release)


def cells_of(
    amounts: AmountRange, bins: np.ndarray, units: np.ndarray, keys: np.ndarray, count: int
) -> np.ndarray:
    """Return the exact cells of an epoch."""
    cells = np.zeros((HORIZON, count, 2), np.int64)
    np.add.at(cells, (bins, keys), amounts.ends(units))
    return cells.reshape(HORIZON, -1)


def mean_of(total: RangeSum, amounts: AmountRange, key: int | None = None) -> Mean:
    low, high = (end.of_range(total) for end in end_columns(total.design, key))
    return mean_of_ends(low, high, amounts)


# -- sensitivity ------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["add_remove", "substitute"])
@pytest.mark.parametrize("max_events", [1, 2])
def test_sensitivity_is_the_greatest_change_of_any_neighbours(
    neighbours: Neighbours, max_events: int
) -> None:
    """Compare with all logs of one user's events over two bins and all amounts."""
    amounts = AmountRange(-1, 2)
    one_event = [
        (bin, tuple(row))
        for bin in range(2)
        for row in amounts.ends(np.arange(amounts.low, amounts.high + 1)).tolist()
    ]
    logs = []
    for events in pairs_of(one_event, repeat=max_events):
        cells = np.zeros((2, 2), np.int64)
        for bin, row in events:
            cells[bin] += row
        logs.append(cells)
    others = [np.zeros((2, 2), np.int64)] if neighbours == "add_remove" else logs
    greatest = max(int(np.abs(one - other).sum()) for one in logs for other in others)
    design = plan_sums(2, 1, amounts.weight, neighbours=neighbours, max_events=max_events)
    assert design.time.sensitivity == greatest


def test_an_event_costs_epsilon_whatever_its_amount() -> None:
    amounts = AmountRange(-3, 5)
    design = planned(amounts, "causal", keys=2, total=Fraction(1, 5))
    for unit in range(amounts.low, amounts.high + 1):
        cells = np.zeros((1, 4), np.int64)
        cells[0, 2:] = amounts.ends(np.array([unit]))[0]
        moved = np.abs(design.columns_of(cells)[0])
        loss = sum(
            (
                Fraction(int(moved[group.columns].sum())) / scale
                for group in design.groups
                for scale in group.design.scales
            ),
            Fraction(0),
        )
        assert Fraction(999, 1000) < loss / design.epsilon <= 1


def test_a_range_of_too_many_units_is_refused() -> None:
    with pytest.raises(ValueError, match="are not in"):
        AmountRange(0, LARGEST_WEIGHT + 1)
    with pytest.raises(ValueError, match="are not in"):
        plan_sums(4, 1, LARGEST_WEIGHT + 1)
    with pytest.raises(ValueError, match="not a multiple of an event's weight"):
        replace(plan_sums(4, 1, 500), weight=3)


# -- answers ----------------------------------------------------------------------------------------


@both_releases
@pytest.mark.parametrize("amounts", RANGES)
@given(data=st.data())
def test_answers_without_noise_equal_a_recount(
    amounts: AmountRange, release: Release, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    events = data.draw(st.integers(0, 60))
    bins, keys = rng.integers(0, HORIZON, events), rng.integers(0, 3, events)
    units = rng.integers(amounts.low, amounts.high + 1, events)
    a = data.draw(st.integers(0, HORIZON - 1))
    b = data.draw(st.integers(a + 1, HORIZON))
    design = planned(amounts, release, 1e9, keys=3)
    total = released(design, cells_of(amounts, bins, units, keys, 3), 1, a, b)
    for key in (None, 0, 1, 2):
        chosen = (bins >= a) & (bins < b) & (True if key is None else keys == key)
        counted = column_sum(design, key).of_range(total)
        summed = sum_columns(design, amounts, key).of_range(total)
        assert (counted.value, summed.value) == (chosen.sum(), units[chosen].sum())
        assert counted.variance == summed.variance == 0
        mean = mean_of(total, amounts, key)
        if chosen.any():
            true = float(units[chosen].mean())
            assert mean.value == pytest.approx(true, abs=1e-9)
            assert mean.lower - 1e-9 <= true <= mean.upper + 1e-9
            assert mean.upper - mean.lower < 1e-3 * amounts.weight
        else:
            assert (mean.value, mean.lower, mean.upper) == (None, amounts.low, amounts.high)


def test_sums_have_the_variances_that_the_decision_states() -> None:
    """docs/decisions/0031-sums.md: 4 for the count and 2 for the sum, in (range / epsilon)^2."""
    amounts = AmountRange(0, 50_000)
    design = plan_sums(1, Fraction(1, 10), amounts.weight)
    total = released(design, np.zeros((1, 2), np.int64), 1, 0, 1)
    counted, summed = column_sum(design).of_range(total), sum_columns(design, amounts).of_range(total)
    assert counted.variance * 0.1**2 == pytest.approx(4, rel=1e-3)
    assert summed.variance * (0.1 / 50_000) ** 2 == pytest.approx(2, rel=1e-3)


RUNS = 300
LEAST = int(binom.ppf(5e-8, RUNS, 0.95))  # of runs in which a 95 % interval holds; 12 cases, below 1e-6


@both_releases
@pytest.mark.parametrize("amounts", RANGES[:3])
@pytest.mark.parametrize("events", [40, 2_000])
def test_intervals_hold_as_often_as_stated(
    amounts: AmountRange, events: int, release: Literal["causal", "anticipating"]
) -> None:
    rng = np.random.default_rng(5)
    bins = rng.integers(0, HORIZON, events)
    units = amounts.low + (amounts.weight * rng.beta(2, 5, events)).astype(np.int64)
    nobody = np.zeros(events, np.int64)
    cells, inside = cells_of(amounts, bins, units, nobody, 1), (bins >= 2) & (bins < 9)
    design, holds = planned(amounts, release), np.zeros(2)
    for seed in range(RUNS):
        total = released(design, cells, seed, 2, 9)
        interval = sum_columns(design, amounts).of_range(total).interval()
        mean = mean_of(total, amounts)
        holds += [
            interval.lower <= units[inside].sum() <= interval.upper,
            mean.lower <= units[inside].mean() <= mean.upper,
        ]
    assert (holds >= LEAST).all(), holds
    if events == 2_000:  # where the count is far above its noise, the interval is not too wide either
        assert holds[1] <= binom.ppf(1 - 5e-8, RUNS, 0.955)


# -- laws at large scales ---------------------------------------------------------------------------


def tail(scale: int, copies: int, beyond: int) -> Fraction:
    """Return P(|Z| > beyond), of one variable or of the sum of two, with exp(-1 / scale) to 60 digits."""
    a = Fraction(*(10**60 * scale - 10**60, 10**60 * scale))
    rate, term, a = Fraction(1, scale), Fraction(1), Fraction(1)
    for number in range(1, 40):
        term *= -rate / number
        a += term
    a = Fraction(round(a * 10**60), 10**60)
    # a^(beyond + 1), rounded to 60 digits at each step
    power, base, left = Fraction(1), a, beyond + 1
    while left:
        if left & 1:
            power = Fraction(round(power * base * 10**60), 10**60)
        base = Fraction(round(base * base * 10**60), 10**60)
        left >>= 1
    if copies == 1:
        return 2 * power / (1 + a)
    # P(Z1 + Z2 = k) = ((1 - a) / (1 + a))^2 a^k (k + (1 + a^2) / (1 - a^2)) for k >= 0.
    n, c = beyond + 1, (1 + a * a) / (1 - a * a)
    summed = power * ((n + c) / (1 - a) + a / (1 - a) ** 2)
    return 2 * ((1 - a) / (1 + a)) ** 2 * summed


@pytest.mark.parametrize("scale", [10, 1_000, 20_000, 50_000, 1_000_000, 10**9])
@pytest.mark.parametrize("copies", [1, 2])
def test_half_widths_at_large_scales_agree_with_exact_arithmetic(scale: int, copies: int) -> None:
    law = WeightedNoise.of([(1.0, copies, float(scale))])
    value, level = half_width(law, 0.95)
    held = 1 - tail(scale, copies, int(value))
    assert held >= Fraction(95, 100)
    assert float(held) >= level - 1e-9
    shorter = value - max(1.0, 2.2 * DITHER * law.variance**0.5)
    assert 1 - tail(scale, copies, int(shorter)) < Fraction(95, 100)


@pytest.mark.parametrize("total", [Fraction(0), Fraction(1, 5)])
def test_a_causal_epoch_is_full_when_its_published_counts_say_so(total: Fraction) -> None:
    design = planned(AmountRange(0, LARGEST_WEIGHT), "causal", keys=2, total=total)
    counter = ProductCounter(design, SeededNoise(3))
    # The check comes one release late, so exact counts may go beyond what stops the next release.
    counter.push_many(np.array([[MOST_WEIGHT // 2, 0, 10**9, 0]]))
    counter.push_many(np.array([[0, MOST_WEIGHT // 2, 0, 0]]))
    with pytest.raises(
        ValueError, match=r"sum: this epoch has 175,921,860 events, noise included"
    ) as refusal:
        counter.push_many(np.array([[0, 0, 0, 0]]))
    assert "coarser unit or shorter epochs" in str(refusal.value)
    again = ProductCounter.restore(design, SeededNoise(4), counter.to_bytes())
    with pytest.raises(
        ValueError, match="sum: this epoch has"
    ):  # no noise is drawn, so a restart is no new try
        again.push_many(np.array([[0, 0, 0, 0]]))


@pytest.mark.parametrize("error", [-1, 1])
def test_an_anticipating_epoch_is_full_by_noisy_counts_alone(error: int) -> None:
    design = planned(AmountRange(0, LARGEST_WEIGHT), "anticipating")
    errors = np.full((1, design.columns), error * 2**30, np.int64)
    exact = np.array([[MOST_WEIGHT // 2, MOST_WEIGHT // 2]])
    if error > 0:
        with pytest.raises(ValueError, match="sum: this epoch has"):
            publish_bins(design, CellTotals.first(design), exact, errors)
    else:
        publish_bins(design, CellTotals.first(design), exact, errors)


def test_an_epoch_of_counts_is_full_by_published_counts() -> None:
    design = plan_product(HORIZON, 1.0, keys=2, release="causal")
    counter = ProductCounter(design, SeededNoise(3))
    counter.push_many(np.array([[2**43, 2**43 - 10**6]]))
    counter.push_many(np.array([[10**6, 10**6]]))
    with pytest.raises(FullError, match="this epoch has 17,592,186,044,416 events, noise included"):
        counter.push_many(np.array([[0, 0]]))
