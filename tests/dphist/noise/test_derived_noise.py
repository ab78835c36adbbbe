"""Derived noise has the geometric law exactly, and is the same whenever it is derived again."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dphist.certified import exp_bounds
from dphist.noise.derived import DerivedNoise

RARE = 1e-7  # false alarms of one statistical test
SEED = bytes(range(32))
NAMES = [number.to_bytes(4) for number in range(40_000)]


@pytest.mark.parametrize("step", [Fraction(3), Fraction(1), Fraction(1, 10), Fraction(1, 97)])
def test_law_is_geometric(step: Fraction) -> None:
    drawn = DerivedNoise(SEED, step).geometric(b"r", NAMES)
    most = round(5 / float(step))
    expected = np.append(stats.geom.pmf(np.arange(1, most + 1), -np.expm1(-float(step))), 0.0)
    expected[-1] = 1 - expected.sum()
    seen = np.bincount(np.minimum(drawn, most), minlength=most + 1)
    assert stats.chisquare(seen, expected * len(NAMES)).pvalue > RARE


@pytest.mark.parametrize("step", [Fraction(2), Fraction(1, 3), Fraction(1, 200)])
def test_comparison_says_what_the_variable_says(step: Fraction) -> None:
    noise = DerivedNoise(SEED, step)
    values = noise.geometric(b"z", NAMES[:2000])
    for shift in (-1, 0, 1, 2):
        least = values + shift
        assert np.array_equal(noise.at_least(b"z", NAMES[:2000], least), values >= least)


@pytest.mark.parametrize(
    ("bits", "more", "step"),
    [
        *((bits, 2**63, 1) for bits in (0, 1, 2**40, 2**64 - 1, exp_bounds(Fraction(1), 64)[0])),
        (0, 1, 10),
    ],
)
def test_close_comparisons_use_more_bits(
    bits: int, more: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A uniform number whose first 64 bits tie with q^m is compared further, with independent bits."""

    class Given:
        def __init__(self, data: bytes, **_: object) -> None:
            self.data = data

        def copy(self) -> Given:
            return Given(self.data)

        def update(self, name: bytes) -> None:
            pass

        def digest(self) -> bytes:
            return bits.to_bytes(8) if self.data.endswith(b"\0") else more.to_bytes(8)

    monkeypatch.setattr(hashlib, "blake2b", Given)
    noise, uniform = DerivedNoise(SEED, Fraction(step)), Fraction((bits << 64) + more, 2**128)
    [value] = noise.geometric(b"r", [b""]).tolist()
    lower = exp_bounds(Fraction(value * step), 256)[0]
    upper = exp_bounds(Fraction((value + 1) * step), 256)[1]
    assert Fraction(upper, 2**256) <= uniform + Fraction(1, 2**120)
    assert uniform < Fraction(lower + 2, 2**256)
    assert noise.at_least(b"r", [b"", b""], np.array([value, value + 1])).tolist() == [True, False]


def test_purposes_names_and_seeds_are_independent() -> None:
    noise, step = DerivedNoise(SEED, Fraction(1, 50)), Fraction(1, 50)
    drawn = [
        noise.geometric(b"r", NAMES),
        noise.geometric(b"z", NAMES),
        DerivedNoise(bytes(32), step).geometric(b"r", NAMES),
        np.roll(noise.geometric(b"r", NAMES), 1),
    ]
    ranks = np.corrcoef([stats.rankdata(one) for one in drawn])
    limit = stats.norm.isf(RARE / 2) / np.sqrt(len(NAMES))
    assert np.abs(ranks[np.triu_indices(4, 1)]).max() < limit


def test_same_in_any_order_and_repr_hides_the_seed() -> None:
    noise = DerivedNoise(SEED, Fraction(1, 7))
    assert np.array_equal(noise.geometric(b"r", NAMES[:50])[::-1], noise.geometric(b"r", NAMES[:50][::-1]))
    assert SEED.hex() not in repr(noise)
    assert repr(SEED) not in repr(noise)
