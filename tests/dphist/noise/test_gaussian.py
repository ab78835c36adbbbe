"""The bounds that decide whether a proposal is kept, and what decides between them."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dphist.noise.gaussian import LARGEST_VARIANCE, LEAST_VARIANCE, DiscreteGaussian
from tests.dphist.noise.decimals import DIGITS, exp_of

VARIANCES = [
    LEAST_VARIANCE,
    Fraction(1, 3),
    Fraction(1),
    Fraction(17848, 1000),
    Fraction(2**31 - 1),
    Fraction(10**15) + Fraction(1, 7),
    LARGEST_VARIANCE,
]
SAMPLERS = {variance: DiscreteGaussian(variance) for variance in VARIANCES}


def rate(variance: Fraction, size: int) -> Fraction:
    """Return the exponent r with which algorithm 3 keeps a proposal of this size."""
    scale = int(DIGITS.sqrt(Decimal(int(variance)))) + 1
    return (size - variance / scale) ** 2 / (2 * variance)


@given(st.sampled_from(VARIANCES), st.fractions(0, 40))
@example(LEAST_VARIANCE, Fraction(0))
@example(Fraction(1), Fraction(40))
def test_the_bounds_hold_the_exact_probability(variance: Fraction, deviations: Fraction) -> None:
    with localcontext(DIGITS):
        deviation = Decimal(variance.numerator) / Decimal(variance.denominator)
        size = int(deviation.sqrt() * deviations.numerator / deviations.denominator)
    for near in range(max(0, size - 2), size + 3):
        lower, upper = (int(found[0]) for found in SAMPLERS[variance].bounds(np.array([-near])))
        exact = exp_of(rate(variance, near)) * 2**31
        assert lower <= exact <= upper
        assert upper - lower < 4000  # of 2^31


@given(st.sampled_from(VARIANCES), st.integers(0, 5), st.integers(0, 200), st.data())
def test_what_the_bounds_leave_open_is_decided_exactly(
    variance: Fraction, size: int, agreeing: int, data: st.DataObject
) -> None:
    with localcontext(DIGITS):
        exact = int(exp_of(rate(variance, size)) * 2 ** (31 + 192))
    uniform = exact ^ (data.draw(st.integers(0, 2 ** (31 + 192) - 1)) >> agreeing)
    uniform = min(uniform, 2 ** (31 + 192) - 1)
    words = [(uniform >> shift & (2**64 - 1)).to_bytes(8, "little") for shift in (128, 64, 0)]
    if uniform == exact:
        return  # the next bits would decide, and there are none
    kept = SAMPLERS[variance]._decide(uniform >> 192, size, lambda _: words.pop(0))
    assert kept == (uniform < exact)


def test_open_proposals_are_decided_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = DiscreteGaussian(Fraction(4))
    proposed = np.array([1, -2, 3, 40])
    monkeypatch.setattr(sampler, "bounds", lambda y: (np.full(4, -1), np.full(4, 2**31 + 1)))
    asked = []

    def decide(uniform: int, size: int, entropy: object) -> bool:
        asked.append((uniform, size))
        return size == 2

    monkeypatch.setattr(sampler, "_decide", decide)
    assert sampler.kept(proposed, lambda size: bytes(size)).tolist() == [False, True, False, False]
    assert asked == [(0, 1), (0, 2), (0, 3), (0, 40)]


@pytest.mark.parametrize("variance", [Fraction(0), LEAST_VARIANCE / 2, LARGEST_VARIANCE + 1])
def test_variances_out_of_range_are_refused(variance: Fraction) -> None:
    with pytest.raises(ValueError, match="variance"):
        DiscreteGaussian(variance)
