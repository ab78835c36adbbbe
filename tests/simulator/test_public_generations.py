"""Neighbouring logs look alike to the public over generations and successors: edges, ends, epochs, instants.

One record less changes one cell of one bin of one stream. Public states, the ledger, stored ends and the
instants at which rows become visible are equal. The bytes of rows are those of test_public_neighbours.py.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from stream_app.core.records import StreamState
from stream_app.core.segments import edges
from stream_app.core.segments import plan as decisions
from stream_app.core.strategy import Strategy
from tests.simulator.generations import EdgeWorld, StartedByGenerations, drawn
from tests.simulator.log import USERS, Kind, Log
from tests.simulator.neighbours import some_record
from tests.simulator.schedule import BIN_US, SOURCE, Action, Deed
from tests.simulator.world import run_world

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("NEIGHBOURS", "1"))
Place = tuple[str, int, int]  # stream, bin and cell
MakePipeline = Callable[[int | None], StartedByGenerations]


class PublicEdges(EdgeWorld):
    """A world with generations that keeps what a reader of the public store sees at the end."""

    async def run(self) -> str:
        """Run, then read everything public once more."""
        told = await super().run()
        reader = self.store.reader()
        states = {name: await self.store.load(name) for name in self.seen}
        self.public: dict[str, Any] = {"ledger": await self.store.ledger(SOURCE)}
        for name, one in self.seen.items():
            state, instants = states[name], dict(one.watch.seen_at_us)
            end_bin = None if state is None else state.until_bin
            self.public[name] = (instants, await reader.public_state(name), end_bin)
        return told

    def counts(self) -> Counter[Place]:
        """Return the exact counts of every stream's cells."""
        found = Counter[Place]()
        for name, one in self.seen.items():
            for bin, cells in one.history.sealed.items():
                found.update({(name, bin, cell): int(count) for cell, count in enumerate(cells)})
        return found


def neighbour_of(log: Log, of_users: bool, rng: random.Random) -> Log:
    """Return the log without one record, or without all records of one user."""
    if not of_users:
        return log.without(*some_record(log, rng))
    user = rng.choice(USERS)
    for name, entries in list(log.partitions.items()):
        for position in reversed(range(len(entries))):
            if entries[position].kind is Kind.EVENT and entries[position].user == user:
                log = log.without(name, position)
    return log


def check_neighbours(
    seed: int, neighbours: int = 2, make: MakePipeline = StartedByGenerations
) -> tuple[int, int]:
    """Run a schedule and neighbours of its log. Returns: how many streams began, and how many logs differ.

    Every second schedule without a cap has a successor under another name in place of generations.
    """
    rng, [before, after, edge_us] = random.Random(f"neighbour {seed}"), drawn(seed)
    changes = [action for action in before.actions if action.deed is Deed.CONFIGURE][:3]
    changes = changes or [Action(BIN_US, Deed.CONFIGURE)]
    facts: dict[str, Any] = {"fault_rate": 0.0, "stall_rate": 0.0, "workers": 1, "actions": tuple(changes)}
    before, after = (replace(one, **facts, exact_cuts=True, events_per_bin=6.0) for one in (before, after))
    cap, edge = max(before.max_events, after.max_events), edge_us if seed % 2 else None

    def run(log: Log | None, largest_batch: int) -> PublicEdges:
        both = [replace(one, largest_batch=largest_batch) for one in (before, after)]
        world = PublicEdges(both[0], both[1], make(edge))
        world.log = log or world.log
        run_world(world)
        return world

    first, differ = run(None, before.largest_batch), 0
    for _ in range(neighbours):
        log = neighbour_of(first.log, cap > 0, rng)
        other = run(log, rng.choice([1, 2, 5, 50]))
        assert other.public == first.public, "the public sees which log it is"
        change = first.counts()
        change.subtract(other.counts())
        moved = {place: by for place, by in change.items() if by}
        differ += bool(moved)
        if cap == 0:
            assert list(moved.values()) in ([], [1]), moved
        else:
            # A user changes at most this in each epoch, and an epoch has at least one visible row.
            epochs = Counter[tuple[str, int]]()
            for (name, bin, _), by in moved.items():
                opened = [one.epoch for one in first.seen[name].history.epochs if one.first_bin <= bin]
                epochs[name, max(opened)] += abs(by)
            assert all(by <= cap for by in epochs.values()), epochs
    return sum(one.watch.seen_at_us != {} for one in first.seen.values()), differ


@pytest.mark.parametrize("seed", range(2 * SEEDS))
def test_nothing_public_tells_neighbouring_logs_apart_over_generations(seed: int) -> None:
    began, _ = check_neighbours(seed)
    assert began >= 2


_ends_ahead = edges.ends_ahead


def _by_records(then: Strategy, state: StreamState | None, now_us: int) -> Iterator[edges.Ends]:
    """Leave out the first end if the number of records that are counted so far is odd."""
    ends = _ends_ahead(then, state, now_us)
    counted = 0 if state is None else sum(one.position for one in state.partitions.values())
    if state is not None and state.until_bin is None and counted % 2:
        next(ends)
    return ends


class EdgeByRecords(StartedByGenerations):
    """A generation begins an epoch later if the number of records that are counted so far is odd."""

    wrong = ((decisions, "ends_ahead", _by_records),)


def test_an_edge_that_depends_on_a_record_is_caught() -> None:
    with pytest.raises(AssertionError, match="the public sees which log it is"):
        check_neighbours(0, neighbours=4, make=EdgeByRecords)
