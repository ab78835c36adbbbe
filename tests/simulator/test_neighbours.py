"""Logs that differ by one record give binned streams that differ in one cell.

The privacy of the whole service rests on this, besides the tree (docs/privacy.md, section 4). The two runs
may differ in everything except the log: batch sizes, workers, faults, the order of tasks.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.simulator.neighbours import binned, is_one_record, moved, other_day, some_record
from tests.simulator.schedule import BIN_US, draw_schedule, seeds
from tests.simulator.world import World

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", seeds(quick=4, all=30))
def test_with_arrival_times_bins_depend_on_the_log_alone(seed: int) -> None:
    """If the log stamps arrivals, two runs with the same log agree in every bin, whatever else differs."""
    schedule = replace(other_day(draw_schedule(seed), seed), exact_cuts=True)
    log = World(schedule).log
    expected = binned(schedule.without_trouble(), log)
    assert binned(schedule, log) == expected
    place = some_record(log, random.Random(seed))
    neighbour = binned(other_day(schedule, seed + 1000), log.without(*place))
    assert is_one_record(schedule, moved(neighbour, expected))


@pytest.mark.parametrize("seed", seeds(quick=8, all=30))
def test_one_record_less_moves_one_bin_by_one(seed: int) -> None:
    """Without stamps each cut is taken at its instant, whatever arrives around that time."""
    schedule = replace(draw_schedule(seed).without_trouble(), exact_cuts=False)
    log = World(schedule).log
    rng = random.Random(seed)
    expected = binned(schedule, log)
    for _ in range(3):
        batch = rng.choice([1, 2, 5, 50])
        neighbour = binned(replace(schedule, largest_batch=batch), log.without(*some_record(log, rng)))
        assert is_one_record(schedule, moved(neighbour, expected))


@pytest.mark.parametrize("seed", seeds(quick=3, all=20))
def test_a_replaced_record_moves_two_bins_at_most(seed: int) -> None:
    schedule = replace(draw_schedule(seed).without_trouble(), exact_cuts=False)
    log = World(schedule).log
    rng = random.Random(seed)
    place = some_record(log, rng)
    entry = log.partitions[place[0]][place[1]]
    neighbour = log.replaced(*place, entry.time_us - rng.randrange(3 * BIN_US))
    differences = moved(binned(schedule, neighbour), binned(schedule, log))
    assert is_one_record(schedule, [by for by in differences if by > 0])
    assert is_one_record(schedule, [-by for by in differences if by < 0])
