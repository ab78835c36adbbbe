"""Mutants of how generations begin, each with one promise broken. The simulator must catch each of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np

from stream_app.config import Settings
from stream_app.core.counting.bins import Assignment, BinRules, assign
from stream_app.core.records import EpochRecord, Reply
from stream_app.loops import ingest, segments, slices
from stream_app.loops.ending import LateOfBefore, late_of_before
from stream_app.loops.stream import Ports
from stream_app.ports import OperatorError
from tests.models.memory import MemoryStore
from tests.models.witnessed import NoWitness
from tests.simulator import generations as simulated
from tests.simulator.generations import StartedByGenerations
from tests.simulator.schedule import Schedule


class _Endless(MemoryStore):
    async def end_at(self, stream: str, until_bin: int, late_to_next: bool = False) -> Reply:
        return Reply.DONE


class EndNotStored(StartedByGenerations):
    """The next generation opens while the store has no end of the one before it."""

    store = _Endless


class _Careless(MemoryStore):
    def _hold(self, stream: str, owner: str, for_ms: int, lost: int) -> Reply:
        return Reply.DONE

    async def open_epoch(self, stream: str, strategy: bytes, record: EpochRecord, *others: Any) -> Reply:
        state = self.streams.get(stream)
        if state is not None and record.epoch == state.epoch.epoch:
            del self.streams[stream]
        return await super().open_epoch(stream, strategy, record, *others)


class OpenedByBoth(StartedByGenerations):
    """Two workers open the same generation, and the second one's epoch replaces the first one's."""

    store = _Careless


def _without_floor(own: Any, positions: Any, state: Any, rules: BinRules) -> Assignment:
    return assign(np.maximum(own, rules.first_bin), positions, state, rules)


class CountedInBoth(StartedByGenerations):
    """A generation also counts events from before its beginning, in its first bin."""

    wrong = ((slices, "assign", _without_floor),)


async def _nothing_taken(*asked: Any) -> LateOfBefore | None:
    return None if await late_of_before(*asked) is None else LateOfBefore()


class LateLost(StartedByGenerations):
    """A segment counts nothing that was late for the one before."""

    wrong = ((ingest, "late_of_before", _nothing_taken),)


async def _all_taken(*asked: Any) -> LateOfBefore | None:
    taken = await late_of_before(*asked)
    if taken is None:
        return None
    return replace(taken, positions=taken.positions and dict.fromkeys(taken.positions, 0))


class LateCountedTwice(StartedByGenerations):
    """A segment also counts events of the one before that were not late there."""

    wrong = ((ingest, "late_of_before", _all_taken),)


async def _always_shown(*_others: Any) -> bool:
    return True


class EndedUnseen(StartedByGenerations):
    """A generation that has ended leaves the loops, although readers do not see its last rows."""

    wrong = ((segments, "_is_shown", _always_shown),)


async def _never(running: Settings, store: Any) -> set[str]:
    await asyncio.Event().wait()
    return set()


class NotFollowed(StartedByGenerations):
    """A worker does not go on with a generation that another worker began, and keeps its partitions."""

    wrong = ((simulated, "until_begun_elsewhere", _never),)


class WitnessNotAsked(StartedByGenerations):
    """A start does not ask the witness which generations have released."""

    def witnessed(self, ports: Ports) -> NoWitness:
        """Ask nobody."""
        return NoWitness()

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run; where a start is refused, the operator puts back the settings before, as the refusal says."""
        try:
            await super().run(schedule, ports)
        except OperatorError:
            self.put_back(schedule)
