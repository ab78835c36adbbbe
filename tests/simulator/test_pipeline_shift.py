"""Transcript shift test of the whole pipeline: logs in, public bytes and the instants they appear at out.

Everything that anybody can see must depend on the log through its counts plus noise alone. So a log without
one record, under noise moved by that record's nodes, must give the same rows, hashes, nodes and instants,
byte for byte: nothing else of the log (its length, batches, positions) may show.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dphist.noise import Int64Array, Scale
from stream_app.core.records import StreamState
from tests.simulator.given_noise import RememberedNoise
from tests.simulator.log import Log
from tests.simulator.neighbours import binned, some_record
from tests.simulator.pipeline import Pipeline, Ports
from tests.simulator.schedule import Deed, Schedule, draw_schedule, seeds
from tests.simulator.world import World, run_world


class GivenPipeline(Pipeline):
    """The service under noise that is fixed for each node of each epoch, plus R times a change of counts."""

    def __init__(self, change: Mapping[int, int]) -> None:
        self.change = change

    def loops(self, schedule: Schedule, ports: Ports) -> list[Coroutine[Any, Any, None]]:
        """Return loops whose noise knows which nodes it is drawn for."""
        store = _Watched(ports.store)
        noise = _NoiseOfEpochs(schedule, store, ports.noise, self.change)
        return super().loops(schedule, replace(ports, store=store, noise=noise))


class _Watched:
    """A store that remembers the state it last answered: a release goes on from it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.state: StreamState | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load(self, stream: str) -> StreamState | None:
        """Load and remember."""
        self.state = await self._store.load(stream)
        return self.state


class _NoiseOfEpochs:
    private = True  # stands in for the system source, which nobody can steer

    def __init__(self, schedule: Schedule, store: _Watched, drawn: Any, change: Mapping[int, int]) -> None:
        self._seed = schedule.seed
        self._design = schedule.design
        self._store = store
        self._drawn: RememberedNoise = drawn
        self._change = change

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Return the noise of the next nodes of this scale's level, moved by the change in their bins."""
        state = self._store.state
        assert state is not None
        level = self._design.scales.index(scale) + 1
        width = self._design.shape.widths[level]
        first = self._design.shape.completed_count(state.released_bin + 1 - state.epoch.first_bin, level)
        values = np.zeros(shape, dtype=np.int64)
        for index in range(first, first + len(values)):
            start = state.epoch.first_bin + index * width
            moved = sum(self._change.get(bin, 0) for bin in range(start, start + width))
            drawn = random.Random(f"{self._seed} {state.epoch.epoch} {level} {index}").randrange(-50, 51)
            values[index - first] = drawn + moved
        return self._drawn.remember(scale, values)

    def select(self, scores: Any, scale: Scale) -> int:
        """Refuse: a tree of counts selects nothing."""
        raise AssertionError("nothing here selects")


def public(schedule: Schedule, log: Log, change: Mapping[int, int]) -> dict[str, Any]:
    """Run a log and return everything that anybody ever saw of it, with the instants."""
    world = World(schedule, log=log, pipeline=GivenPipeline(change))
    run_world(world)
    watch = world.observer.watch
    return {"rows": watch.rows, "nodes": watch.nodes, "visible_at": watch.seen_at_us}


@pytest.mark.parametrize("seed", seeds(quick=3, all=40))
def test_the_public_transcript_depends_on_counts_plus_noise_alone(seed: int) -> None:
    schedule = draw_schedule(seed).without_trouble()
    outages = tuple(action for action in draw_schedule(seed).actions if action.deed is Deed.OUTAGE)
    schedule = replace(schedule, actions=outages, exact_cuts=True)
    log = World(schedule).log
    neighbour = log.without(*some_record(log, random.Random(seed)))
    counts, others = binned(schedule, log), binned(schedule, neighbour)
    change = Counter(counts)
    change.subtract(others)
    batches = replace(schedule, largest_batch=schedule.largest_batch + 1)
    expected = public(schedule, log, {})
    assert public(batches, neighbour, change) == expected
    assert all(at_us % schedule.publish_every_us == 0 for at_us in expected["visible_at"].values())
    if any(change.values()):
        assert public(schedule, neighbour, {}) != expected
