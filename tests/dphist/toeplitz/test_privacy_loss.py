"""The exact privacy loss of the lattice mechanism, on all neighbouring inputs of small horizons.

The lattice is coarse, so that roundings matter. Values before noise come from the real counter. The delta of
every pair of neighbours is computed from the enumerated law of the noise.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dphist.arrays import Int64Array
from dphist.caps import Caps
from dphist.certified import root_ceiling
from dphist.toeplitz import ToeplitzCounter, ToeplitzDesign, ToeplitzStrategy
from dphist.toeplitz.calibration import least_steps
from tests.dphist.toeplitz.algebra import canonical, exact_delta
from tests.oracles import NoNoise

EPSILON, DELTA = Fraction(1), Fraction(1, 1000)
# c = 1, 1/2, 3/8, ...: on whole numbers, 1/2 is rounded up to 1.
STRATEGY = ToeplitzStrategy(3, (Fraction(1, 2),), (Fraction(3, 4),))


def coarse_design(caps: Caps, width: int) -> ToeplitzDesign:
    """Return a design on whole numbers, with the least noise that is certified for it."""
    wide = ToeplitzDesign(STRATEGY, EPSILON, DELTA, caps, "add_remove", width, 0, 2**20)
    steps = least_steps(wide.sensitivity, wide.step, wide.coordinates, EPSILON, DELTA)
    return ToeplitzDesign(STRATEGY, EPSILON, DELTA, caps, "add_remove", width, 0, steps)


def values_before_noise(design: ToeplitzDesign, counts: Int64Array) -> Int64Array:
    """Return the values that the real counter would release without noise, in lattice steps."""
    return ToeplitzCounter(design).close(counts, NoNoise())


def shifts(design: ToeplitzDesign) -> set[tuple[int, ...]]:
    """Return the shifts between the values of all neighbours with up to two events of others per bin."""
    others = list(product(range(3), repeat=3))
    found = set()
    for bin in range(3):
        for events in range(1, design.caps.l1 + 1):
            base = np.array(others).T  # each other people's stream is one column
            wide = ToeplitzDesign(
                STRATEGY, EPSILON, DELTA, design.caps, "add_remove", len(others), 0, design.noise_steps + 1000
            )
            added = base.copy()
            added[bin] += events
            moved = values_before_noise(wide, added) - values_before_noise(wide, base)
            found |= {canonical(column.tolist()) for column in moved.T}
    return found


@pytest.mark.parametrize("caps", [Caps(1), Caps(2)], ids=str)
def test_no_pair_of_neighbours_loses_more_than_promised(caps: Caps) -> None:
    design = coarse_design(caps, 1)
    for shift in shifts(design):
        assert sum(size * size for size in shift) <= design.sensitivity**2
        assert exact_delta(shift, design.noise_steps, EPSILON) <= float(DELTA)


def test_mutant_that_charges_no_rounding_is_caught() -> None:
    design = coarse_design(Caps(1), 1)
    mutant = least_steps(root_ceiling(STRATEGY.gram(0, 0)), design.step, 3, EPSILON, DELTA)
    assert mutant < design.noise_steps
    assert max(exact_delta(shift, mutant, EPSILON) for shift in shifts(design)) > float(DELTA)


def test_roundings_of_any_history_move_a_value_by_less_than_the_bound() -> None:
    generator = np.random.default_rng(8)
    strategy = ToeplitzStrategy(60, (Fraction(1, 16), Fraction(1, 4)), (Fraction(15, 16), Fraction(1, 2)))
    design = ToeplitzDesign(strategy, EPSILON, DELTA, Caps(1), "add_remove", 2000, 0, 2**20)
    counts = generator.integers(0, 40, (60, 2000))
    neighbours = counts.copy()
    bins = generator.integers(0, 60, 2000)
    neighbours[bins, np.arange(2000)] += 1
    moved = values_before_noise(design, neighbours) - values_before_noise(design, counts)
    exact = np.zeros((60, 2000))
    for column, bin in enumerate(bins.tolist()):
        exact[bin:, column] = strategy.coefficients()[: 60 - bin]
    assert np.abs(moved - exact).max() <= float(design.rounding)
    assert (moved**2).sum(axis=0).max() <= design.sensitivity**2
    # The bound is needed: without it the norm would be too small.
    assert (moved**2).sum(axis=0).max() > strategy.gram(0, 0)
