"""Mutants of the service, each with one promise broken. The simulator must fail for every mutant.

A mutant is a ``Pipeline`` with one part replaced. Mutants use only the ports and the pure decisions, so they
still make sense after the loops are rewritten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource, Scale
from stream_app.core.counting.bins import Assignment, BinRules, assign
from stream_app.core.records import Cut, PartitionState, Reply, WitnessRow
from stream_app.core.store_writes import Apply, PartitionCuts, Release
from stream_app.loops import cutting, slices
from stream_app.loops.stream import Ports
from stream_app.ports import Clock
from stream_app.together import SharedAnswer
from tests.models.memory import MemoryStore
from tests.models.memory_stream import MemoryStream
from tests.simulator.given_noise import RememberedNoise
from tests.simulator.pipeline import Passing, Pipeline
from tests.simulator.schedule import BIN_US, Schedule


class HalfNoise(Pipeline):
    """Every draw of noise has half the scale that was asked for."""

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run loops whose noise is too small."""
        halved: dict[str, NoiseSource] = {name: Halved(noise) for name, noise in ports.noise.items()}
        await super().run(schedule, replace(ports, noise=halved))


class Halved:
    private = True

    def __init__(self, noise: Any) -> None:
        self._noise: RememberedNoise = noise

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw at half the scale."""
        return self._noise.discrete_laplace(float(scale) / 2, shape)

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw at half the standard deviation."""
        return self._noise.discrete_gaussian(variance / 4, shape)

    def select(self, scores: Any, scale: Scale) -> int:
        """Select at half the scale."""
        return self._noise.select(scores, scale)


class ReleaseTwice(Pipeline):
    """The release script does not compare the head: a second attempt writes its own noise over the first."""

    class store(MemoryStore):
        """A store in which the last of several releases of the same bins counts."""

        def _hold(self, stream: str, owner: str, for_ms: int, lost: int) -> Reply:
            """Let every worker close bins: the lease only saves work."""
            return Reply.DONE

        async def release(self, stream: str, release: Release) -> Reply:
            """Replace an earlier release of the same bins."""
            reply = await super().release(stream, release)
            state = self.streams[stream]
            last_seq = release.expected_seq + len(release.rows)
            if reply is not Reply.CONFLICT or last_seq != state.seq:
                return reply
            state.chain.update(zip(range(release.expected_seq + 1, last_seq + 1), release.rows, strict=True))
            for append in release.tiles:
                end = append.offset_bytes + len(append.data)
                state.tiles[append.key][append.offset_bytes : end] = append.data
            state.head, state.counter = release.head, release.counter
            return Reply.DONE


class ApplyTwice(Pipeline):
    """The apply script does not check the position: a repeated batch is added again."""

    class store(MemoryStore):
        """A store that adds repeated batches."""

        async def apply(self, stream: str, change: Apply) -> Reply:
            """Apply at any position."""
            partition = self.streams[stream].partitions.get(change.partition)
            if partition is not None and partition.position >= change.new:
                partition.position = change.expected
            return await super().apply(stream, change)


class _Archive(MemoryStore):
    """A store that can go back to the start of its epoch, with the exact counts."""

    def __init__(self, clock_us: Callable[[], int]) -> None:
        super().__init__(clock_us)
        self.released: dict[int, dict[int, int]] = {}

    async def release(self, stream: str, release: Release) -> Reply:
        """Keep a copy of the counts that the release deletes."""
        cells = self.streams[stream].cells
        kept = {bin: dict(cells.get(bin, {})) for bin in range(release.first_bin, release.last_bin + 1)}
        reply = await super().release(stream, release)
        if reply is Reply.DONE:
            self.released.update(kept)
        return reply

    def rewind(self, state: MemoryStream) -> None:
        """Go back to the state at the start of the epoch: nothing sealed, nothing released."""
        first = state.epoch.first_bin
        for bin in range(first, state.released_bin + 1):
            state.cells[bin] = self.released.pop(bin)
        state.sealed_bin = state.released_bin = first - 1
        state.seq, state.head, state.counter = state.epoch.first_seq - 1, state.opening_head, b""
        for key in [key for key in state.tiles if key.epoch == state.epoch.epoch]:
            del state.tiles[key]
        for seq in [seq for seq in state.chain if seq > state.seq]:
            del state.chain[seq]
        state.visible_seq = min(state.visible_seq, state.seq)


class SealIgnoresPartition(Pipeline):
    """A bin is sealed as soon as one partition allows it."""

    class store(MemoryStore):
        """A store that seals as far as its fastest partition."""

        async def seal(
            self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int
        ) -> int:
            """Seal too early."""
            state = self._opened(stream)
            fastest = max((p.base_bin for p in state.partitions.values()), default=state.sealed_bin)
            state.sealed_bin = max(state.sealed_bin, min(fastest, up_to_bin))
            return state.sealed_bin


class SealIgnoresUnknown(Pipeline):
    """A partition that the source lists but the store does not know does not hold back the seal."""

    class store(MemoryStore):
        """A store that checks only the partitions that it knows."""

        async def seal(
            self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int
        ) -> int:
            """Seal without waiting for partitions that the store does not know."""
            return await super().seal(stream, strategy_hash, (), up_to_bin)


class SealRemoved(Pipeline):
    """Due bins are released before all partitions are counted, and records can be applied to sealed bins."""

    class store(MemoryStore):
        """A store that seals every due bin."""

        async def seal(
            self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int
        ) -> int:
            """Seal every due bin."""
            state = self._opened(stream)
            state.sealed_bin = max(state.sealed_bin, up_to_bin)
            return state.sealed_bin

        async def apply(self, stream: str, change: Apply) -> Reply:
            """Apply to any bin."""
            state = self._opened(stream)
            sealed_bin, state.sealed_bin = state.sealed_bin, -1
            reply = await super().apply(stream, change)
            state.sealed_bin = sealed_bin
            return reply


class WitnessIgnored(Pipeline):
    """The witness is not read, so a restored store continues as if it had released nothing more."""

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run loops that get no rows from the witness."""
        await super().run(schedule, _witnessed(ports, _Forgetful))


def _witnessed(ports: Ports, changed: Callable[[Any], Any]) -> Ports:
    """Return the ports with a changed witness."""
    return replace(ports, witnesses={name: changed(witness) for name, witness in ports.witnesses.items()})


class _Forgetful(Passing):
    async def append(self, stream: str, rows: Sequence[tuple[int, bytes]]) -> None:
        """Append rows without comparing them with earlier rows."""
        try:
            await self._inner.append(stream, rows)
        except ValueError:
            return

    async def head(self, stream: str) -> None:
        """Return no rows."""

    async def rows(self, stream: str, after_seq: int) -> list[tuple[int, bytes]]:
        """Return no rows."""
        return []


def _in_its_own_bin(
    own: Int64Array, positions: Int64Array, state: PartitionState, rules: BinRules
) -> Assignment:
    found = assign(own, positions, state, rules)
    return replace(found, bins=np.maximum(own, rules.first_bin))


class RefiredNode(Pipeline):
    """A late event reopens its released bin, which is then released again.

    The mutant also ignores the witness. Otherwise the service would take the reopened store for a restored
    backup.
    """

    class store(_Archive):
        """A store that reopens sealed bins."""

        async def apply(self, stream: str, change: Apply) -> Reply:
            """Go back to the start of the epoch if the change touches a closed bin."""
            state = self.streams[stream]
            change = replace(change, bins=np.maximum(change.bins, state.epoch.first_bin))
            if change.bins.size and int(change.bins.min()) <= state.sealed_bin:
                self.rewind(state)
            return await super().apply(stream, change)

    wrong = ((slices, "assign", _in_its_own_bin),)

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run loops that get no rows from the witness."""
        await super().run(schedule, _witnessed(ports, _Forgetful))


class PublishBeforeDurable(Pipeline):
    """Rows are written to the witness before the store has confirmed them."""

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run loops over a store that publishes a release before it is written."""
        await super().run(schedule, replace(ports, store=_Eager(ports.store, ports.witnesses[schedule.name])))


class _Eager(Passing):
    def __init__(self, store: Any, witness: Any) -> None:
        super().__init__(store)
        self._witness = witness

    async def release(self, stream: str, release: Release) -> Reply:
        """Publish, then write."""
        rows = [WitnessRow(release.expected_seq + 1 + i, row) for i, row in enumerate(release.rows)]
        await self._witness.append(stream, rows)
        reply: Reply = await self._inner.release(stream, release)
        return reply


class PublishUnwitnessed(Pipeline):
    """Rows become visible before they are witnessed."""

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run loops whose witness writes nothing."""
        await super().run(schedule, _witnessed(ports, _Silent))


class _Silent(Passing):
    async def append(self, stream: str, rows: Sequence[tuple[int, bytes]]) -> None:
        """Write nothing."""


def _as_if_arrived_now(
    own: Int64Array, positions: Int64Array, state: PartitionState, rules: BinRules
) -> Assignment:
    return assign(own, positions, replace(state, base_bin=state.last_cut_bin, cuts=()), rules)


class LateByProcessingTime(Pipeline):
    """An event is late if its bin is closed when it is processed, whatever its position."""

    wrong = ((slices, "assign", _as_if_arrived_now),)


def _refused_at_once(
    own: Int64Array, positions: Int64Array, state: PartitionState, rules: BinRules
) -> Assignment:
    end = int(positions[-1]) + 1 if len(positions) else 0
    open_bin = state.last_cut_bin + 1
    if state.cuts and end <= state.cuts[-1].position:
        return assign(own, positions, state, rules)
    # The last cut lies beyond all records, so it also contains the records of the open bin.
    return assign(own, positions, replace(state, cuts=(*state.cuts, Cut(open_bin, end))), rules)


class FutureByProcessingTime(Pipeline):
    """The time at which an event is processed, not its cut, decides whether it is from the future."""

    wrong = ((slices, "assign", _refused_at_once),)


class WatermarkClosing(Pipeline):
    """Bins close when an event with a later time arrives, as with watermarks."""

    def make_clock(self, store: Any, source: Any) -> Clock:
        """Return a clock that shows the largest event time."""
        return _WatermarkClock(source)


class _WatermarkClock:
    virtual = True  # the store's clock is not used

    def __init__(self, source: Any) -> None:
        self._source = source

    async def now_us(self) -> int:
        """Return the largest event time that has arrived. After a long silence, time moves on by itself."""
        return int(self._source.largest_time_us(idle_us=6 * BIN_US))

    async def sleep_until_us(self, instant_us: int) -> None:
        """Wait a little and look again."""
        await asyncio.sleep(0.1)


class CutsWaitForReads(Pipeline):
    """Cuts are taken only when a read has returned, so the next record decides when a cut is taken."""

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run loops in which only the reader takes cuts."""
        await super().run(schedule, replace(ports, clock=_AskedAfterReads(ports.clock)))


class _AskedAfterReads(Passing):
    """A clock that calls itself virtual, so that the reader asks for cuts."""

    virtual = True


def _as_if_answered_at_once(due: Any, *answer: Any) -> list[PartitionCuts]:
    taken = _real_cuts(due, *answer)
    return [replace(one, cuts=[replace(cut, overdue=0) for cut in one.cuts]) for one in taken]


class OneReadingOfTheClock(Pipeline):
    """Records inside a cut count as arrived by its closing instant, however late the log was asked."""

    wrong = ((cutting, "_cuts", _as_if_answered_at_once),)


_real_cuts = cutting._cuts


async def _joining(ask: Any) -> Any:
    if ask._last is not None and not ask._last.done():
        return await asyncio.shield(ask._last)
    return await _real_answer(ask)


class AnswersUnderWay(Pipeline):
    """A loop that asks while a shared question is under way gets the answer to that older question."""

    wrong = ((SharedAnswer, "__call__", _joining),)


_real_answer = SharedAnswer.__call__
