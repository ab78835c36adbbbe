"""The simulator over the real service: every rule holds in every schedule, and a seed decides everything."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import numpy as np
import pytest

from stream_app.core.records import Cut
from tests.simulator.conditions import EVERYTHING
from tests.simulator.log import Entry, Kind, Log
from tests.simulator.loop import Deadlock, simulate
from tests.simulator.recount import PartitionHistory, Rules, recount
from tests.simulator.schedule import Deed, draw_schedule
from tests.simulator.world import run_schedule

pytestmark = pytest.mark.slow

SCHEDULES = int(os.environ.get("SCHEDULES", "150"))
CHUNK = 50
FIRST = 24  # seeds that every check runs


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, SCHEDULES, CHUNK))
def test_every_rule_holds_in_many_schedules(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SCHEDULES)):
        try:
            run_schedule(seed)
        except AssertionError as broken:
            raise AssertionError(
                f"replay with: python -m tests.simulator --seed {seed}\n{broken}"
            ) from broken


@pytest.mark.parametrize(
    "seed",
    [
        616,  # a release between loading the store and asking the witness looked like a restored store
        930,  # a restored store opened an unseen epoch again; the check expected the epoch's first noise
    ],
)
def test_schedules_that_failed_in_the_past_pass(seed: int) -> None:
    plain = replace(draw_schedule(seed), witness_is_public=False, where=EVERYTHING, sums=False)
    run_schedule(seed, schedule=plain)


@pytest.mark.parametrize("seed", [5028, 5057, 5089, 5111, 5166, 5216])
def test_every_rule_holds_while_three_workers_divide_two_streams(seed: int) -> None:
    """Workers are killed and stopped, and join again; some schedules set the store back."""
    two = draw_schedule(seed)
    assert two.sibling is not None
    assert Deed.KILL in [action.deed for action in two.actions]
    run_schedule(seed, schedule=replace(two, workers=3, sibling=replace(two.sibling, workers=3)))


def test_a_seed_gives_the_same_trace_again() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        run_schedule(7, trace.append)
    assert traces[0] == traces[1]
    assert any("cuts of" in line for line in traces[0])


@pytest.mark.slow
def test_every_rule_holds_and_every_kind_of_trouble_is_seen() -> None:
    """Each kind of fault must occur in some schedule."""
    unseen = {
        "lost call store.apply",
        "lost reply store.release",
        "repeated store.",
        "zombie store.",
        "arrives",
        "crash before store.",
        "crash after store.",
        "delayed source.read",
        "witness.append",
        "dead letters.write",
        "outage",
        "restore",
        "handover",
        "epoch 2 opens",
    }
    for seed in range(200):
        lines: list[str] = []
        run_schedule(seed, lines.append, schedule=replace(draw_schedule(seed), fault_rate=0.1))
        text = "\n".join(lines)
        unseen = {word for word in unseen if word not in text}
        if not unseen:
            return
    assert not unseen


def test_time_jumps_and_order_is_drawn() -> None:
    async def order(seed_unused: int = 0) -> tuple[str, ...]:
        done: list[str] = []

        async def note(name: str) -> None:
            await asyncio.sleep(3600)
            await asyncio.sleep(0)
            done.append(name)

        await asyncio.gather(*(note(name) for name in "abcd"))
        return tuple(done)

    orders = {simulate(seed, order()) for seed in range(20)}
    assert len(orders) > 5
    assert simulate(3, order()) == simulate(3, order())


def test_a_task_that_waits_for_ever_is_a_deadlock() -> None:
    async def forever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        simulate(0, forever())


def test_the_recount_by_hand() -> None:
    """Bins of 10 us. The cut of bin 0 is at position 2, the cuts of bins 1 and 2 are at position 4."""
    times = [5, 15, 3, -1, 25, 99, 7]
    entries = tuple(Entry(Kind.EVENT, 0, time) for time in times)
    log = Log({"p": (*entries, Entry(Kind.UNDECODABLE, 0), Entry(Kind.GAP, 0))}, {"p": 0})
    history = PartitionHistory(0, 9, -1, [Cut(0, 2), Cut(2, 4)], [(0, 0)])
    rules = Rules(bin_us=10, max_ahead_bins=2, late="next_bin")
    placed = recount(log, {"p": history}, rules)
    assert placed == {("p", 0): 0, ("p", 1): 1, ("p", 2): 1, ("p", 4): 3, ("p", 6): 3}
    late = recount(log, {"p": history}, Rules(10, 2, "drop"))
    assert late == {("p", 0): 0, ("p", 1): 1}
    assert np.array_equal(sorted(set(placed.values())), [0, 1, 3])
