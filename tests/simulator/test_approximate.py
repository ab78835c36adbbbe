"""Approximate streams under the simulator's faults, and the mutants that must be caught."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import pytest

from dphist.caps import Caps
from dphist.toeplitz import ToeplitzDesign, plan_toeplitz
from stream_app.core.ledger import entry_of
from stream_app.core.records import EpochRecord
from tests.simulator.approximate import approximate, check_charge, least_mu
from tests.simulator.checks import Broken
from tests.simulator.mutants import HalfNoise, ReleaseTwice
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import Schedule, draw_schedule
from tests.simulator.test_mutants import as_drawn, slow_releases
from tests.simulator.world import run_schedule
from tests.stream_app.declared import declared_of

SCHEDULES = int(os.environ.get("SCHEDULES", "14"))
FIRST = 4  # seeds that every check runs
SEEDS = range(60)


@pytest.mark.parametrize("seed", range(FIRST))
def test_every_rule_holds_for_an_approximate_stream(seed: int) -> None:
    run_schedule(seed, schedule=approximate(draw_schedule(seed)))


@pytest.mark.slow
def test_every_rule_holds_in_many_schedules_of_approximate_streams() -> None:
    for seed in range(FIRST, SCHEDULES):
        try:
            run_schedule(seed, schedule=approximate(draw_schedule(seed)))
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "shape", "words"),
    [(HalfNoise, as_drawn, "one unused draw"), (ReleaseTwice, slow_releases, "has a second value")],
)
def test_the_simulator_catches_wrong_noise_of_an_approximate_stream(
    mutant: type[Pipeline], shape: Callable[[Schedule], Schedule], words: str
) -> None:
    """Half of sigma, and noise drawn again after a release."""
    for seed in SEEDS:
        try:
            run_schedule(seed, pipeline=mutant(), schedule=approximate(shape(draw_schedule(seed))))
        except AssertionError as broken:
            if words in str(broken):
                return
    raise AssertionError(f"{mutant.__name__} lived through {len(SEEDS)} schedules")


def test_a_rounding_that_is_not_charged_is_caught() -> None:
    caps = Caps(max_keys=2, max_per_key=3)
    honest = plan_toeplitz(6, 1, "1e-6", caps, width=4)
    with patch.object(ToeplitzDesign, "rounding", Fraction(0)):
        uncharged = plan_toeplitz(6, 1, "1e-6", caps, width=4)
        charged = uncharged.mu
    entry = entry_of(declared_of(), "s", EpochRecord(0, 100, 6, 1, "h"))
    check_charge(replace(entry, mu=str(honest.mu)), honest)
    assert charged < least_mu(uncharged)
    with pytest.raises(Broken, match="roundings included"):
        check_charge(replace(entry, mu=str(charged)), uncharged)
