"""Two or three streams share a total: whatever is lost or dies, nothing that they show costs more."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.simulator import total_mutants
from tests.simulator.checks import Broken
from tests.simulator.faults import Fault
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import BIN_US, Schedule, draw_schedule, seeds
from tests.simulator.totals import under_a_total
from tests.simulator.world import World, run_schedule, run_world

SEEDS = int(os.environ.get("TOTALS", "4"))


@pytest.mark.parametrize("seed", seeds(quick=1, all=SEEDS, always=True))
def test_every_rule_holds_for_streams_that_share_a_total(seed: int) -> None:
    run_schedule(seed, schedule=under_a_total(draw_schedule(seed)))


def test_without_faults_the_total_stops_every_stream() -> None:
    """So the schedules do reach their totals."""
    world = World(replace(under_a_total(draw_schedule(3)), fault_rate=0.0, stall_rate=0.0, actions=()))
    run_world(world)
    assert [state.stopped for state in world.store.streams.values()] == [True, True]


def as_drawn(schedule: Schedule) -> Schedule:
    """Return the schedule as it is."""
    return schedule


def slow(schedule: Schedule) -> Schedule:
    """Return the schedule in which what streams read of ledgers is often late, and nothing is lost."""
    late = replace(schedule, fault_rate=0.5, faults=(Fault.DELAYED,), struck=frozenset({"ledger", "reserve"}))
    return replace(late, longest_delay_us=BIN_US // 4, actions=(), stall_rate=0.0)


# Each mutant, the schedules that show it, words of the broken rule, and the first seed that shows it.
CAUGHT: list[tuple[type[Pipeline], Callable[[Schedule], Schedule], str, int]] = [
    (total_mutants.NothingReserved, as_drawn, "the ledger does not have it", 0),
    (total_mutants.ReservedAfterOpening, as_drawn, "the ledger does not have it", 0),
    (total_mutants.OthersNotRestored, as_drawn, "the total is|more than the total", 5),
    (total_mutants.OthersMeanwhileIgnored, slow, "more than the total", 7),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "shape", "words", "first"), CAUGHT, ids=lambda part: getattr(part, "__name__", "")
)
def test_schedules_under_a_total_catch(
    mutant: type[Pipeline], shape: Callable[[Schedule], Schedule], words: str, first: int
) -> None:
    heard = Counter[str]()
    for seed in range(first, first + 40):
        try:
            run_schedule(seed, pipeline=mutant(), schedule=shape(under_a_total(draw_schedule(seed))))
        except Broken as broken:
            if any(said in str(broken) for said in words.split("|")):
                return
            heard[str(broken)] += 1
    raise AssertionError(f"{mutant.__name__} lived; heard {heard.most_common(3)}")
