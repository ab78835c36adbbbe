"""A Toeplitz strategy: its closed forms agree with dense algebra, and bad ones are refused."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks.strategies import loss_of, optimise
from dphist.caps import Caps
from dphist.composition import Losses, epsilon_of
from dphist.toeplitz import ToeplitzDesign, ToeplitzStrategy, optimal_strategy, plan_toeplitz
from dphist.toeplitz.inverse import inverse_weights
from dphist.toeplitz.strategy import LARGEST_HORIZON
from tests.dphist.toeplitz.algebra import dense, exact_coefficients, exact_inverse

HORIZONS = [1, 2, 3, 7, 20, 64, 150]
HALF = Fraction(1, 2)
# Every horizon up to 300, and some of each octave beyond.
STORED = [*range(1, 301), *(2**k + shift * 2**k // 7 for k in range(9, 24) for shift in range(7)), 2**24]
DESIGN = plan_toeplitz(90, "0.5", "1e-7", Caps(6, 3, 4), "substitute", width=5, window_starts=(0, 24, 47, 71))


@pytest.mark.parametrize("horizon", HORIZONS)
def test_norm_and_gram_bound_the_exact_sums_closely(horizon: int) -> None:
    strategy = optimal_strategy(horizon)
    c = exact_coefficients(strategy, horizon)
    for first in range(0, horizon, max(1, horizon // 6)):
        for second in range(0, horizon, max(1, horizon // 5)):
            gap, later = abs(first - second), max(first, second)
            exact = sum((c[k + gap] * c[k] for k in range(horizon - later)), Fraction(0))
            assert exact <= strategy.gram(first, second) < exact + Fraction(1, 2**150)


@pytest.mark.parametrize("starts", [[0], [0, 1], [0, 10, 11, 49], list(range(0, 50, 7))])
def test_windows_are_bounded_by_first_and_last_bins(starts: list[int]) -> None:
    strategy = optimal_strategy(50)
    c = exact_coefficients(strategy, 50)

    def gram(s: int, t: int) -> Fraction:
        return sum((c[k + abs(s - t)] * c[k] for k in range(50 - max(s, t))), Fraction(0))

    ends = [*(start - 1 for start in starts[1:]), 49]
    pairs = [(w, v) for v in range(len(starts)) for w in range(v)]
    exact = sum(gram(f, f) for f in starts) + 2 * sum(gram(ends[w], starts[v]) for w, v in pairs)
    assert exact <= strategy.windows_norm_squared(starts) < exact + Fraction(1, 2**140)


@pytest.mark.parametrize("horizon", HORIZONS)
def test_inverse_weights_agree_with_long_division(horizon: int) -> None:
    strategy = optimal_strategy(horizon)
    b = np.cumsum([float(value) for value in exact_inverse(exact_coefficients(strategy, horizon))])
    found = inverse_weights(strategy)
    assert np.allclose(found.weights(np.arange(horizon)), b, rtol=1e-9)
    assert (np.diff(b) <= 0).all()
    assert (b >= 0).all()
    n = np.arange(horizon + 1)
    assert np.allclose(found.sums(n), [b[:k].sum() for k in n], rtol=1e-9)
    assert np.allclose(found.squares(n), [(b[:k] ** 2).sum() for k in n], rtol=1e-9)
    starts, stops = (side.ravel() for side in np.meshgrid(n, n))
    starts, stops = np.minimum(starts, stops), np.maximum(starts, stops)
    weights = [
        b[:t] - np.pad(b, (horizon, 0))[horizon - t + s :][:t] for s, t in zip(starts, stops, strict=True)
    ]
    assert np.allclose(found.range_squares(starts, stops), [(w**2).sum() for w in weights], rtol=1e-9)
    assert np.allclose(found.range_sums(starts, stops), [abs(w).sum() for w in weights], rtol=1e-9)


def test_coefficients_agree_with_fractions() -> None:
    strategy = optimal_strategy(300)
    assert np.allclose(
        strategy.coefficients(), [float(c) for c in exact_coefficients(strategy, 300)], rtol=1e-12
    )
    assert dense(strategy.coefficients(4))[3].tolist() == strategy.coefficients(4)[::-1].tolist()


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("horizon", (0, (HALF,), (HALF,))),
        ("horizon", (True, (HALF,), (HALF,))),
        ("weights", (8, (), ())),
        ("weights", (8, (HALF,), (HALF, HALF))),
        ("weights", (8, (Fraction(1, 3),), (HALF,))),
        ("weights", (8, (-HALF,), (HALF,))),
        ("weights", (8, (HALF, HALF), (Fraction(3, 4), HALF))),
        ("rates", (8, (HALF,), (Fraction(1, 3),))),
        ("rates", (8, (HALF,), (Fraction(1),))),
        ("rates", (8, (HALF / 4, HALF / 4), (HALF, HALF))),
    ],
)
def test_bad_strategy_is_refused(
    field: str, arguments: tuple[int, tuple[Fraction, ...], tuple[Fraction, ...]]
) -> None:
    with pytest.raises(ValueError, match=f"^{field}:"):
        ToeplitzStrategy(*arguments)


def test_text_is_canonical_and_checked_again() -> None:
    strategy = optimal_strategy(1000)
    assert ToeplitzStrategy.from_json(strategy.to_json()) == strategy
    with pytest.raises(ValueError, match="horizon"):
        ToeplitzStrategy.from_json(strategy.to_json().replace("1000", "0"))
    with pytest.raises(ValueError, match="expected the keys"):
        ToeplitzStrategy.from_json('{"horizon":3}')


def test_every_horizon_has_a_strategy_and_longer_ones_larger_errors() -> None:
    losses = [loss_of(optimal_strategy(horizon)) for horizon in STORED]
    # A row with more buffers is up to 0.1 % better than the row before.
    assert all(before < 1.001 * after for before, after in pairwise(losses))
    assert losses[0] == 1.0


def test_stored_strategies_never_change() -> None:
    """A running stream is refused if its plan changes: add rows for new horizons only."""
    texts = "\n".join(optimal_strategy(horizon).to_json() for horizon in STORED)
    assert (
        hashlib.sha256(texts.encode()).hexdigest()
        == "8875da5636587624693bfce46cdea2641ddfccd936f9623c1240a5eacd50b62a"
    )


@pytest.mark.parametrize(("horizon", "buffers"), [(7, 1), (40, 2), (150, 3)])
def test_a_new_search_with_as_many_buffers_or_one_more_is_hardly_better(horizon: int, buffers: int) -> None:
    stored = optimal_strategy(horizon)
    found = optimise(horizon, buffers, None if buffers > stored.buffers else stored)
    assert loss_of(stored) <= 1.0011 * loss_of(found)


@pytest.mark.parametrize("bad", [0, -1, LARGEST_HORIZON + 1, True, 1.0])
def test_bad_horizon_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match=r"^horizon:"):
        optimal_strategy(bad)


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
        ("noise_steps", DESIGN.noise_steps - 1, "less noise"),
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
