"""With noise, the intervals of every kind of answer hold the recount as often as they say."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from scipy.stats import binom

from dphist.arrays import Int64Array
from dphist.noise import Scale
from tests.examples import is_short
from tests.world.features import FEATURES, Recount, drawn
from tests.world.recounts import ServiceNoise, counting, held, played
from tests.world.world import World

pytestmark = pytest.mark.slow

MANY = "12" if is_short() else "20"
RUNS = int(os.environ.get("COVERAGE_RUNS", MANY))  # of each feature, both releases together
BINS = 9  # an epoch and a half
FALSE_ALARM = 1e-6  # of one feature, over all its answers
COVERED = (
    *("events", "keys", "keys-and-total", "key-fields", "sums-by-key", "sums-by-key-and-total"),
    *("users-by-key", "over-epochs", "approximate-users-by-key"),
)

OVER_HTTP = ("keys", "approximate-users-by-key")


class Louder(ServiceNoise):
    """Noise of six times the scale that is asked for."""

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw at six times the scale."""
        return super().discrete_laplace(6 * Fraction(scale), shape)

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Any:
        """Draw with a larger variance than asked for."""
        return super().discrete_gaussian(36 * variance, shape)


def rates(name: str, runs: int, noise: Callable[[int], ServiceNoise]) -> tuple[Counter[str], int]:
    """Return in how many runs each interval of a feature held the recount, and how often that is enough.

    The checks are binomial laws of p = 0.95 that are at least so large.
    """
    found, features = Counter[str](), {name: FEATURES[name]}
    for seed in range(runs):
        release = ("causal", "anticipating")[seed % 2]
        with counting(features, release, "1", noise(seed), seed) as world:
            for _, feature, recount in played(world, drawn(seed, BINS), BINS, features):
                found.update(dict(held(world.view(name), feature, recount, BINS)))
                if name in OVER_HTTP:
                    found.update(_held_over_http(world, recount, seed % BINS))
    return found, int(binom.ppf(FALSE_ALARM / len(found), runs, 0.95))


def _held_over_http(world: World, recount: Recount, bin: int) -> dict[str, bool]:
    """Return whether intervals of the API hold. Args: bin, the point of the running count."""
    counted, series = world.get("count", "series?kind=running")
    low, high = counted.json()["interval"]
    bounds, so_far = series.json(), len(recount.within(0, bin + 1))
    return {
        "the API's count": bool(low <= len(recount.counted) <= high),
        "the API's running count": bool(bounds["lower"][bin] <= so_far <= bounds["upper"][bin]),
    }


@pytest.mark.parametrize("name", COVERED)
def test_intervals_hold_the_recount_in_enough_of_many_seeded_runs(name: str) -> None:
    found, least = rates(name, RUNS, ServiceNoise)
    assert min(found.values()) >= least, found


@pytest.mark.parametrize("name", ["events", "key-fields", "approximate-users-by-key"])
def test_noise_that_is_larger_than_stated_is_caught(name: str) -> None:
    found, least = rates(name, 12, Louder)
    assert min(found.values()) < least
