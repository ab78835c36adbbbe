"""Mutants of how generations begin, each with one promise broken. The simulator must catch each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from stream_app.config import Settings
from stream_app.core.counting.bins import Assignment, BinRules, assign
from stream_app.core.records import EpochRecord, Reply
from stream_app.loops import ingest, segments, slices
from stream_app.loops.ending import LateOfBefore, late_of_before
from stream_app.loops.stream import Ports
from stream_app.ports import OperatorError
from tests.models.memory import MemoryStore
from tests.models.told_rows import NothingTold
from tests.simulator import generations as simulated
from tests.simulator.generations import StartedByGenerations
from tests.simulator.schedule import Schedule


class EndNotStored(StartedByGenerations):
    """The next generation opens while the store has no end of the one before it."""

    def make_store(self, clock_us: Callable[[], int]) -> MemoryStore:
        """Return a store that says that it has an end, and forgets it."""
        return _Endless(clock_us)


class _Endless(MemoryStore):
    async def end_at(self, stream: str, until_bin: int, late_to_next: bool = False) -> Reply:
        return Reply.DONE


class OpenedByBoth(StartedByGenerations):
    """Two workers open the same generation, and the second one's epoch replaces the first one's."""

    def make_store(self, clock_us: Callable[[], int]) -> MemoryStore:
        """Return a store that opens an epoch whenever it is asked to."""
        return _Careless(clock_us)


class _Careless(MemoryStore):
    def _hold(self, stream: str, owner: str, for_ms: int, lost: int) -> Reply:
        return Reply.DONE

    async def open_epoch(self, stream: str, strategy: bytes, record: EpochRecord, *others: Any) -> Reply:
        state = self.streams.get(stream)
        if state is not None and record.epoch == state.epoch.epoch:
            del self.streams[stream]
        return await super().open_epoch(stream, strategy, record, *others)


class CountedInBoth(StartedByGenerations):
    """A generation also counts events from before its beginning, in its first bin."""

    def patched(self) -> AbstractContextManager[object]:
        """Refuse no event as too early."""
        patches = ExitStack()
        patches.enter_context(super().patched())
        patches.enter_context(patch.object(slices, "assign", _without_floor))
        return patches


def _without_floor(own: Any, positions: Any, state: Any, rules: BinRules) -> Assignment:
    return assign(np.maximum(own, rules.first_bin), positions, state, rules)


class LateLost(StartedByGenerations):
    """A segment counts nothing that was late for the one before."""

    def patched(self) -> AbstractContextManager[object]:
        """Take nothing over."""
        return _taking(super().patched(), lambda taken: LateOfBefore())


class LateCountedTwice(StartedByGenerations):
    """A segment also counts events of the one before that were not late there."""

    def patched(self) -> AbstractContextManager[object]:
        """Take over from the first position on."""
        return _taking(
            super().patched(),
            lambda taken: replace(taken, positions=taken.positions and dict.fromkeys(taken.positions, 0)),
        )


def _taking(
    others: AbstractContextManager[object],
    change: Callable[[LateOfBefore], LateOfBefore],
) -> AbstractContextManager[object]:
    """Return patches that change what segments take over."""

    async def changed(*asked: Any) -> LateOfBefore | None:
        taken = await late_of_before(*asked)
        return None if taken is None else change(taken)

    patches = ExitStack()
    patches.enter_context(others)
    patches.enter_context(patch.object(ingest, "late_of_before", changed))
    return patches


class EndedUnseen(StartedByGenerations):
    """A generation that has ended leaves the loops, although readers do not see its last rows."""

    def patched(self) -> AbstractContextManager[object]:
        """Look at the end only."""

        async def is_shown(*_others: Any) -> bool:
            return True

        patches = ExitStack()
        patches.enter_context(super().patched())
        patches.enter_context(patch.object(segments, "_is_shown", is_shown))
        return patches


class NotFollowed(StartedByGenerations):
    """A worker does not go on with a generation that another worker began, and keeps its partitions."""

    def patched(self) -> AbstractContextManager[object]:
        """Never look for other workers' generations."""

        async def never(running: Settings, store: Any) -> set[str]:
            await asyncio.Event().wait()
            return set()

        patches = ExitStack()
        patches.enter_context(super().patched())
        patches.enter_context(patch.object(simulated, "until_begun_elsewhere", never))
        return patches


class WitnessNotAsked(StartedByGenerations):
    """A start does not ask the witness which generations have released."""

    def witnessed(self, ports: Ports) -> NothingTold:
        """Ask nobody."""
        return NothingTold()

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run; where a start is refused, the operator puts back the settings before, as the refusal says."""
        try:
            await super().run(schedule, ports)
        except OperatorError:
            self.put_back(schedule)
