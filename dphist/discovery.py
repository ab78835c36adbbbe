"""Names of keys that nobody listed: a key is shown once enough users have brought it.

Whether a key exists at all can reveal a person, so showing a name needs a threshold with noise, and a delta.
Counts need neither. The rule decides again and again while the numbers of users grow, and all decisions
together cost as much as one: see ``DiscoveryRule``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.certified import exp_bounds
from dphist.noise import checked_scale
from dphist.noise.derived import DerivedNoise

_BITS = 256
_LEAST_BITS = 128  # of delta
_LARGEST_THRESHOLD = 1 << 62


@dataclass(frozen=True, slots=True)
class DiscoveryRule:
    """When a key that nobody listed may be named.

    Let n_t be the number of users who have brought the key by decision t. A user brings at most
    ``per_user`` keys: her first ones that are not public when she brings them. Once per key r is drawn, and
    z_t at each decision t. All are independent with P(value = x) proportional to exp(-x / b) for whole
    numbers x >= 0, where b = per_user / epsilon. The key is named at the first decision with
    n_t + z_t > threshold + r. A key that nobody has brought yet does not exist, and is never named.

    Args: epsilon and delta, of all names together; per_user, the most keys that one user brings; decisions,
        the most decisions about a key; least_users, a key that fewer users have brought is named with
        probability at most delta / per_user, also if no guarantee needs that.
    Guarantee: (epsilon, delta)-differential privacy of all names and of the decisions at which they appear.
        Neighbours: one user more or less, with all that she brings. A key that only she has brought is named
        with probability at most delta / per_user in all decisions together.
    Raises: ValueError for numbers out of range.
    Source: docs/decisions/0055-names-of-keys.md has the proof. The losses of r and z are not added up, as in
        other sparse vector techniques, because a user only adds to n_t, and n_t never falls.

    >>> rule = DiscoveryRule(Fraction(1), Fraction(1, 10**9), decisions=24 * 365)
    >>> rule.threshold
    30
    """

    epsilon: Fraction
    delta: Fraction
    decisions: int
    per_user: int = 1
    least_users: int = 1

    def __post_init__(self) -> None:
        for name in ("decisions", "per_user", "least_users"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not at least 1")
        if self.epsilon <= 0:
            raise ValueError(f"epsilon: {self.epsilon} is not above 0")
        if not Fraction(1, 1 << _LEAST_BITS) <= self.delta < 1:
            raise ValueError(f"delta: {float(self.delta)} is not between 2^-{_LEAST_BITS} and 1")

    @property
    def step(self) -> Fraction:
        """1 / b: the largest change of a log-probability of one key by one more user.

        Noise has a scale that is a double, rounded up; so this is at most epsilon / per_user.
        """
        return 1 / Fraction(checked_scale(self.per_user / Fraction(self.epsilon)))

    @property
    def threshold(self) -> int:
        """The least whole number with which one user's key is named with at most ``delta / per_user``."""
        return _threshold(self) + max(0, self.least_users - 2)

    def chances(self, users: Sequence[int]) -> NDArray[np.float64]:
        """Return the probability that a key is named at each decision, shape (decisions,).

        Args: users, the number of users who have brought the key by each decision; it never falls.
        Cost: the number of decisions times some hundred b.
        """
        grown = np.asarray(users, dtype=np.int64)
        if grown.size > self.decisions or np.any(np.diff(grown) < 0):
            raise ValueError(f"users: needs at most {self.decisions} numbers that never fall")
        step = float(self.step)
        r = np.arange(math.ceil(50 / step) + max(0, int(grown.max(initial=0)) - self.threshold) + 1)
        weight = -math.expm1(-step) * np.exp(-step * r)
        margin = np.maximum(self.threshold + r[:, None] - grown + 1, 0)  # z of at least this names the key
        named = np.where(grown > 0, np.exp(-step * margin), 0.0)
        with np.errstate(divide="ignore"):
            unnamed = np.exp(np.cumsum(np.log1p(-named), axis=1))
        before = np.hstack([np.ones((r.size, 1)), unnamed[:, :-1]])
        return np.asarray(weight @ (before * named))


@lru_cache(maxsize=256)
def _threshold(rule: DiscoveryRule) -> int:
    """Return the least t with decisions * P(1 + z > t + r) <= delta / per_user, by certified bounds.

    z - r is a discrete Laplace variable: P(z - r >= t) = q^t / (1 + q) with q = exp(-1 / b).
    """
    one = 1 << _BITS
    least_q, _ = exp_bounds(rule.step, _BITS)
    allowed = rule.delta * (one + least_q) / (rule.per_user * rule.decisions)  # over 2^_BITS

    def holds(threshold: int) -> bool:
        return exp_bounds(threshold * rule.step, _BITS)[1] <= allowed

    return bisect_left(range(_LARGEST_THRESHOLD), True, key=holds)


class KeyDiscovery:
    """Decides which keys of a growing list are named now. SECRET, except the names that it finds.

    Keys have numbers in the order in which they are added. Numbers tell which key came first, so show the
    names of one decision in an order of their own. Decide at instants that no record chooses, also when
    nothing is new. The noise of a decision follows from the seed, the key's hash and the decision's place.

    Args: rule; seed, 32 random bytes, drawn once for all decisions and destroyed after the last one.
    Guarantee: that of the rule. The same seed and users give the same decision when it is made again,
        in whatever order keys were added.
    Cost: of a decision, half a microsecond for each key that users have brought and that is not named.

    >>> keys = KeyDiscovery(DiscoveryRule(Fraction(1), Fraction(1, 10**9), decisions=24), bytes(32))
    >>> keys.add([b"a page", b"another"])
    >>> keys.bring([0, 1], [100, 1])
    >>> keys.decide(0)
    [0]
    """

    def __init__(self, rule: DiscoveryRule, seed: bytes) -> None:
        self.rule = rule
        self.hashes: list[bytes] = []
        self.users = np.empty(0, np.int64)
        self.named: list[int] = []  # numbers of keys that are public, in their order
        self._noise = DerivedNoise(seed, rule.step)
        self._bars = np.empty(0, np.int64)  # threshold + r of each key

    def add(self, hashes: Sequence[bytes]) -> None:
        """Add the next keys. Args: a name or hash of each key that no other key has."""
        self.hashes += hashes
        bars = self.rule.threshold + self._noise.geometric(b"bar", hashes)
        self._bars = np.concatenate([self._bars, bars])
        self.users = np.concatenate([self.users, np.zeros(len(hashes), np.int64)])

    def bring(self, numbers: Sequence[int] | Int64Array, users: Sequence[int] | Int64Array) -> None:
        """Add users who bring keys.

        Args: numbers, of these keys, each once.
        Raises: ValueError if a number of users falls.
        """
        more = np.asarray(users, np.int64)
        if np.any(more < 0):
            raise ValueError("users: no number of users may fall")
        self.users[np.asarray(numbers, np.int64)] += more

    def decide(self, place: int) -> list[int]:
        """Return the numbers of the keys that are named at a decision, ascending.

        Args: place, of the decision among all, from 0 on.
        Raises: ValueError for a decision that the rule does not allow.
        """
        if not 0 <= place < self.rule.decisions:
            raise ValueError(f"decisions: the rule allows {self.rule.decisions}")
        open_ = np.setdiff1d(np.flatnonzero(self.users), self.named, assume_unique=True)
        hashes = [self.hashes[number] for number in open_.tolist()]
        least = self._bars[open_] - self.users[open_] + 1
        found: list[int] = open_[self._noise.at_least(b"bin %d" % place, hashes, least)].tolist()
        self.named += found
        return found
