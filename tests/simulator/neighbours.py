"""Neighbouring logs, and how their binned streams differ."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from tests.simulator.log import Kind, Log
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import AMOUNTS, Deed, Schedule, draw_schedule
from tests.simulator.world import World, cells_of, run_world

# A restored backup ends an epoch, and the time of the restore decides which records are then dropped.
# A leap of the clock moves closing instants. Both are done by the operator, not by the log.
Cell = tuple[int, int]  # bin and cell
OUTSIDE = {Deed.RESTORE, Deed.LEAP}


def binned(schedule: Schedule, log: Log, pipeline: Pipeline | None = None) -> Counter[Cell]:
    """Run a schedule on a log and return the exact counts of its bins' cells."""
    world = World(schedule, log=log, pipeline=pipeline)
    run_world(world)
    return cells_of(world)


def some_record(log: Log, rng: random.Random) -> tuple[str, int]:
    """Draw a record of the log."""
    records = [
        (name, position)
        for name, entries in log.partitions.items()
        for position, entry in enumerate(entries)
        if entry.kind is Kind.EVENT
    ]
    return rng.choice(records)


def moved(first: Counter[Cell], second: Counter[Cell]) -> list[int]:
    """Return the differences of all cells that are not equal, sorted."""
    return sorted(
        second[cell] - first[cell] for cell in first.keys() | second.keys() if first[cell] != second[cell]
    )


def is_one_record(schedule: Schedule, differences: list[int]) -> bool:
    """Return whether differences are those of one record that counts in one log only, or of none."""
    weight = AMOUNTS.range.weight if schedule.sums else 1
    return not differences or (min(differences) > 0 and sum(differences) == weight)


def other_day(schedule: Schedule, seed: int) -> Schedule:
    """Return the same stream with other faults and other batches."""
    other = draw_schedule(seed)
    return replace(
        schedule,
        seed=seed,
        fault_rate=other.fault_rate,
        longest_delay_us=other.longest_delay_us,
        stall_rate=other.stall_rate,
        largest_batch=other.largest_batch,
        workers=other.workers,
        actions=tuple(action for action in other.actions if action.deed not in OUTSIDE),
    )
