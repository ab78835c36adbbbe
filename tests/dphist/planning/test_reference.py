"""Reference counters: the published formulas, their variance by brute force, and measured errors."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dphist.noise import SeededNoise
from dphist.planning.reference import HonakerCounter, KaryCounter, SubtractionCounter
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape

SMALL = Fraction(1, 10**5)  # where the discrete and the continuous law agree
NONE = SeededNoise(0)


def full(k: int, height: int) -> int:
    return int(k**height - 1)


@pytest.mark.parametrize(("k", "height"), [(2, 10), (11, 3), (16, 2)])
def test_plain_trees_meet_their_closed_form(k: int, height: int) -> None:
    # Mean over full digit ranges, 0 included: h^3 (k - 1) / eps^2.
    counter = KaryCounter(full(k, height), SMALL, k, NONE, 0)
    assert counter.height == height
    mean = counter.mean_squared_error() * float(SMALL) ** 2 * full(k, height) / k**height
    assert mean == pytest.approx(height**3 * (k - 1), rel=1e-8)


@pytest.mark.parametrize(("k", "height"), [(3, 6), (13, 3), (19, 2)])
def test_subtraction_meets_its_closed_form(k: int, height: int) -> None:
    # Over balanced digits of both signs: h^3 k (1 - 1/k^2) / (2 eps^2); positive t are half of them, less 0.
    horizon = full(k, height) // 2
    counter = SubtractionCounter(horizon, SMALL, k, NONE, 0)
    assert counter.height == height
    mean = counter.mean_squared_error() * float(SMALL) ** 2 * 2 * horizon / k**height
    assert mean == pytest.approx(height**3 * k * (1 - 1 / k**2) / 2, rel=1e-8)


def test_honaker_is_the_causal_tree_with_equal_shares() -> None:
    shares = (Fraction(1, 9),) * 9
    tree = TreeDesign(TreeShape((2,) * 9), 511, Fraction(1), shares)
    counter = HonakerCounter(511, 1, 2, NONE, 0)
    assert counter.mean_squared_error() == pytest.approx(tree.mean_squared_error(), rel=1e-10)


def test_flat_adds_up_all_bins() -> None:
    flat = KaryCounter(100, SMALL, 100, NONE, 0)
    assert flat.mean_squared_error() * float(SMALL) ** 2 == pytest.approx(101.0)


@pytest.mark.parametrize(
    "counter",
    [
        KaryCounter(45, 1, 2, SeededNoise(1), 4000),
        HonakerCounter(45, 1, 2, SeededNoise(2), 4000),
        HonakerCounter(45, 1, 3, SeededNoise(6), 4000),
        KaryCounter(45, 1, 5, SeededNoise(3), 4000),
        SubtractionCounter(45, 1, 5, SeededNoise(4), 4000),
        KaryCounter(45, 1, 45, SeededNoise(5), 4000),
    ],
    ids=lambda counter: f"{type(counter).__name__}-{counter.branching}",
)
def test_measured_errors_are_the_predicted_ones(counter: KaryCounter) -> None:
    # Five standard errors: a false alarm once in two million.
    squared = (counter.errors**2).mean(axis=0)
    stderr = squared.std(ddof=1) / len(squared) ** 0.5
    assert abs(squared.mean() - counter.mean_squared_error()) < 5 * stderr
    assert abs(squared.mean() / 1.5**2 - counter.mean_squared_error()) > 10 * stderr
    # Every prefix is unbiased.
    assert np.abs(counter.errors.mean(axis=1)).max() < 6 * (counter.errors.var(axis=1) / 4000).max() ** 0.5


def test_impossible_reference_trees_are_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        SubtractionCounter(20, 1, 4, NONE)
    with pytest.raises(ValueError, match="too small"):
        KaryCounter(0, 1, 2, NONE)
