"""The words of the buffers are exact: counter and estimates against the same recurrence in fractions."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dphist.arrays import Int64Array
from dphist.caps import Caps
from dphist.toeplitz import RunningCounts, ToeplitzCounter, ToeplitzDesign, ToeplitzStrategy, optimal_strategy
from tests.dphist.toeplitz.algebra import GivenNoise


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
