"""Neighbouring logs look alike to the public, whatever a stream counts: conditions, users, sums.

The counts of two neighbouring logs differ by no more than the declared sensitivity, in the declared cells.
The noise of the second run is moved by this difference. Then everything public must be equal, byte for byte:
rows, nodes, the number of rows, the instants at which they became visible, the epochs and the ledger.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.simulator.log import USERS, Kind, Log
from tests.simulator.neighbours import Cell, binned, some_record
from tests.simulator.recount import Place
from tests.simulator.schedule import AMOUNTS, FIRST_BIN, SOURCE, STREAM, Deed, Schedule, draw_schedule
from tests.simulator.test_pipeline_shift import GivenPipeline
from tests.simulator.world import World, run_world

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("NEIGHBOURS", "1"))
KEYS_ALONE: dict[str, Any] = {"keys": 3, "buckets": 1, "window": 0, "over_epochs": False}
FEATURES: dict[str, dict[str, Any]] = {
    "where": {**KEYS_ALONE, "where": "all"},
    "where, buckets": {"keys": 2, "buckets": 3, "window": 0, "where": "not all"},
    "where, cap": {**KEYS_ALONE, "where": "any", "max_events": 2},
    "users": {**KEYS_ALONE, "max_events": 1, "count": "users"},
    "users, where": {**KEYS_ALONE, "keys": 1, "max_events": 1, "count": "users", "where": "within"},
    "two key fields": {**KEYS_ALONE, "sides": True},
    "two key fields, cap, where": {**KEYS_ALONE, "sides": True, "max_events": 2, "where": "any"},
    "sums": {**KEYS_ALONE, "sums": True},
    "sums, two key fields": {**KEYS_ALONE, "sums": True, "sides": True},
    "sums, cap, where": {**KEYS_ALONE, "sums": True, "max_events": 2, "where": "any"},
    "sums, total, where": {**KEYS_ALONE, "sums": True, "total": True, "where": "one of"},
}
CASES = [
    (feature, kind)
    for feature, facts in FEATURES.items()
    for kind in (("a user",) if "max_events" in facts else ("an event", "a replaced event"))
]


def counting(seed: int, feature: str) -> Schedule:
    """Return a busy schedule with the feature, and with the drawn outages."""
    drawn = draw_schedule(seed)
    calm = replace(drawn.without_trouble(), sums=False, sides=False, where="", max_events=0)
    outages = tuple(action for action in drawn.actions if action.deed is Deed.OUTAGE)
    busy = replace(calm, events_per_bin=10.0, actions=outages, exact_cuts=True)
    return replace(busy, release=("anticipating", "causal")[seed % 2], **FEATURES[feature])


def neighbour_of(log: Log, kind: str, rng: random.Random) -> Log:
    """Return a neighbouring log."""
    if kind == "a user":
        user = rng.choice(USERS)
        for place in reversed(list(_places_of(log, user))):
            log = log.without(*place)
        return log
    partition, position = some_record(log, rng)
    other = log.without(partition, position)
    if kind == "an event":
        return other
    entry = rng.choice([entry for entry in log.partitions[partition] if entry.kind is Kind.EVENT])
    return other.with_more(partition, replace(entry, arrival_us=entry.arrival_us + 1))


def _places_of(log: Log, user: str) -> Iterator[Place]:
    for name, entries in log.partitions.items():
        for position, entry in enumerate(entries):
            if entry.kind is Kind.EVENT and entry.user == user:
                yield name, position


class PublicWorld(World):
    """A world that keeps what a reader of the public store sees at the end."""

    async def run(self) -> str:
        """Run, then read everything public once more."""
        told = await super().run()
        self.state = await self.observer.reader.public_state(STREAM)
        self.ledger = await self.store.ledger(SOURCE)
        return told


def public(schedule: Schedule, log: Log, change: Mapping[Cell, int]) -> dict[str, Any]:
    """Run a log and return everything that anybody ever saw of it, with the instants."""
    world = PublicWorld(schedule, log=log, pipeline=GivenPipeline(change))
    run_world(world)
    watch = world.observer.watch
    seen = {"rows": watch.rows, "nodes": watch.nodes, "hashes": watch.hashes, "at": watch.seen_at_us}
    return {**seen, "state": world.state, "ledger": world.ledger}


def check_sensitivity(schedule: Schedule, kind: str, change: Mapping[Cell, int]) -> None:
    """Check that counts changed by at most the declared sensitivity, in the declared cells.

    An event changes the cells of one key in one bin. A user changes ``max_events`` in each epoch.
    """
    changed = {cell: by for cell, by in change.items() if by}
    weight = AMOUNTS.range.weight if schedule.sums else 1
    if kind == "a user":
        epochs = Counter[int]()
        for (bin, _), by in changed.items():
            epochs[(bin - FIRST_BIN) // schedule.horizon] += abs(by)
        # An amount is at the two ends of its range, so it changes two cells by the weight together.
        assert all(by <= weight * schedule.max_events for by in epochs.values())
        return
    events = 1 if kind == "an event" else 2
    assert sum(map(abs, changed.values())) <= events * weight
    per_key = 2 if schedule.sums else schedule.buckets
    assert len({(bin, cell // per_key) for bin, cell in changed}) <= events


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("feature", "kind"), CASES)
def test_nothing_public_tells_neighbouring_logs_apart(feature: str, kind: str, seed: int) -> None:
    seed = seed * len(CASES) + CASES.index((feature, kind))
    schedule = counting(seed, feature)
    log = World(schedule).log
    neighbour = neighbour_of(log, kind, random.Random(f"neighbour {seed}"))
    change = Counter(binned(schedule, log))
    change.subtract(binned(schedule, neighbour))
    check_sensitivity(schedule, kind, change)
    expected = public(schedule, log, {})
    if any(change.values()):
        assert public(schedule, neighbour, {}) != expected
    batches = replace(schedule, largest_batch=schedule.largest_batch + 1)
    assert public(batches, neighbour, change) == expected
