"""How often keys are found, counted over many runs of the class that the service uses, and what this proves.

Many keys with the same users are independent runs: each has its own noise. Two paths of users differ by one
user. The shares of both bound the loss of privacy, whatever the law is said to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.stats import beta

from dphist import discovery
from dphist.discovery import DiscoveryRule, KeyDiscovery
from dphist.noise.derived import DerivedNoise

RARE = 1e-6  # how often one bound may be wrong
AT_ONCE = 1_000_000  # keys
BAR, DECISION = b"bar", b"bin"  # the purposes of r and of z


def tight_rule(decisions: int) -> DiscoveryRule:
    """Return the rule at epsilon 1 whose delta is used up, so that a key of one user is named that often.

    A whole threshold uses up to e^epsilon times less than delta, which would hide a wrong noise.
    """
    wide = DiscoveryRule(Fraction(1), Fraction(1, 1000), decisions)
    q = math.exp(-1)
    used = Fraction(decisions * q**wide.threshold / (1 + q) * (1 + 1e-9))
    tight = DiscoveryRule(Fraction(1), used, decisions)
    assert tight.threshold == wide.threshold
    return tight


def named_of(rule: DiscoveryRule, path: Sequence[int], runs: int, seed: int) -> int:
    """Return in how many runs a key is named. Args: path, the number of its users at each decision."""
    named = 0
    for part, start in enumerate(range(0, runs, AT_ONCE)):
        keys = KeyDiscovery(rule, (seed << 32 | part).to_bytes(32))
        now = min(AT_ONCE, runs - start)
        keys.add([place.to_bytes(4) for place in range(now)])
        for place, more in enumerate(np.diff(path, prepend=0).tolist()):
            keys.bring(np.arange(now), np.full(now, more))
            named += len(keys.decide(place))
    return named


@contextmanager
def halved(purpose: bytes) -> Iterator[None]:
    """Draw the noise of one purpose at half its scale. Args: purpose; empty changes nothing."""

    class Halved(DerivedNoise):
        def _of(self, asked: bytes) -> DerivedNoise:
            wrong = purpose and asked.startswith(purpose)
            return DerivedNoise(self.seed, self.step * (2 if wrong else 1))

        def geometric(self, asked: bytes, *given: Any) -> Any:
            return self._of(asked).geometric(asked, *given)

        def at_least(self, asked: bytes, *given: Any) -> Any:
            return self._of(asked).at_least(asked, *given)

    with patch.object(discovery, "DerivedNoise", Halved):
        yield


def bounds(hits: int, runs: int) -> tuple[float, float]:
    """Return the bounds of Clopper and Pearson on a share; each is wrong with a probability of ``RARE``."""
    low = float(beta.ppf(RARE, hits, runs - hits + 1)) if hits else 0.0
    high = float(beta.isf(RARE, hits + 1, runs - hits)) if hits < runs else 1.0
    return low, high


class Shares(NamedTuple):
    """What runs say. Args: named_at_most and named_at_least, bounds on how often a key of one user is named;
    loss_at_least, a bound on the loss of privacy by one user of a key."""

    named_at_least: float
    named_at_most: float
    loss_at_least: float


@dataclass(frozen=True)
class Runs:
    """Many runs of one rule. Args: runs; decisions, about a key of one user."""

    runs: int
    decisions: int

    @property
    def stated(self) -> float:
        """How often a key of one user is named, at most."""
        return float(tight_rule(self.decisions).delta)

    def shares(self, purpose: bytes = b"", seed: int = 1) -> Shares:
        """Count runs. Args: purpose, of a noise that is half as large as it must be."""
        rule, one = tight_rule(self.decisions), tight_rule(1)
        with halved(purpose):
            low, high = bounds(named_of(rule, [1] * self.decisions, self.runs, seed), self.runs)
            # A key below the threshold is named by z, and one far above it is not named because of r.
            below = [named_of(one, [one.threshold - more], self.runs, seed + 1 + more) for more in (1, 0)]
            above = [
                self.runs - named_of(one, [one.threshold + more], self.runs, seed + 3 + more)
                for more in (1, 2)
            ]
        losses = [
            math.log(bounds(b, self.runs)[0] / bounds(a, self.runs)[1]) for a, b in (below, above[::-1])
        ]
        return Shares(low, high, max(losses))
