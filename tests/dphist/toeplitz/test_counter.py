"""The counter: released values are exact counts through the strategy plus noise, on a lattice."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.arrays import Int64Array
from dphist.caps import Caps
from dphist.noise import SeededNoise
from dphist.toeplitz import (
    RunningCounts,
    ToeplitzCounter,
    ToeplitzDesign,
    ToeplitzSnapshot,
    ToeplitzStrategy,
    optimal_strategy,
    plan_toeplitz,
)
from dphist.toeplitz.estimate import RunningSnapshot, mean_squared_error
from tests.dphist.toeplitz.algebra import GivenNoise, dense
from tests.oracles import FailingNoise, NoNoise

DESIGN = plan_toeplitz(horizon=200, epsilon=1, delta="1e-6", width=3)
COUNTS = np.random.default_rng(5).integers(0, 1000, (200, 3))


def test_released_values_are_the_strategy_times_counts_plus_noise() -> None:
    noise = np.random.default_rng(6).integers(-(2**40), 2**40, (200, 3))
    released = ToeplitzCounter(DESIGN).close(COUNTS, GivenNoise(noise))
    exact = dense(DESIGN.strategy.coefficients()) @ COUNTS
    assert np.abs((released - noise) * float(DESIGN.step) - exact).max() <= float(DESIGN.rounding) / 2 + 1e-9


def test_running_counts_without_noise_are_exact() -> None:
    released = ToeplitzCounter(DESIGN).close(COUNTS, NoNoise())
    assert (RunningCounts(DESIGN).append(released) == COUNTS.cumsum(axis=0) << DESIGN.output_bits).all()


def test_bins_one_by_one_over_snapshots_are_bins_at_once() -> None:
    noise = SeededNoise(3).discrete_gaussian(DESIGN.variance_steps, (200, 3))
    at_once = ToeplitzCounter(DESIGN).close(COUNTS, GivenNoise(noise))
    counter, running, source = ToeplitzCounter(DESIGN), RunningCounts(DESIGN), GivenNoise(noise)
    for bin in range(200):
        row = counter.close(COUNTS[bin : bin + 1], source)
        assert row.tolist() == at_once[bin : bin + 1].tolist()
        live = running.append(row)
        if bin % 50 == 7:
            counter = ToeplitzCounter.restore(
                DESIGN, ToeplitzSnapshot.from_bytes(counter.snapshot().to_bytes())
            )
            running = RunningCounts.restore(DESIGN, RunningSnapshot.from_bytes(running.snapshot().to_bytes()))
    assert live.tolist() == RunningCounts(DESIGN).append(at_once)[-1:].tolist()


def test_counts_of_a_wrong_kind_are_refused_and_change_nothing() -> None:
    counter = ToeplitzCounter(DESIGN)
    counter.close(COUNTS[:5], NoNoise())
    before = counter.snapshot().to_bytes()
    for bad in (
        np.full((1, 3), -1),
        np.full((1, 3), 2**36 + 1),
        np.zeros((1, 3)),
        np.zeros((1, 2), int),
        COUNTS,
    ):
        with pytest.raises(ValueError, match="counts:"):
            counter.close(bad, NoNoise())
    assert counter.snapshot().to_bytes() == before


@pytest.mark.parametrize(("bits", "bound"), [(10, 168), (16, 344), (20, 497)])
def test_stated_error_is_below_the_goal(bits: int, bound: float) -> None:
    assert mean_squared_error(plan_toeplitz(2**bits, 1, "1e-6")) <= bound


def test_failing_noise_leaves_the_counter_as_it_was() -> None:
    counter = ToeplitzCounter(DESIGN)
    with pytest.raises(OSError, match="no entropy"):
        counter.close(COUNTS[:3], FailingNoise(0))
    assert counter.bin == 0
    assert not counter.snapshot().high.any()


def test_damaged_or_foreign_snapshots_are_refused() -> None:
    counter = ToeplitzCounter(DESIGN)
    counter.close(COUNTS[:3], NoNoise())
    state = counter.snapshot()
    foreign = [
        ToeplitzSnapshot(201, state.high, state.low),
        ToeplitzSnapshot(3, state.high[:, :2], state.low[:, :2]),
        ToeplitzSnapshot(3, state.high, state.low - 2**41),
    ]
    for bad in foreign:
        with pytest.raises(ValueError, match="approximate counter snapshot"):
            ToeplitzCounter.restore(DESIGN, bad)
    with pytest.raises(ValueError, match="damaged"):
        ToeplitzSnapshot.from_bytes(state.to_bytes()[:-1])
    with pytest.raises(ValueError, match="damaged"):
        RunningSnapshot.from_bytes(state.to_bytes())


def test_full_columns_are_refused_before_anything_is_released() -> None:
    counter = ToeplitzCounter(DESIGN)
    counter.close(np.full((1, 3), 2**36), NoNoise())
    with pytest.raises(ValueError, match="shorten the epoch"):
        counter.close(np.full((1, 3), 2**36), NoNoise())
    assert counter.bin == 1


def test_values_that_no_counter_released_are_refused() -> None:
    running = RunningCounts(DESIGN)
    bads: list[Any] = [np.zeros((1, 3)), np.zeros((1, 2), np.int64), np.zeros((201, 3), np.int64)]
    for bad in bads:
        with pytest.raises(ValueError, match="released values"):
            running.append(bad)
    with pytest.raises(ValueError, match="no counter released"):
        running.append(np.full((1, 3), 2**62 + 5))
    with pytest.raises(ValueError, match="add up to more"):
        running.append(np.full((20, 3), 2**61))
    assert running.snapshot().to_bytes() == RunningCounts(DESIGN).snapshot().to_bytes()


def test_no_text_shows_an_exact_count() -> None:
    counter = ToeplitzCounter(DESIGN)
    counter.close(np.full((2, 3), 31_337), NoNoise())
    assert "31337" not in repr(counter) + repr(counter.snapshot())


def rounded(value: Fraction, bits: int) -> Fraction:
    """Return the nearest multiple of 2^-bits, halves upwards."""
    return Fraction(floor(value * 2**bits + Fraction(1, 2)), 2**bits)


class ExactBuffers:
    """The buffers of one column, in fractions."""

    def __init__(self, design: ToeplitzDesign) -> None:
        self.design, self.values = design, [Fraction(0)] * design.strategy.buffers

    def output(self) -> Fraction:
        pairs = zip(self.design.strategy.weights, self.values, strict=True)
        return rounded(sum((a * s for a, s in pairs), Fraction(0)), self.design.output_bits)

    def advance(self, added: Fraction) -> None:
        rates = self.design.strategy.rates
        self.values = [
            s - rounded((1 - rate) * s, self.design.buffer_bits) + added
            for rate, s in zip(rates, self.values, strict=True)
        ]


@st.composite
def designs(draw: st.DrawFn) -> ToeplitzDesign:
    """Return a design over a few bins, of any stored strategy and any lattice."""
    strategy = optimal_strategy(draw(st.sampled_from([1, 5, 40, 500, 10_000, 2**20, 2**24])))
    short = ToeplitzStrategy(8, strategy.weights, strategy.rates)
    bits = draw(st.integers(0, 24))
    return ToeplitzDesign(short, Fraction(4), Fraction(1, 100), Caps(1), "add_remove", 1, bits, 2**36)


@given(designs(), st.lists(st.integers(0, 2**33), min_size=8, max_size=8), st.integers(0, 60), st.data())
def test_counter_and_estimates_are_the_recurrence_in_fractions(
    design: ToeplitzDesign, counts: list[int], noise_bits: int, data: st.DataObject
) -> None:
    draw = st.integers(-(2**noise_bits) // 4, 2**noise_bits // 4)
    noise = data.draw(st.lists(draw, min_size=8, max_size=8))
    scale = 2**design.output_bits
    forward, backward = ExactBuffers(design), ExactBuffers(design)
    released, running, total = [], [], Fraction(0)
    for count, z in zip(counts, noise, strict=True):
        released.append(count + forward.output() + Fraction(z, scale))
        forward.advance(Fraction(count))
        estimate = released[-1] - backward.output()
        backward.advance(estimate)
        total += estimate
        running.append(total)
    column = np.array(counts)[:, np.newaxis]
    counter = ToeplitzCounter(design)
    found = counter.close(column, GivenNoise(np.array(noise)[:, np.newaxis]))
    assert found.ravel().tolist() == [value * scale for value in released]
    state = counter.snapshot()
    words = zip(state.high.ravel().tolist(), state.low.ravel().tolist(), strict=True)
    assert [high + Fraction(low, 2**design.buffer_bits) for high, low in words] == forward.values
    if max(map(abs, running)) < 2**36:
        assert RunningCounts(design).append(found).ravel().tolist() == [value * scale for value in running]


def test_equal_changes_of_noise_and_values_are_lattice_shifts() -> None:
    """Two neighbours' values differ by whole steps that do not depend on the noise."""
    design = ToeplitzDesign(
        optimal_strategy(50), Fraction(1), Fraction(1, 10**6), Caps(1), "add_remove", 1, 24, 2**34
    )
    generator = np.random.default_rng(4)
    counts = generator.integers(0, 100, (50, 1))
    neighbour = counts.copy()
    neighbour[20] += 1

    def shift(noise: Int64Array) -> list[int]:
        pair = (ToeplitzCounter(design).close(stream, GivenNoise(noise)) for stream in (neighbour, counts))
        more, less = pair
        return (more - less).ravel().tolist()

    shifts = [shift(generator.integers(-(2**40), 2**40, (50, 1))) for _ in range(3)]
    assert shifts[0] == shifts[1] == shifts[2]
    assert shifts[0][:21] == [0] * 20 + [2**24]
    assert sum(size**2 for size in shifts[0]) <= (design.sensitivity / design.step) ** 2
