"""A Toeplitz strategy: its closed forms agree with dense algebra, and bad ones are refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dphist.toeplitz import ToeplitzStrategy, optimal_strategy
from dphist.toeplitz.inverse import inverse_weights
from tests.dphist.toeplitz.algebra import dense, exact_coefficients, exact_inverse

HORIZONS = [1, 2, 3, 7, 20, 64, 150]


@pytest.mark.parametrize("horizon", HORIZONS)
def test_norm_and_gram_bound_the_exact_sums_closely(horizon: int) -> None:
    strategy = optimal_strategy(horizon)
    c = exact_coefficients(strategy, horizon)
    for first in range(0, horizon, max(1, horizon // 6)):
        for second in range(0, horizon, max(1, horizon // 5)):
            gap, later = abs(first - second), max(first, second)
            exact = sum((c[k + gap] * c[k] for k in range(horizon - later)), Fraction(0))
            assert exact <= strategy.gram(first, second) < exact + Fraction(1, 2**150)
    assert strategy.norm_squared == strategy.gram(0, 0)


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


HALF = Fraction(1, 2)


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
