"""Bands around the delays of real flights hold as often as promised, over 2,000 seeded runs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.delays import AIRPORTS, DAY, coverage, day_of, delays
from dphist import SeededNoise, SystemNoise
from dphist.arrays import Int64Array
from dphist.privacy import Neighbours
from dphist.product.answers import Histogram
from dphist.tree.design import Release

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def counts() -> dict[str, Int64Array]:
    """Read the flights once for all tests of this module."""
    return delays()


@pytest.mark.parametrize("release", ["anticipating", "causal"])
def test_without_noise_a_day_is_the_exact_recount(release: Release, counts: dict[str, Int64Array]) -> None:
    for airport in AIRPORTS:
        total = day_of(counts[airport], 1, 10**9, SystemNoise(), release, "add_remove")
        cdf = Histogram.of(total, 0).cdf()
        exact = counts[airport][slice(*DAY)].sum(axis=0).cumsum()
        assert cdf.consistent().tolist() == exact.tolist()
        assert np.allclose(cdf.upper - cdf.lower, 0.0, atol=0.1)
        p95 = cdf.quantile(0.95)
        assert p95.bucket == int(np.argmax(exact >= 0.95 * exact[-1]))


@pytest.mark.parametrize(
    ("airport", "release", "relation"),
    [
        ("EWR", "anticipating", "add_remove"),
        ("JFK", "anticipating", "add_remove"),
        ("LGA", "anticipating", "add_remove"),
        ("JFK", "anticipating", "substitute"),
        ("JFK", "causal", "add_remove"),
    ],
)
def test_bands_hold_at_least_as_often_as_promised_and_hardly_more(
    airport: str, release: Release, relation: Neighbours, counts: dict[str, Int64Array]
) -> None:
    """The runs are seeded. By chance, a true level of 0.935 would give 0.95 once in 1,000."""
    found = coverage(airport, counts[airport], release, relation)
    assert 0.95 <= found.band_held <= 0.97
    # Whenever the band holds, the interval of the p95 holds too.
    assert found.p95_held >= found.band_held


def test_bands_of_too_little_or_too_much_noise_would_be_noticed(counts: dict[str, Int64Array]) -> None:
    """Noise at 2/3 or 3/2 of the scale is far outside the limits of the test above."""
    exact = counts["JFK"][slice(*DAY)].sum(axis=0).cumsum()
    right = Histogram.of(day_of(counts["JFK"], 1, 1, SeededNoise(1), "anticipating", "add_remove"), 0).cdf()
    for epsilon, least, most in (("1.5", 0.99, 1.0), ("2/3", 0.0, 0.85)):
        total = day_of(counts["JFK"], 250, epsilon, SeededNoise(1), "anticipating", "add_remove")
        errors = [np.abs(Histogram.of(total, key).buckets.cumsum() - exact) for key in range(250)]
        assert least <= np.mean([(error <= right.reach).all() for error in errors]) <= most
