"""Pipeline neighbour test: logs that differ by one record give binned streams that differ in one cell.

This is what the privacy of the whole service rests on after the tree (docs/privacy.md, section 4). The two
runs may differ in everything that is not the log: batch sizes, workers, faults, the order of tasks.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.simulator.log import Kind, Log
from tests.simulator.loop import simulate
from tests.simulator.schedule import Deed, Schedule, draw_schedule
from tests.simulator.world import World, bins_of

# A restored backup ends an epoch, and which records are then dropped is decided by when it happened;
# a leap of the clock moves closing instants: both are the operator's doing, not the log's.
OUTSIDE = {Deed.RESTORE, Deed.LEAP}


def binned(schedule: Schedule, log: Log) -> Counter[int]:
    """Run a schedule on a log and return the exact counts of its bins."""
    world = World(schedule, log=log)
    simulate(schedule.seed, world.run())
    return bins_of(world)


def some_record(log: Log, rng: random.Random) -> tuple[str, int]:
    """Draw a record of the log."""
    records = [
        (name, position)
        for name, entries in log.partitions.items()
        for position, entry in enumerate(entries)
        if entry.kind is Kind.EVENT
    ]
    return rng.choice(records)


def moved(first: Counter[int], second: Counter[int]) -> list[int]:
    """Return by how much each differing bin differs, sorted."""
    return sorted(
        second[bin] - first[bin] for bin in first.keys() | second.keys() if first[bin] != second[bin]
    )


def other_day(schedule: Schedule, seed: int) -> Schedule:
    """Return the same stream under other weather, batches and misfortunes."""
    other = draw_schedule(seed)
    return replace(
        schedule,
        seed=seed,
        fault_rate=other.fault_rate,
        longest_delay_us=other.longest_delay_us,
        largest_batch=other.largest_batch,
        workers=other.workers,
        actions=tuple(action for action in other.actions if action.deed not in OUTSIDE),
    )


@pytest.mark.parametrize("seed", range(25))
def test_with_arrival_times_bins_depend_on_the_log_alone(seed: int) -> None:
    """A log that stamps arrivals: two runs with nothing in common but the log agree in every bin."""
    schedule = replace(other_day(draw_schedule(seed), seed), exact_cuts=True)
    log = World(schedule).log
    expected = binned(schedule.without_trouble(), log)
    assert binned(schedule, log) == expected
    place = some_record(log, random.Random(seed))
    assert moved(binned(other_day(schedule, seed + 1000), log.without(*place)), expected) in ([1], [])


@pytest.mark.parametrize("seed", range(40))
def test_one_record_less_moves_one_bin_by_one(seed: int) -> None:
    """A log that does not stamp arrivals: cuts are taken at their instants, whatever arrives around them."""
    schedule = replace(draw_schedule(seed).without_trouble(), exact_cuts=False)
    log = World(schedule).log
    rng = random.Random(seed)
    expected = binned(schedule, log)
    for _ in range(3):
        batch = rng.choice([1, 2, 5, 50])
        neighbour = binned(replace(schedule, largest_batch=batch), log.without(*some_record(log, rng)))
        assert moved(neighbour, expected) in ([1], [])


@pytest.mark.parametrize("seed", range(10))
def test_a_replaced_record_moves_two_bins_at_most(seed: int) -> None:
    schedule = replace(draw_schedule(seed).without_trouble(), exact_cuts=False)
    log = World(schedule).log
    rng = random.Random(seed)
    place = some_record(log, rng)
    entry = log.partitions[place[0]][place[1]]
    neighbour = log.replaced(*place, entry.time_us - rng.randrange(3 * 10_000_000))
    assert moved(binned(schedule, neighbour), binned(schedule, log)) in ([-1, 1], [1], [-1], [])
