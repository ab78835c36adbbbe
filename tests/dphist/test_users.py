"""The histogram of users: its promise in exact fractions, its buckets, and what caps leave out."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist import SeededNoise
from dphist.privacy import Neighbours
from dphist.users import BUCKETS, NumbersOfUsers
from tests.oracles import NoNoise

numbers = st.lists(st.integers(1, 2**40), max_size=30)


def histogram(of_users: list[int]) -> list[int]:
    """Return the users in each bucket, counted one by one."""
    return [
        sum(min(number.bit_length() - 1, BUCKETS - 1) == bucket for number in of_users)
        for bucket in range(BUCKETS)
    ]


@given(numbers, st.integers(1, 2**40), st.integers(1, 2**40))
def test_neighbours_differ_by_what_the_noise_hides(users: list[int], one: int, other: int) -> None:
    """One more user changes one count by 1; another number of one user changes at most two."""
    for neighbours, pair in (("add_remove", ([], [one])), ("substitute", ([one], [other]))):
        mechanism = NumbersOfUsers(Fraction(1, 3), 5, neighbours)  # type: ignore[arg-type]
        then, now = (np.array(histogram(users + more)) for more in pair)
        assert np.abs(then - now).sum() / mechanism.scale <= mechanism.epsilon


@pytest.mark.parametrize(("neighbours", "scale"), [("add_remove", 4), ("substitute", 8)])
def test_each_count_gets_noise_of_the_stated_scale_once(neighbours: Neighbours, scale: int) -> None:
    noise = NoNoise()
    released = NumbersOfUsers(Fraction(1, 4), 5, neighbours).release(np.arange(BUCKETS), noise)
    assert released.tolist() == list(range(BUCKETS))
    assert noise.draws == [(Fraction(scale), (BUCKETS,))]


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(1, 64))
def test_without_noise_a_cap_leaves_out_what_the_range_says(users: list[int], cap: int) -> None:
    mechanism = NumbersOfUsers(Fraction(10**9), 5)
    found = mechanism.left_out(np.array(histogram(users)), cap)
    truth = sum(max(number - cap, 0) for number in users)
    assert found.most is not None
    assert found.least - 1e-3 <= truth <= found.most + 1e-3


def test_users_of_the_last_bucket_leave_out_any_number() -> None:
    """A thousand users of ten million events each: the last bucket has no end."""
    found = NumbersOfUsers(Fraction(10**9), 5).left_out(np.array([0] * 20 + [1_000]), 10)
    assert found.least <= 1_000 * (10**7 - 10)
    assert found.most is None


@pytest.mark.parametrize("epsilon", ["1/50", "1/2", "0.93", "0.999", "1.007", "1.2", "3", "20", "1000"])
def test_all_counts_lie_within_the_reach_as_often_as_stated(epsilon: str) -> None:
    """By the definition of the noise: whole numbers go further than the law that they are drawn like."""
    mechanism = NumbersOfUsers(Fraction(epsilon), 5)
    p, most = math.exp(-float(mechanism.epsilon)), 4_000
    mass = np.array([(1 - p) / (1 + p) * p**number for number in range(most)])
    within = [
        mass[: reach + 1].sum() * 2 - mass[0] for reach in (int(mechanism.reach), int(mechanism.reach) - 1)
    ]
    assert within[0] >= 1 - 0.05 / BUCKETS
    assert within[1] < 1 - 0.05 / BUCKETS or mechanism.reach == 0


def test_the_range_of_shown_users_holds_the_truth_as_often_as_stated() -> None:
    """Wrong in at most 5 % of releases: 80 or more of 1,000 would have a probability below 1e-4."""
    mechanism, users = NumbersOfUsers(Fraction(1, 10), 5), [3] * 5_000 + [20] * 2_000 + [300] * 400
    exact, wrong = np.array(histogram(users)), 0
    for seed in range(1_000):
        found = mechanism.left_out(mechanism.release(exact, SeededNoise(seed)), 10)
        truth = sum(max(number - 10, 0) for number in users)
        assert found.most is not None
        wrong += not found.least <= truth <= found.most
    assert wrong < 80
