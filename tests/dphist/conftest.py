"""The grey-box test of privacy: one transcript, two neighbours, the exact loss."""

from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dphist.mechanisms import Request, checked_options, describe, prepare
from dphist.noise import SeededNoise

Step = tuple[str, NDArray[Any], Fraction, Any]  # kind, exact values, scale, outcome


@dataclass(frozen=True, eq=False)
class ReplayRequest(Request):
    """A request that records its steps, and can repeat the outcomes of another one.

    ``transcript`` holds every step, in order.
    """

    transcript: list[Step] = field(default_factory=list)
    replay: list[Step] | None = None

    def measure(self, values, scale):
        return self._step("measure", values, scale, super().measure)

    def select(self, scores, scale):
        return self._step("select", scores, scale, super().select)

    def _step(self, kind, values, scale, draw):
        if self.replay is None:
            outcome = draw(values, scale)
        else:
            outcome = self.replay[len(self.transcript)][3]
        self.transcript.append((kind, np.array(values), Fraction(scale), outcome))
        return outcome


def run_recorded(name, counts, epsilon, workload, seed, replay, options):
    request = prepare(name, counts, epsilon, workload, SeededNoise(seed))
    known = {entry.name: getattr(request, entry.name) for entry in fields(Request)}
    recorded = ReplayRequest(**known, replay=replay)
    release = describe(name).function(recorded, **checked_options(name, options))
    return recorded.transcript, release


@pytest.fixture(scope="session")
def privacy_loss():
    """Return a function that bounds the privacy loss of one transcript between two neighbours.

    The first histogram is released with seeded noise; the second is then led through the same outcomes, as an
    adversary who compares the two must assume. A measured step loses (L1 change) / scale; a selection loses
    (largest - smallest change of a score) / scale, which is at most 2 D / scale. Both runs must ask for the
    same steps with the same scales, or the sequence of steps itself tells the neighbours apart.
    """

    def loss(name, counts, neighbour, epsilon, *, workload=None, seed=0, **options):
        first, release = run_recorded(name, counts, epsilon, workload, seed, None, options)
        second, again = run_recorded(name, neighbour, epsilon, workload, seed, first, options)
        assert len(first) == len(second)
        np.testing.assert_array_equal(release.counts, again.counts)
        total = Fraction(0)
        for (kind, values, scale, _), (kind_2, values_2, scale_2, _) in zip(first, second, strict=True):
            assert (kind, scale, values.shape) == (kind_2, scale_2, values_2.shape)
            change = values_2.astype(object) - values.astype(object)
            moved = np.abs(change).sum() if kind == "measure" else change.max() - change.min()
            total += Fraction(int(moved)) / scale
        return total

    return loss


@pytest.fixture(scope="session")
def two_transcripts():
    """Return a function that releases two neighbours with the same outcomes.

    It returns the steps of each release, and the budget.
    """

    def steps(name, counts, neighbour, epsilon, *, workload=None, seed=0, **options):
        first, release = run_recorded(name, counts, epsilon, workload, seed, None, options)
        second, _ = run_recorded(name, neighbour, epsilon, workload, seed, first, options)
        assert [(kind, scale) for kind, _, scale, _ in first] == [(kind, s) for kind, _, s, _ in second]
        return first, second, release.budget

    return steps


@pytest.fixture(scope="session")
def transcript():
    """Return a function that makes a seeded release and returns its steps.

    A step is (kind, exact values, scale, outcome).
    """

    def steps(name, counts, epsilon, *, workload=None, seed=0, **options):
        return run_recorded(name, counts, epsilon, workload, seed, None, options)[0]

    return steps
