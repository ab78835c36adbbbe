"""A design: its text, its checks, and the lattice that its noise needs."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from dphist.caps import Caps
from dphist.composition import Losses, epsilon_of
from dphist.toeplitz import ToeplitzDesign, plan_toeplitz

DESIGN = plan_toeplitz(90, "0.5", "1e-7", Caps(6, 3, 4), "substitute", width=5, window_starts=(0, 24, 47, 71))


def test_text_is_canonical_and_reads_back() -> None:
    text = DESIGN.to_json()
    assert ToeplitzDesign.from_json(text) == DESIGN
    assert ToeplitzDesign.from_json(text).to_json() == text
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("epsilon", "0.4", "less noise"),
        ("delta", "1/20000000", "less noise"),
        ("delta", "1/1", "delta"),
        ("noise_steps", 2, "noise_steps"),
        ("noise_steps", 10.5, "noise_steps"),
        ("caps", {"max_keys": 4, "max_per_key": 4}, "less noise"),
        ("caps", {"max_keys": 4}, "both or neither"),
        ("caps", {"max_bytes": 4}, "caps"),
        ("neighbours", "other", "neighbours"),
        ("width", 0, "width"),
        ("width", True, "width"),
        ("output_bits", 25, "output_bits"),
        ("buffer_bits", 41, "buffer_bits"),
        ("window_starts", [1], "window_starts"),
        ("window_starts", [0, 90], "window_starts"),
        ("window_starts", [0, 24.0], "window_starts"),
        ("window_starts", list(range(90)), "less noise"),
        ("strategy", {}, "strategy"),
        ("more", 1, "expected the keys"),
    ],
)
def test_changed_text_is_refused(name: str, value: Any, message: str) -> None:
    fields = json.loads(DESIGN.to_json()) | {name: value}
    with pytest.raises(ValueError, match=message):
        ToeplitzDesign.from_json(json.dumps(fields))


def test_mu_states_the_budget_again() -> None:
    epsilon = epsilon_of(Losses.of_gaussian(DESIGN.mu), DESIGN.delta)
    assert epsilon is not None
    assert float(epsilon) == pytest.approx(0.5, rel=1e-4)


def test_twelve_epochs_are_together_as_computed_by_hand() -> None:
    mu = plan_toeplitz(1000, 1, "1e-6").mu
    assert float(mu) == pytest.approx(0.2367, abs=1e-4)
    together = epsilon_of(Losses.of_gaussian(mu, times=12), Fraction(1, 10**6))
    assert together is not None
    assert round(float(together), 2) == 3.90


def test_wide_noise_takes_a_coarser_lattice() -> None:
    fine, coarse = plan_toeplitz(64, 1, "1e-6"), plan_toeplitz(64, "1e-6", "1e-6")
    assert fine.output_bits == 24
    assert coarse.output_bits < 20
    assert coarse.noise_steps <= 2**36
    assert float(coarse.sensitivity) == pytest.approx(float(fine.sensitivity), rel=0.01)
    with pytest.raises(ValueError, match=r"^epsilon:"):
        plan_toeplitz(64, "1e-6", "1e-6", Caps(10**9))


def test_a_year_of_daily_windows_is_planned() -> None:
    hours = plan_toeplitz(365 * 24, 1, "1e-6", window_starts=tuple(range(0, 365 * 24, 24)))
    assert hours.sensitivity > 10 * plan_toeplitz(365 * 24, 1, "1e-6").sensitivity
