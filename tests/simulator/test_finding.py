"""Streams that find keys under the simulator's faults, and the mutants that must be caught."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.simulator import finding_mutants as mutants
from tests.simulator.faults import Fault
from tests.simulator.finding import finding
from tests.simulator.log import PAGES, Entry, Kind
from tests.simulator.mutants import HalfNoise, ReleaseTwice
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import BIN_US, START_US, Action, Deed, Schedule, draw_schedule, seeds
from tests.simulator.test_mutants import slow_releases
from tests.simulator.world import World, assert_caught, run_schedule, run_world

pytestmark = pytest.mark.slow

SCHEDULES = int(os.environ.get("SCHEDULES", "40"))
SEEDS = range(60)


@pytest.mark.parametrize("per_user", [0, 1, 2])
@pytest.mark.parametrize("seed", seeds(quick=6, all=SCHEDULES))
def test_every_rule_holds_while_keys_are_found(
    seed: int, per_user: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", logger="stream_app"):
        run_schedule(seed, schedule=finding(draw_schedule(seed), per_user, sums=seed % 2 == 1))
    assert "secret-" not in caplog.text


@pytest.mark.parametrize("per_user", [0, 2])
@pytest.mark.parametrize("seed", seeds(quick=2, all=SCHEDULES))
def test_every_rule_holds_for_approximate_counts_of_found_keys(seed: int, per_user: int) -> None:
    run_schedule(seed, schedule=finding(draw_schedule(seed), per_user, approximate=True))


def events(schedule: Schedule) -> Schedule:
    """Return the schedule with a stream that finds keys of events."""
    return finding(schedule)


def users(schedule: Schedule) -> Schedule:
    """Return the schedule with a stream whose users each bring one key."""
    return finding(schedule, 1)


def summing(schedule: Schedule) -> Schedule:
    """Return the schedule with a stream that adds up amounts by keys that it finds."""
    return finding(schedule, sums=True)


def approximate(schedule: Schedule) -> Schedule:
    """Return the schedule with a stream that finds keys, and whose counts have a delta."""
    return finding(schedule, approximate=True)


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


@pytest.mark.parametrize("seed", seeds(quick=4, all=20))
def test_a_hostile_record_with_a_new_key_changes_nothing_else(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two logs differ by the only record of a page; workers die at the same instants."""
    monkeypatch.setattr("tests.simulator.finding.EPSILON", Fraction(8))
    monkeypatch.setattr("tests.simulator.finding.DELTA", Fraction(1, 10**6))  # one record names no page
    deaths = tuple(Action(place * BIN_US + BIN_US // 2, Deed.KILL) for place in (2, 5))
    drawn = finding(draw_schedule(seed), sums=seed % 2 == 1)
    schedule = replace(drawn.without_trouble(), actions=deaths)
    log, rng = World(schedule).log, random.Random(seed)
    others = {
        name: tuple(one for one in entries if one.page != PAGES[-1])
        for name, entries in log.partitions.items()
    }
    log = replace(log, partitions=others)
    marks = range(START_US + rng.randrange(4) * BIN_US + BIN_US // 3, START_US + 99 * BIN_US)
    arrival_us = next(mark for mark in marks if Entry(Kind.EVENT, mark).page == PAGES[-1])
    seen = []
    for one in (log, log.with_more("0", Entry(Kind.EVENT, arrival_us, arrival_us))):
        world = World(schedule, log=one)
        run_world(world)
        found = [epoch.found for epoch in world.observer.history.epochs]
        seen.append((world.observer.watch.seen_at_us, found))
    assert seen[0] == seen[1]
    assert any(seen[0][1])


CAUGHT = [
    (mutants.WithoutBar, events, "no seed decides"),
    (mutants.HalfDecisions, events, "no seed decides"),
    (mutants.DecidedAgain, dying, "no seed decides"),
    (mutants.NamesTooFew, users, "the log and its cuts give"),
    (mutants.OneKeyTooMany, users, "the log and its cuts give"),
    (mutants.NamedInOrderOfNumbers, events, "not that of names"),
    (mutants.RemembersTooEarly, overtaken, "is needed"),
    (mutants.HalvesByExactCounts, events, "hidden keys are halved"),
    (mutants.NoKeyGoes, events, "plus one unused draw of scale"),
    (mutants.GoneKeysCount, users, "the log and its cuts give"),
    (mutants.AmountsChangePlaces, summing, "plus one unused draw of scale"),
    (mutants.SlotsComeBack, users, "the log and its cuts give"),
    (HalfNoise, events, "plus one unused draw of scale"),
    (ReleaseTwice, lambda schedule: finding(slow_releases(schedule)), "has a second value"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "shape", "words"), CAUGHT, ids=lambda part: getattr(part, "__name__", ""))
def test_the_simulator_catches(
    mutant: type[Pipeline], shape: Callable[[Schedule], Schedule], words: str
) -> None:
    assert_caught(mutant, shape, words, SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "shape", "words"),
    [
        (HalfNoise, approximate, "plus one unused draw of"),
        (mutants.HalfPasts, approximate, "plus one unused draw of"),
        (mutants.PastsWithOneNoise, approximate, "plus one unused draw of"),
        (ReleaseTwice, lambda schedule: approximate(slow_releases(schedule)), "has a second value"),
    ],
)
def test_the_simulator_catches_wrong_noise_of_approximate_found_keys(
    mutant: type[Pipeline], shape: Callable[[Schedule], Schedule], words: str
) -> None:
    """Also noise of the past that is too small or shared, and noise drawn again after a release."""
    assert_caught(mutant, shape, words, SEEDS)
