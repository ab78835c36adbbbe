"""The stated epsilon and delta of several releases against all their outputs, enumerated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import exp, log, prod, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from dphist.composition import Losses, delta_of, epsilon_of
from dphist.composition.curve import gaussian_delta, normal_bounds
from dphist.composition.losses import BITS, pure_law
from tests.dphist.noise.decimals import DIGITS, exp_of

pytestmark = pytest.mark.slow

Pair = Sequence[tuple[Decimal, Decimal]]  # of each output, its probability under two neighbours

_EPSILONS = st.lists(st.fractions(Fraction(1, 50), 3, max_denominator=60), min_size=1, max_size=6)
_FIGURES = json.loads((Path(__file__).parent / "dp_accounting.json").read_text())


def randomized_response(epsilon: Fraction) -> Pair:
    with localcontext(DIGITS):
        truth = 1 / (1 + exp_of(epsilon))
        return [(truth, 1 - truth), (1 - truth, truth)]


def laplace(epsilon: Fraction, outputs: int) -> Pair:
    """Return the discrete Laplace mechanism clamped to a few outputs; the true count is 0 or 1."""

    def law(count: int) -> list[Decimal]:
        q = exp_of(epsilon)
        whole = [(1 - q) / (1 + q) * q ** abs(z - count) for z in range(-outputs, outputs + 2)]
        return [*whole, q ** (outputs + 1 + count) / (1 + q), q ** (outputs + 2 - count) / (1 + q)]

    with localcontext(DIGITS):
        return list(zip(law(0), law(1), strict=True))


def true_delta(pairs: Iterable[Pair], epsilon: Fraction) -> Decimal:
    """Return the exact delta of independent releases: over all outputs, what P has above e^epsilon Q."""
    with localcontext(DIGITS):
        growth = 1 / exp_of(epsilon)
        total = Decimal(0)
        for outputs in product(*pairs):
            p, q = (prod((pair[side] for pair in outputs), start=Decimal(1)) for side in (0, 1))
            total += max(p - growth * q, Decimal(0))
        return total


def sum_of_pure(epsilons: Iterable[Fraction]) -> Losses:
    return sum((Losses.of_pure(epsilon) for epsilon in epsilons), Losses())


def as_decimal(value: Fraction) -> Decimal:
    with localcontext(DIGITS):
        return Decimal(value.numerator) / Decimal(value.denominator)


@given(_EPSILONS, st.fractions(0, 6, max_denominator=100))
@settings(max_examples=30, deadline=None)
def test_pure_releases_have_the_delta_of_all_outputs(epsilons: list[Fraction], epsilon: Fraction) -> None:
    true = true_delta(map(randomized_response, epsilons), epsilon)
    stated = as_decimal(delta_of(sum_of_pure(epsilons), epsilon))
    assert true <= stated <= true + as_decimal(sum(epsilons, Fraction(0)) * len(epsilons) / 1000)


@given(st.integers(1, 9), st.fractions(Fraction(1, 9), 3, max_denominator=9), st.fractions(0, 6))
@settings(max_examples=20, deadline=None)
def test_equal_releases_lose_nothing_by_rounding(number: int, each: Fraction, epsilon: Fraction) -> None:
    true = true_delta([randomized_response(each)] * number, epsilon)
    stated = as_decimal(delta_of(Losses.of_pure(each, number), epsilon))
    assert true <= stated <= true + Decimal("1e-22")


@pytest.mark.parametrize("epsilons", [("1", "1", "1"), ("1/2", "1", "2"), ("1/3", "1/3", "3/2")])
@pytest.mark.parametrize("epsilon", ["1/4", "1", "2"])
def test_laplace_noise_costs_at_most_what_is_stated(epsilons: tuple[str, ...], epsilon: str) -> None:
    each = [Fraction(text) for text in epsilons]
    true = true_delta([laplace(one, 6) for one in each], Fraction(epsilon))
    assert 0 < true <= as_decimal(delta_of(sum_of_pure(each), Fraction(epsilon)))


@pytest.mark.parametrize("variance", [20, 60])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_discrete_gaussian_noise_costs_at_most_what_is_stated(variance: int, epsilon: float) -> None:
    # Three releases whose counts differ by 3 steps; sigma^2 - 4 steps^2 is what may be claimed of the noise.
    span = np.arange(-150, 151)
    law = np.exp(-(span**2) / (2 * variance))
    law /= law.sum()
    shifted = np.roll(law, 3)
    p, q = law, shifted
    for _ in range(2):
        p, q = np.multiply.outer(p, law).ravel(), np.multiply.outer(q, shifted).ravel()
        kept = p + q > 1e-12
        p, q = p[kept], q[kept]
    true = np.maximum(p - exp(epsilon) * q, 0).sum()
    mu = Fraction(3 / sqrt(variance - 4)) + Fraction(1, 10**12)
    stated = delta_of(Losses.of_gaussian(mu, times=3), Fraction(epsilon))
    assert true <= stated <= 1.3 * true + 1e-6


@pytest.mark.parametrize(("epsilon", "mu"), [(1.0, 0.2367), (-0.5, 0.7), (0.0, 1.0), (8.0, 1.5), (40.0, 9.0)])
def test_one_gaussian_release_has_the_analytic_curve(epsilon: float, mu: float) -> None:
    expected = ndtr(-epsilon / mu + mu / 2) - exp(epsilon) * ndtr(-epsilon / mu - mu / 2)
    stated = gaussian_delta(Fraction(epsilon), Fraction(mu)) / 2**BITS
    assert stated == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("name", _FIGURES)
def test_stated_epsilon_agrees_with_the_package_dp_accounting(name: str) -> None:
    case = _FIGURES[name]
    losses = sum((Losses.of_pure(Fraction(e), n) for e, n in case["pure"]), Losses())
    losses += sum((Losses.of_gaussian(Fraction(mu), n) for mu, n in case["gaussian"]), Losses())
    stated = epsilon_of(losses, Fraction(case["delta"]))
    assert stated is not None
    assert stated <= case["at_most"] * (1 + 1e-4)
    # dp-accounting rounds its estimates, too: upward by less than 0.001 in these cases.
    assert stated >= (case["at_least"] or case["at_most"] - 1e-3)


def test_twelve_gaussian_epochs_cost_less_than_a_third_of_their_sum() -> None:
    epochs = Losses.of_gaussian(Fraction("0.2367"), times=12)
    assert epsilon_of(epochs, Fraction(1, 10**6)) == Fraction("3.90398")
    assert epsilon_of(epochs, Fraction(12, 10**6)) == Fraction("3.4483")


@given(
    st.lists(st.tuples(st.fractions(Fraction(1, 7), 2, max_denominator=7), st.integers(1, 40)), max_size=3),
    st.fractions(0, 2, max_denominator=9),
    st.sampled_from(["1e-4", "1e-6", "1e-9"]),
)
@settings(max_examples=8, deadline=None)
def test_the_epsilon_of_a_delta_is_certified(
    pure: list[tuple[Fraction, int]], mu: Fraction, delta: str
) -> None:
    losses = sum((Losses.of_pure(*group) for group in pure), Losses()) + Losses.of_gaussian(mu)
    stated = epsilon_of(losses, Fraction(delta))
    assert stated is not None
    assert delta_of(losses, stated) <= Fraction(delta)
    if losses.is_pure:
        assert stated <= losses.epsilon
    more = epsilon_of(losses + Losses.of_pure(Fraction(1, 3)), Fraction(delta))
    assert more is not None
    assert more >= stated


def test_only_deltas_add_where_nothing_else_is_known() -> None:
    once = Losses.of_approximate(Fraction(1), Fraction(1, 10**6))
    assert delta_of(once + once, Fraction(2)) == Fraction(2, 10**6)
    assert epsilon_of(once, Fraction(1, 10**6)) is None
    assert (epsilon_of(once, Fraction(2, 10**6)) or 9) <= 1


def test_a_delta_of_zero_leaves_the_sum() -> None:
    assert epsilon_of(Losses.of_pure(Fraction(1), 12), Fraction(0)) == 12
    assert epsilon_of(Losses.of_gaussian(Fraction(1)), Fraction(0)) is None
    assert epsilon_of(Losses(), Fraction(1, 10**6)) == 0


@given(_EPSILONS.flatmap(lambda each: st.tuples(st.just(each), st.lists(st.integers(1, 30), min_size=6))))
@settings(max_examples=10, deadline=None)
def test_no_weight_is_lost(groups: tuple[list[Fraction], list[int]]) -> None:
    law = pure_law(tuple(zip(*groups, strict=False)))
    assert 1 << BITS <= sum(law.weights) + law.unbounded <= (1 << BITS) + (1 << BITS - 60)


def test_thousands_of_epochs_are_composed_in_whole_numbers() -> None:
    stated = epsilon_of(Losses.of_pure(Fraction(1, 100), 3000), Fraction(1, 10**6))
    rho = 3000 / 100**2 / 2
    zero_concentrated = rho + 2 * sqrt(rho * log(1e6))  # a bound from the literature, above the truth
    assert stated is not None
    assert 1 < stated < zero_concentrated


def pi() -> Decimal:
    """Return pi by Machin's formula."""
    return 4 * (4 * _arctan_of_inverse(5) - _arctan_of_inverse(239))


def _arctan_of_inverse(number: int) -> Decimal:
    power = total = Decimal(1) / number
    for n in range(1, 200):
        power /= -number * number
        total += power / (2 * n + 1)
    return total


def normal_law(x: Fraction) -> Decimal:
    """Return Phi(x) by the alternating series, off by less than 10^-100 for |x| below 20."""
    with localcontext(DIGITS):
        value = Decimal(x.numerator) / Decimal(x.denominator)
        term = total = value
        for n in range(1, 900):
            term *= -value * value / (2 * n)
            total += term / (2 * n + 1)
        return Decimal("0.5") + total / (2 * pi()).sqrt()


@given(st.fractions(-15, 15), st.integers(1, 250))
@example(Fraction(0), 96)
@example(Fraction(-1, 2**80), 128)
def test_the_normal_law_lies_between_close_bounds(x: Fraction, bits: int) -> None:
    lower, upper = normal_bounds(x, bits)
    with localcontext(DIGITS):
        assert lower <= normal_law(x) * Decimal(2) ** bits <= upper
    assert 0 <= upper - lower <= 2


@pytest.mark.parametrize("x", [15, 40, 10**6])
def test_far_tails_are_bounded_by_the_exponential(x: int) -> None:
    lower, upper = normal_bounds(Fraction(-x), 64)
    assert (lower, upper) == (0, 1)
    with localcontext(DIGITS):
        assert exp_of(Fraction(x * x, 2)) / 2 < Decimal(2) ** -64
