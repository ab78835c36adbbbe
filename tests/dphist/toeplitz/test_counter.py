"""The counter: released values are exact counts through the strategy plus noise, on a lattice."""

from __future__ import annotations

import numpy as np
import pytest

from dphist.noise import SeededNoise
from dphist.toeplitz import RunningCounts, ToeplitzCounter, ToeplitzDesign, ToeplitzSnapshot, plan_toeplitz
from dphist.toeplitz.estimate import RunningSnapshot, mean_squared_error
from tests.dphist.toeplitz.algebra import GivenNoise, NoNoise, dense

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


def test_design_text_is_canonical_and_too_little_noise_is_refused() -> None:
    assert ToeplitzDesign.from_json(DESIGN.to_json()) == DESIGN
    steps = f'"noise_steps":{DESIGN.noise_steps}'
    with pytest.raises(ValueError, match="less noise"):
        ToeplitzDesign.from_json(DESIGN.to_json().replace(steps, f'"noise_steps":{DESIGN.noise_steps - 1}'))


@pytest.mark.parametrize(("bits", "bound"), [(10, 168), (16, 344), (20, 497)])
def test_stated_error_is_below_the_goal(bits: int, bound: float) -> None:
    assert mean_squared_error(plan_toeplitz(2**bits, 1, "1e-6")) <= bound
