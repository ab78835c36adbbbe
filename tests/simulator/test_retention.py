"""Old epochs leave the store under faults: nothing is released again, and nothing else leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

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


async def _all_that_ended(publisher: Publisher, instant_us: int) -> None:
    await publisher._store.trim(publisher._strategy.stream, instant_us + 100 * BIN_US)


def _all_but_the_last(_texts: Any, epochs: Sequence[EpochRecord], *_: Any) -> Iterator[EpochRecord]:
    yield from epochs[:-1]


_remove: Callable[..., None] = MemoryStream.remove
_trim: Callable[..., Any] = MemoryStore.trim


def _one_row_more(stream: MemoryStream, oldest: EpochRecord) -> None:
    _remove(stream, oldest)
    del stream.chain[min(stream.chain)]


async def _moved_back(store: MemoryStore, stream: str, before_us: int) -> int:
    """Move the stream's state back by a row when an epoch leaves, so its last bin would get noise again."""
    removed: int = await _trim(store, stream, before_us)
    if removed:
        state = store.streams[stream]
        state.seq -= 1
        state.released_bin -= 1
    return removed


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "every ended epoch leaves, however young": (Publisher, "_trim", _all_that_ended),
    "the running epoch leaves": (memory, "removable", _all_but_the_last),
    "rows of the epoch after leave, too": (MemoryStream, "remove", _one_row_more),
    "the last bin is released again": (MemoryStore, "trim", _moved_back),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant: str) -> None:
    pipeline = Pipeline()
    pipeline.wrong = (MUTANTS[mutant],)
    assert run(calm()) > 0
    with pytest.raises((Broken, AssertionError, ValueError, KeyError)):
        run(calm(), pipeline)
