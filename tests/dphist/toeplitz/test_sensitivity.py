"""The sensitivity bounds every change that one unit can make; brute force over small horizons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dphist.arrays import FloatArray, Int64Array
from dphist.caps import Caps
from dphist.toeplitz import ToeplitzStrategy, optimal_strategy, plan_toeplitz
from tests.dphist.toeplitz.algebra import dense, exact_coefficients

CAPS = [Caps(1), Caps(3), Caps(None, 1, 2), Caps(None, 2, 1), Caps(3, 2, 2), Caps(2, 2, 2)]
STEEP = ToeplitzStrategy(3, (Fraction(1, 8), Fraction(1, 2)), (Fraction(7, 8), Fraction(3, 4)))


def allowed(counts: Int64Array, caps: Caps, starts: Sequence[int]) -> bool:
    """Return whether counts (bins, columns) obey the caps in each window."""
    for window in np.split(counts, list(starts[1:])):
        columns = window.sum(axis=0)
        if caps.max_events is not None and columns.sum() > caps.max_events:
            return False
        if caps.max_keys is not None and (columns > 0).sum() > caps.max_keys:
            return False
        if caps.max_per_key is not None and columns.max() > caps.max_per_key:
            return False
    return True


def unit_counts(bins: int, columns: int, caps: Caps, starts: Sequence[int]) -> Iterator[Int64Array]:
    """Yield all counts that one unit may add."""
    for flat in product(range(min(caps.l1, 3) + 1), repeat=bins * columns):
        counts = np.array(flat).reshape(bins, columns)
        if allowed(counts, caps, starts):
            yield counts


def released_by_units(strategy: ToeplitzStrategy, caps: Caps, starts: Sequence[int]) -> FloatArray:
    """Return C x for all counts x of a unit, one row each."""
    matrix = dense(exact_coefficients(strategy, 3))
    return np.array([(matrix @ x).ravel() for x in unit_counts(3, 2, caps, starts)])


@pytest.mark.parametrize("caps", CAPS, ids=str)
@pytest.mark.parametrize("starts", [(0,), (0, 1), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("strategy", [optimal_strategy(3), STEEP], ids=["optimal", "steep"])
def test_no_unit_changes_the_released_values_by_more(
    strategy: ToeplitzStrategy, caps: Caps, starts: tuple[int, ...]
) -> None:
    bound = float(caps.l2_squared * strategy.windows_norm_squared(starts))
    squares = (released_by_units(strategy, caps, starts) ** 2).sum(axis=1)
    assert squares.max() <= bound * (1 + 1e-12)
    if len(starts) == 1 or starts == (0, 1, 2):
        # One window: all events in the first bin. Windows of one bin: first and last bins are the same.
        assert squares.max() >= bound * (1 - 1e-12)


@pytest.mark.parametrize("caps", CAPS, ids=str)
@pytest.mark.parametrize("starts", [(0,), (0, 2)], ids=str)
def test_substitution_costs_at_most_the_root_of_two(caps: Caps, starts: tuple[int, ...]) -> None:
    strategy = optimal_strategy(3)
    values = released_by_units(strategy, caps, starts)
    squares = (values**2).sum(axis=1)
    distances = squares[:, np.newaxis] + squares - 2.0 * values @ values.T
    bound = 2.0 * float(caps.l2_squared * strategy.windows_norm_squared(starts))
    assert distances.max() <= bound * (1 + 1e-12)


@pytest.mark.parametrize("caps", CAPS, ids=str)
def test_design_charges_caps_relation_and_roundings(caps: Caps) -> None:
    plain = plan_toeplitz(3, 1, "1e-6", caps, width=2, strategy=STEEP)
    norm = float(caps.l2_squared * STEEP.gram(0, 0)) ** 0.5
    columns = min(2, caps.l1 if caps.max_keys is None else min(caps.max_keys, caps.l1))
    assert plain.touched_columns == columns
    assert float(plain.sensitivity) == pytest.approx(norm + (3 * columns) ** 0.5 * float(plain.rounding))
    assert float(plain.sensitivity) > norm
    substitute = plan_toeplitz(3, 1, "1e-6", caps, "substitute", width=2, strategy=STEEP)
    assert substitute.touched_columns == 2
    assert float(substitute.sensitivity / plain.sensitivity) == pytest.approx(2**0.5, rel=1e-6)


def test_a_window_is_charged_once_only_if_the_epoch_has_one() -> None:
    epoch = plan_toeplitz(100, 1, "1e-6")
    days = plan_toeplitz(100, 1, "1e-6", window_starts=tuple(range(0, 100, 10)))
    assert days.sensitivity > 3 * epoch.sensitivity
