"""Counted outputs: the service's noise keeps its epsilon, and noise that is 5 % too small is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dphist import SystemNoise, plan_tree
from dphist.arrays import Int64Array
from dphist.caps import Caps
from dphist.noise import Scale
from dphist.privacy import Neighbours
from dphist.toeplitz import plan_toeplitz
from dphist.workloads import Workload
from stream_app.audit.black_box import Counted, count_gaussian_outputs, count_outputs

pytestmark = pytest.mark.slow


class Smaller:
    """The system's noise with a smaller standard deviation."""

    private = True

    def __init__(self, factor: Fraction) -> None:
        self.factor = factor

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        return SystemNoise().discrete_laplace(Fraction(scale) * self.factor, shape)

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        return SystemNoise().discrete_gaussian(variance * self.factor**2, shape)

    def select(self, scores: Any, scale: Scale) -> int:
        raise AssertionError("nothing here selects")


def counted(epsilon: Fraction, release: Any, noise: Any) -> Counted:
    design = plan_tree(14, epsilon, Workload.of("prefix"), release)
    return count_outputs([design], epsilon, 3, noise, seed=1)


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(1, 3)])
def test_stated_loss_is_kept_and_a_smaller_statement_is_refused(epsilon: Fraction, release: str) -> None:
    # Each verdict is wrong with a probability of at most 1e-9.
    found = counted(epsilon, release, SystemNoise())
    assert found.passed, found
    assert found.bounds.low <= found.stated <= found.bounds.high


def test_noise_that_is_five_percent_too_small_is_refused() -> None:
    found = counted(Fraction(1), "causal", Smaller(1 / Fraction(105, 100)))
    assert found.verdict == "exceeded", found
    assert not found.passed


@pytest.mark.parametrize(
    ("caps", "neighbours"),
    [(Caps(max_events=1), "add_remove"), (Caps(max_keys=5, max_per_key=2), "substitute")],
)
def test_stated_mu_is_kept_and_smaller_noise_is_refused(caps: Caps, neighbours: Neighbours) -> None:
    # Each verdict is wrong with a probability of at most 1e-9.
    design = plan_toeplitz(14, 1, "1e-6", caps, neighbours)
    found = count_gaussian_outputs(design, SystemNoise(), seed=1)
    assert found.passed, found
    found = count_gaussian_outputs(design, Smaller(1 / Fraction(105, 100)), seed=1)
    assert not found.passed, found
    assert found.low > found.stated
