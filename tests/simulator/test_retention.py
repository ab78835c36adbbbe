"""Old epochs leave the store under faults: nothing is released again, and nothing else leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from stream_app.core.records import EpochRecord
from stream_app.loops.publishing import Publisher
from tests.models import memory
from tests.models.memory import MemoryStore
from tests.models.memory_stream import MemoryStream
from tests.simulator.checks import Broken
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import BIN_US, Action, Deed, Schedule, draw_schedule, seeds
from tests.simulator.world import World, run_world

pytestmark = pytest.mark.slow


def trimmed(seed: int) -> Schedule:
    """Return a drawn schedule of short epochs that soon leave the store, which is set back now and then."""
    drawn, rng = draw_schedule(seed), random.Random(f"retention {seed}")
    short = replace(drawn, over_epochs=False, branching=(2,), horizon=2, window=0, bins=max(drawn.bins, 14))
    deeds = [rng.choice([Deed.BACKUP, Deed.RESTORE, Deed.KILL, Deed.HANDOVER]) for _ in range(4)]
    actions = [Action(rng.randrange(short.bins * BIN_US), deed) for deed in deeds]
    return replace(
        short,
        sibling=None,
        approximate=False,
        keep_us=rng.choice([BIN_US // 2, 2 * BIN_US, 5 * BIN_US]),
        actions=tuple(sorted([*short.actions, *actions], key=lambda action: action.after_us)),
    )


def run(schedule: Schedule, pipeline: Pipeline | None = None) -> int:
    """Run a schedule; return how many epochs left."""
    world = World(schedule, pipeline=pipeline)
    run_world(world)
    return world.observer.removed


@pytest.mark.parametrize("seed", seeds(quick=6, all=60))
def test_every_rule_holds_while_old_epochs_leave(seed: int) -> None:
    assert run(trimmed(seed)) > 0


def calm() -> Schedule:
    """Return a schedule without faults, of which some epochs leave."""
    return replace(trimmed(7).without_trouble(), keep_us=3 * BIN_US)


def test_each_epoch_leaves_at_the_first_public_instant_after_its_time() -> None:
    """Its time comes between two closings, so no row wakes the worker."""
    schedule = replace(calm(), keep_us=5 * BIN_US // 2)
    world = World(schedule)
    run_world(world)
    assert world.observer.removed > 2
    assert world.observer.late_us <= schedule.publish_every_us + BIN_US // 100


class EveryEndedEpochLeaves(Pipeline):
    """However young an epoch is."""

    def patched(self) -> AbstractContextManager[object]:
        """Ignore the retention."""

        async def trim(publisher: Publisher, instant_us: int) -> None:
            await publisher._store.trim(publisher._strategy.stream, instant_us + 100 * BIN_US)

        return patch.object(Publisher, "_trim", trim)


class TheRunningEpochLeaves(Pipeline):
    """Whether it has ended or not."""

    def patched(self) -> AbstractContextManager[object]:
        """Remove everything but the last row's epoch's record."""

        def removable(_texts: Any, epochs: Sequence[EpochRecord], *_: Any) -> Iterator[EpochRecord]:
            yield from epochs[:-1]

        return patch.object(memory, "removable", removable)


class TheEpochAfterLeavesToo(Pipeline):
    """Rows of the next epoch leave with the last one's."""

    def patched(self) -> AbstractContextManager[object]:
        """Remove one row more."""
        remove: Callable[..., None] = MemoryStream.remove

        def one_more(stream: MemoryStream, oldest: EpochRecord) -> None:
            remove(stream, oldest)
            del stream.chain[min(stream.chain)]

        return patch.object(MemoryStream, "remove", one_more)


class ReleasedAgain(Pipeline):
    """A removal moves the stream's state back by a row, so its last bin would get noise again."""

    def patched(self) -> AbstractContextManager[object]:
        """Move the state back when an epoch leaves."""
        trim: Callable[..., Any] = MemoryStore.trim

        async def forgotten(store: MemoryStore, stream: str, before_us: int) -> int:
            removed: int = await trim(store, stream, before_us)
            if removed:
                state = store.streams[stream]
                state.seq -= 1
                state.released_bin -= 1
            return removed

        return patch.object(MemoryStore, "trim", forgotten)


@pytest.mark.parametrize(
    "mutant", [EveryEndedEpochLeaves, TheRunningEpochLeaves, TheEpochAfterLeavesToo, ReleasedAgain]
)
def test_mutants_are_caught(mutant: type[Pipeline]) -> None:
    assert run(calm()) > 0
    with pytest.raises((Broken, AssertionError, ValueError, KeyError)):
        run(calm(), mutant())
