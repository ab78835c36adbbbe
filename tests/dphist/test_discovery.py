"""Names of keys: the threshold is the least that delta allows, and the loss is epsilon, not twice that."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dphist.discovery import DiscoveryRule, KeyDiscovery
from tests.dphist.found_shares import BAR, DECISION, Runs

pytestmark = pytest.mark.slow

ONE_IN_A_BILLION = Fraction(1, 10**9)
RARE = 1e-7  # false alarms of one statistical test

Event = tuple[str, str, int]  # a user brings a key before a decision


def rule(epsilon: float = 1.0, delta: float = 0.01, decisions: int = 4, **more: int) -> DiscoveryRule:
    return DiscoveryRule(Fraction(epsilon), Fraction(delta), decisions, **more)


def chance_of_one(asked: DiscoveryRule, threshold: int) -> Decimal:
    """Return P(a key of one user is named), by the union over the decisions, with 60 digits."""
    with localcontext() as digits:
        digits.prec = 60
        q = (-Decimal(asked.step.numerator) / asked.step.denominator).exp()
        return asked.decisions * q**threshold / (1 + q)


@pytest.mark.parametrize(
    ("epsilon", "per_user", "decisions", "threshold"),
    [(3, 1, 24, 8), (3, 3, 100, 27), (1, 1, 8760, 30), (1, 8, 1000, 233), (0.5, 1, 100, 50), (6, 1, 1, 4)],
)
def test_threshold_is_the_least_that_delta_allows(
    epsilon: float, per_user: int, decisions: int, threshold: int
) -> None:
    asked = DiscoveryRule(Fraction(epsilon), ONE_IN_A_BILLION, decisions, per_user)
    assert asked.threshold == threshold
    allowed = Decimal(1) / 10**9 / per_user
    assert chance_of_one(asked, threshold) <= allowed < chance_of_one(asked, threshold - 1)


def test_a_least_number_of_users_raises_the_threshold() -> None:
    plain, lawyers = rule(), rule(least_users=20)
    assert rule(least_users=2).threshold == plain.threshold
    assert lawyers.threshold == plain.threshold + 18
    assert lawyers.chances([19] * 4).sum() == pytest.approx(plain.chances([1] * 4).sum())


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 2.0**-129}, "delta"),
        ({"decisions": 0}, "decisions"),
        ({"per_user": 0}, "per_user"),
        ({"least_users": 0}, "least_users"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        rule(**wrong)  # type: ignore[arg-type]


def law(users: Sequence[int], threshold: int, r_step: float, z_step: float) -> NDArray[np.float64]:
    """Return the law of the decision at which a key is named; last, that it never is. By brute force."""
    sums = np.zeros(len(users) + 1)
    for r in range(math.ceil(45 / r_step) + max(users)):
        left = -math.expm1(-r_step) * math.exp(-r_step * r)
        for decision, number in enumerate(users):
            crosses = math.exp(-z_step * max(0, threshold + r + 1 - number)) if number else 0.0
            sums[decision] += left * crosses
            left *= 1 - crosses
        sums[-1] += left
    return sums


def test_stated_chances_are_those_of_brute_force() -> None:
    asked = rule(0.7, 0.001, 6, per_user=2)
    step = float(asked.step)
    for users in ([0] * 6, [1] * 6, [1, 5, 9, 40, 80, 120], [200] * 6):
        found = law(users, asked.threshold, step, step)
        assert asked.chances(users) == pytest.approx(found[:-1], rel=1e-9)


def largest_loss(r_step: float, z_step: float, paths: int) -> float:
    """Return the largest loss of one key over drawn paths of users, one of whom is in one only."""
    drawn = np.random.default_rng(5)
    largest = 0.0
    for _ in range(paths):
        threshold, decisions = int(drawn.integers(3, 12)), int(drawn.integers(1, 6))
        users = 1 + np.cumsum(drawn.integers(0, drawn.choice([2, 5, 15]), decisions))
        more = users + (np.arange(decisions) >= drawn.integers(0, decisions))
        one = law(users.tolist(), threshold, r_step, z_step)
        other = law(more.tolist(), threshold, r_step, z_step)
        kept = (one > 1e-12) & (other > 1e-12)
        largest = max(largest, float(np.abs(np.log(one[kept] / other[kept])).max()))
    return largest


def test_one_user_changes_no_probability_by_more_than_epsilon() -> None:
    assert largest_loss(1.0, 1.0, 300) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("r_step", "z_step"), [(2.0, 1.0), (1.0, 2.0)])
def test_half_of_either_noise_loses_twice_as_much(r_step: float, z_step: float) -> None:
    assert largest_loss(r_step, z_step, 300) > 1.9


def counted(
    log: Sequence[Event], named_at: Mapping[str, int], decisions: int, per_user: int
) -> dict[str, list[int]]:
    """Return each key's number of users at every decision, if keys are named at the given decisions.

    A user brings her first ``per_user`` keys that are not public before the decision that follows her event.
    """
    brought: dict[str, set[str]] = {}
    users: dict[str, list[int]] = {}
    for user, key, decision in log:
        hers = brought.setdefault(user, set())
        if named_at.get(key, decisions) >= decision and key not in hers and len(hers) < per_user:
            hers.add(key)
            path = users.setdefault(key, [0] * decisions)
            for later in range(decision, decisions):
                path[later] += 1
    return users


def transcripts(log: Sequence[Event], keys: str, asked: DiscoveryRule) -> dict[tuple[int, ...], float]:
    """Return the exact probability of every transcript: at which decision each key is named, or never."""
    found = {}
    for named in itertools.product(range(asked.decisions + 1), repeat=len(keys)):
        users = counted(log, dict(zip(keys, named, strict=True)), asked.decisions, asked.per_user)
        probability = 1.0
        for key, decision in zip(keys, named, strict=True):
            if key in users:
                step = float(asked.step)
                probability *= law(users[key], asked.threshold, step, step)[decision]
            else:
                probability *= decision == asked.decisions  # nobody has brought it: it does not exist
        found[named] = probability
    return found


@pytest.mark.parametrize("per_user", [1, 2])
def test_a_user_changes_no_transcript_by_more_than_epsilon_and_delta(per_user: int) -> None:
    """Three keys, users who bring many, and what each brings depends on what is public already."""
    asked, drawn = rule(1.5, 0.05, 3, per_user=per_user), np.random.default_rng(per_user)
    largest = 0.0
    for _ in range(20):
        others = [
            (str(user), str(key), int(at))
            for user in range(5)
            for key, at in zip(drawn.choice(list("ab"), 2), np.sort(drawn.integers(0, 3, 2)), strict=True)
        ]
        hers = [
            ("she", str(key), int(at))
            for key, at in zip(drawn.permutation(list("abc")), sorted(drawn.integers(0, 3, 3)), strict=True)
        ]
        place = int(drawn.integers(0, len(others)))
        without = transcripts(sorted(others, key=lambda event: event[2]), "abc", asked)
        with_her = transcripts(
            sorted(others[:place] + hers + others[place:], key=lambda event: event[2]), "abc", asked
        )
        assert sum(without.values()) == pytest.approx(1.0)
        assert sum(with_her.values()) == pytest.approx(1.0)
        for one, other in ((without, with_her), (with_her, without)):
            beyond = sum(max(0.0, one[at] - math.exp(1.5) * other[at]) for at in one)
            assert beyond <= 0.05 + 1e-9
        largest = max(
            largest,
            *(abs(math.log(without[at] / with_her[at])) for at in without if without[at] and with_her[at]),
        )
    assert largest > 0.5  # near decisions at which she is alone it may exceed epsilon: delta pays for these


def runs(asked: DiscoveryRule, users: Sequence[int], number: int, seed: int) -> NDArray[np.int64]:
    """Return how many of equal keys are named at each decision, and last, how many never."""
    keys = KeyDiscovery(asked, seed.to_bytes(32))
    keys.add([place.to_bytes(4) for place in range(number)])
    named = []
    for place, more in enumerate(np.diff(users, prepend=0).tolist()):
        keys.bring(range(number), [more] * number)
        named.append(len(keys.decide(place)))
    return np.array([*named, number - sum(named)])


def test_keys_are_named_as_often_as_stated() -> None:
    asked, users = rule(0.5, 0.01, 5), [2, 10, 14, 15, 18]
    stated = asked.chances(users)
    stated = np.append(stated, 1 - stated.sum())
    drawn = runs(asked, users, 100_000, 3)
    assert stats.chisquare(drawn, stated * 100_000).pvalue > RARE
    wrong = rule(0.55, 0.01, 5, least_users=2 + asked.threshold - rule(0.55, 0.01, 5).threshold)
    assert wrong.threshold == asked.threshold
    other = runs(wrong, users, 100_000, 4)
    assert stats.chisquare(other, stated * 100_000).pvalue < RARE


FEW = Runs(200_000, decisions=4)  # ``python -m benchmarks.names`` has ten million


def test_a_key_of_one_user_is_named_as_seldom_as_stated() -> None:
    shares = FEW.shares()
    assert shares.named_at_least <= FEW.stated <= shares.named_at_most
    assert shares.loss_at_least <= 1.0


@pytest.mark.parametrize("purpose", [BAR, DECISION])
def test_half_of_either_noise_loses_more_than_epsilon_in_counted_runs(purpose: bytes) -> None:
    assert FEW.shares(purpose).loss_at_least > 1.2


def test_a_named_key_stays_named_and_later_keys_wait_for_their_own_users() -> None:
    keys = KeyDiscovery(rule(decisions=3), bytes(32))
    keys.add([b"a", b"b"])
    keys.bring([0], [10_000])
    assert keys.decide(0) == [0]
    keys.add([b"c"])
    keys.bring([1], [10_000])
    assert keys.decide(1) == [1]
    assert keys.decide(2) == []
    assert keys.named == [0, 1]
    with pytest.raises(ValueError, match="may fall"):
        keys.bring([0], [-1])
    with pytest.raises(ValueError, match="the rule allows 3"):
        keys.decide(3)


def test_a_decision_is_the_same_whenever_it_is_made_again() -> None:
    """Neither the order of keys nor the number of decisions that were made before plays a part."""
    asked, hashes = rule(0.5, 0.01, 5), [place.to_bytes(4) for place in range(2_000)]
    named = []
    for order, places in ((1, range(5)), (-1, [4])):
        keys = KeyDiscovery(asked, bytes(range(32)))
        keys.add(hashes[::order])
        keys.bring(range(2_000), [asked.threshold] * 2_000)
        by_place = [{keys.hashes[one] for one in keys.decide(place)} for place in places]
        named.append((by_place[-1], set[bytes]().union(*by_place[:-1])))
    (last, before), (again, _) = named
    assert last
    assert last == again - before
