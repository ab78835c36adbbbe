"""Draws of one block: every first word, every tie, and entropy that is read as often as needed."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dphist.certified import exp_bounds
from dphist.noise.laplace import Block
from tests.dphist.noise.decimals import DIGITS, exp_of, geometric_below, value_of

LAWS = [
    (Fraction(1, 3), None),
    (Fraction(1, 32), None),
    (Fraction(5), None),
    (Fraction(10**9), None),
    (Fraction(1, 33), 256),
    (Fraction(1, 2**52), 256),
    (Fraction(2, 1), 2),
]
BLOCKS = {law: Block(*law) for law in LAWS}


class Bits:
    """Entropy that is given: the bits of one uniform number, in the order in which a block reads them."""

    def __init__(self, uniform: int, bits: int) -> None:
        self.uniform, self.left = uniform, bits

    def take(self, bits: int) -> int:
        self.left -= bits
        return self.uniform >> self.left & ((1 << bits) - 1)

    def __call__(self, size: int) -> bytes:
        if size == 2:
            return self.take(16).to_bytes(2, "little")
        if self.left % 64 == 48:  # the second reading uses the upper 48 of 64 bits
            return (self.take(48) << 16).to_bytes(8, "little")
        return self.take(64).to_bytes(8, "little")


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_decided_first_word_lies_within_its_value(law: tuple[Fraction, int | None]) -> None:
    words = np.arange(1 << 16, dtype=np.uint16)
    table = BLOCKS[law]._table
    values, first = np.unique(table, return_index=True)
    assert (np.diff(table[table >= 0]) >= 0).all()
    for value, start in zip(values.tolist(), first.tolist(), strict=True):
        if value < 0:
            continue
        chosen = np.flatnonzero(table == value)
        assert (np.diff(chosen) == 1).all()
        assert words[chosen[0]] == start
        with localcontext(DIGITS):
            assert geometric_below(*law, value) <= Decimal(int(chosen[0])) / 2**16
            if law[1] is None or value + 1 < law[1]:
                assert geometric_below(*law, value + 1) >= Decimal(int(chosen[-1]) + 1) / 2**16
    undecided = int((table < 0).sum())
    assert undecided <= len(BLOCKS[law].leads)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_leading_bits_are_those_of_the_cumulative_probabilities(law: tuple[Fraction, int | None]) -> None:
    with localcontext(DIGITS):
        values = range(1, len(BLOCKS[law].leads) + 1)
        expected = [min(int(geometric_below(*law, value) * 2**64), 2**64 - 1) for value in values]
    assert BLOCKS[law].leads.tolist() == expected
    assert law[1] is None or len(expected) == law[1] - 1


@given(st.data())
def test_uniform_numbers_next_to_a_probability_get_the_value_on_their_side(data: st.DataObject) -> None:
    law = data.draw(st.sampled_from(LAWS))
    block, words = BLOCKS[law], 6
    bits = 64 * words
    place = data.draw(st.integers(1, len(block.leads)))
    with localcontext(DIGITS):
        exact = min(int(geometric_below(*law, place) * 2**bits), 2**bits - 1)
    agreeing = data.draw(st.integers(0, bits))
    near = exact ^ (data.draw(st.integers(0, 2**bits - 1)) >> agreeing)
    entropy = Bits(near, bits)
    if near == exact:
        return  # the next bits would decide, and there are none
    assert block.draw(1, entropy).tolist() == [value_of(Fraction(near, 2**bits), *law)]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_many_draws_are_those_of_one_after_the_other(law: tuple[Fraction, int | None]) -> None:
    generator = np.random.default_rng(5)
    words = generator.integers(0, 1 << 16, 3000, dtype=np.uint16)
    more = generator.integers(0, 1 << 63, 3000, dtype=np.uint64)
    given = [words.tobytes(), more.tobytes()]
    drawn = BLOCKS[law].draw(3000, lambda size: given.pop(0)[:size])
    open_ = iter(more.tolist())
    for word, value in zip(words.tolist(), drawn.tolist(), strict=True):
        bits = word << 48
        if BLOCKS[law]._table[word] < 0:
            bits |= next(open_) >> 16
        assert value == value_of(Fraction(bits, 2**64), *law)


def test_a_block_without_entropy_draws_nothing() -> None:
    def none(size: int) -> bytes:
        raise OSError("no entropy")

    with pytest.raises(OSError, match="no entropy"):
        BLOCKS[LAWS[0]].draw(1, none)


@given(st.fractions(0, 400), st.integers(0, 500))
@example(Fraction(0), 64)
@example(Fraction(1, 2**52), 256)
@example(Fraction(10**9), 64)
@example(Fraction(64), 64)
@example(Fraction(2**70, 2**70 + 1), 512)
def test_the_exponential_lies_between_close_bounds(x: Fraction, bits: int) -> None:
    lower, upper = exp_bounds(x, bits)
    with localcontext(DIGITS):
        exact = exp_of(x) * Decimal(2) ** bits
        assert lower <= exact <= upper
    assert 0 <= upper - lower <= 2
