"""Streams that find keys under the simulator's faults, and the mutants that must be caught."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.simulator import finding_mutants as mutants
from tests.simulator.faults import Fault
from tests.simulator.finding import finding
from tests.simulator.mutants import HalfNoise, ReleaseTwice
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import BIN_US, Action, Deed, Schedule, draw_schedule, seeds
from tests.simulator.test_mutants import slow_releases
from tests.simulator.world import run_schedule

SCHEDULES = int(os.environ.get("SCHEDULES", "40"))
SEEDS = range(60)


@pytest.mark.parametrize("per_user", [0, 1, 2])
@pytest.mark.parametrize("seed", seeds(quick=6, all=SCHEDULES))
def test_every_rule_holds_while_keys_are_found(
    seed: int, per_user: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", logger="stream_app"):
        run_schedule(seed, schedule=finding(draw_schedule(seed), per_user))
    assert "secret-" not in caplog.text


def events(schedule: Schedule) -> Schedule:
    """Return the schedule with a stream that finds keys of events."""
    return finding(schedule)


def users(schedule: Schedule) -> Schedule:
    """Return the schedule with a stream whose users each bring one key."""
    return finding(schedule, 1)


def dying(schedule: Schedule) -> Schedule:
    """Return the schedule with a worker that dies once in each bin."""
    deaths = tuple(Action(place * BIN_US + BIN_US // 2, Deed.KILL) for place in range(schedule.bins))
    return replace(finding(schedule), actions=deaths)


def overtaken(schedule: Schedule) -> Schedule:
    """Return the schedule with three workers that often read keys late, or release late."""
    calm = replace(finding(schedule), actions=(), stall_rate=0.0, longest_delay_us=BIN_US, workers=3)
    late = replace(calm, faults=(Fault.DELAYED,), fault_rate=0.5)
    return replace(late, struck=frozenset({"release", "read_kept"}))


@pytest.mark.parametrize("seed", seeds(quick=2, all=20))
def test_workers_that_all_close_bins_find_the_same_keys(seed: int) -> None:
    run_schedule(seed, pipeline=mutants.EverybodyCloses(), schedule=overtaken(draw_schedule(seed)))


CAUGHT = [
    (mutants.WithoutBar, events, "no seed decides"),
    (mutants.HalfDecisions, events, "no seed decides"),
    (mutants.DecidedAgain, dying, "no seed decides"),
    (mutants.OneKeyTooMany, users, "the log and its cuts give"),
    (mutants.NamedInOrderOfNumbers, events, "not that of names"),
    (mutants.RemembersTooEarly, overtaken, "is needed"),
    (HalfNoise, events, "plus one unused draw of scale"),
    (ReleaseTwice, lambda schedule: finding(slow_releases(schedule)), "has a second value"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "shape", "words"), CAUGHT, ids=lambda part: getattr(part, "__name__", ""))
def test_the_simulator_catches(
    mutant: type[Pipeline], shape: Callable[[Schedule], Schedule], words: str
) -> None:
    heard = Counter[str]()
    for seed in SEEDS:
        try:
            run_schedule(seed, pipeline=mutant(), schedule=shape(draw_schedule(seed)))
        except (AssertionError, ValueError) as broken:
            if words in str(broken):
                return
            heard[str(broken)] += 1
    raise AssertionError(
        f"{mutant.__name__} lived through {len(SEEDS)} schedules; heard {heard.most_common(3)}"
    )
