"""Groups of keys: weights and laws equal those found by brute force, and intervals hold as often as stated.

``GROUP_RUNS`` is the number of seeded runs for each design; 200 unless told.
"""

from __future__ import annotations

import os
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from dphist import plan_product
from dphist.laws.interval import half_width
from dphist.product.axis import KeyAxis
from dphist.product.columns import KeyPlaces, column_sum, key_weights
from dphist.tree.design import Release
from tests.dphist.product.strategies import released
from tests.dphist.tree.convolved import Convolved
from tests.oracles import inverse

RUNS = int(os.environ.get("GROUP_RUNS", "200"))
FALSE_ALARM = 1e-8  # for each of some 20 comparisons
TOTALS = [Fraction(0), Fraction(1, 5), Fraction(1, 2)]


def brute_weights(keys: int, share: Fraction, group: tuple[int, ...]) -> list[Fraction]:
    """Return the weights of total and keys in the group's weighted least-squares estimate, exactly.

    For the normal matrix N of all observations, the estimate c x has the weights W A y with N y = c.
    """
    precision = [share**2, *[(1 - share) ** 2] * keys]
    observed = [[Fraction(1)] * keys, *[[Fraction(int(i == j)) for j in range(keys)] for i in range(keys)]]
    normal = [
        [
            sum((p * row[i] * row[j] for p, row in zip(precision, observed, strict=True)), Fraction(0))
            for j in range(keys)
        ]
        for i in range(keys)
    ]
    found = [sum(row[place] for place in group) for row in inverse(normal)]
    return [
        p * sum((a * b for a, b in zip(row, found, strict=True)), Fraction(0))
        for p, row in zip(precision, observed, strict=True)
    ]


@pytest.mark.parametrize("share", TOTALS)
def test_weights_of_every_group_are_least_squares(share: Fraction) -> None:
    keys = 5
    axis = KeyAxis(keys, 1 - share, share)
    for size in range(1, keys + 1):
        for group in combinations(range(keys), size):
            of_total, of_keys = key_weights(axis, group)
            expected = [float(weight) for weight in brute_weights(keys, share, group)]
            assert np.allclose([of_total, *of_keys], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("share", TOTALS)
def test_law_of_a_group_is_the_convolution_of_its_noises(share: Fraction) -> None:
    """One closed bin of a causal tree: its error is the weighted sum of the noise of single cells."""
    design = plan_product(4, 2, keys=5, total_share=share, release="causal", branching=(2, 2))
    total = released(design, np.ones((1, 5), np.int64), 3, 0, 1)
    leaf = design.time.shape.height - 1
    scales = [float(group.design.scales[leaf]) for group in design.groups]
    for group in ((0,), (1, 3), (0, 2, 4), (0, 1, 2, 3, 4)):
        of_total, *of_keys = [float(weight) for weight in brute_weights(5, share, group)]
        weights = np.array([*([of_total] if share else []), *of_keys])
        law = Convolved(weights, np.array([*scales[:-1], *[scales[-1]] * 5]))
        estimate = column_sum(design, group).of_range(total)
        for confidence in (0.5, 0.95, 0.999):
            half = half_width(estimate.law, confidence).value
            assert law.within(half).most >= confidence - 1e-9
            assert law.within(half - max(law.unit, 0.04 * law.deviation) - 1e-9).least < confidence + 1e-4
        assert estimate.variance == pytest.approx(law.deviation**2, rel=1e-9)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("share", TOTALS[:2])
def test_intervals_of_groups_hold_as_often_as_stated(release: Release, share: Fraction) -> None:
    """The threshold has a false-alarm rate of 1e-8 for each group."""
    design = plan_product(4, 1, keys=6, total_share=share, release=release, branching=(2, 2))
    cells = np.random.default_rng(5).integers(0, 40, (3, 6))
    groups: list[KeyPlaces] = [(0, 1), (2, 4, 5), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5), 3]
    held = np.zeros(len(groups), np.int64)
    for seed in range(RUNS):
        total = released(design, cells, seed, 0, 3)
        for place, group in enumerate(groups):
            interval = column_sum(design, group).of_range(total).interval(0.95)
            truth = cells[:, np.atleast_1d(group)].sum()
            held[place] += bool(interval.lower <= truth <= interval.upper)
    assert (held >= binom.ppf(FALSE_ALARM, RUNS, 0.95)).all(), held / RUNS
    # Intervals that are 15 % too wide would hold 97.5 % of the time.
    assert (held <= binom.isf(FALSE_ALARM, RUNS, 0.975)).all(), held / RUNS


def test_counts_of_parts_add_up_to_the_whole() -> None:
    for share in TOTALS:
        design = plan_product(4, 1, keys=6, total_share=share, release="causal", branching=(2, 2))
        total = released(design, np.arange(18).reshape(3, 6), 8, 0, 3)
        parts = [column_sum(design, group).value_of(total) for group in ((0, 5), (1, 2, 3), 4)]
        assert sum(parts) == pytest.approx(column_sum(design).value_of(total), rel=1e-12, abs=1e-9)
        single = sum(column_sum(design, place).value_of(total) for place in (1, 2, 3))
        assert parts[1] == pytest.approx(single, rel=1e-12, abs=1e-9)


LEVEL_GAINS = {  # decision 0033: cells below a value, then errors of the value and of one cell at 1/5 and 1/2
    2: (1.20, 1.23, 1.19, 1.68),
    3: (1.17, 1.24, 1.03, 1.79),
    5: (1.11, 1.24, 0.84, 1.88),
    10: (1.00, 1.24, 0.62, 1.97),
    20: (0.86, 1.25, 0.45, 2.01),
    50: (0.64, 1.26, 0.29, 2.04),
    500: (0.23, 1.27, 0.09, 2.06),
}


@pytest.mark.parametrize("cells", LEVEL_GAINS)
def test_a_level_per_field_gains_only_with_many_cells(cells: int) -> None:
    """A value of the first field and the cells below it are a list of keys with a measured total."""

    def errors(share: Fraction) -> np.ndarray:
        design = plan_product(1, 1, keys=cells, total_share=share, release="causal")
        total = released(design, np.zeros((1, cells), np.int64), 1, 0, 1)
        return np.array([column_sum(design, key).of_range(total).stderr for key in (None, 0)])

    without = errors(Fraction(0))
    found = [*(errors(Fraction(1, 5)) / without), *(errors(Fraction(1, 2)) / without)]
    assert found == pytest.approx(LEVEL_GAINS[cells], abs=0.006)
