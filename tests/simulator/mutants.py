"""The service made a little wrong, one promise at a time: the simulator must turn red for each.

A mutant is a ``Pipeline`` with one part replaced. They are written against the ports and the pure decisions,
so that they stay meaningful when the loops are rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dphist.noise import Int64Array, Scale
from stream_app.core.records import Apply, Release, Reply
from stream_app.state.memory import MemoryStore
from tests.simulator.given_noise import RememberedNoise
from tests.simulator.pipeline import Pipeline, Ports
from tests.simulator.schedule import Schedule


class HalfNoise(Pipeline):
    """Every draw has half the scale that was asked for."""

    def loops(self, schedule: Schedule, ports: Ports) -> list[Coroutine[Any, Any, None]]:
        """Return loops whose noise is too small."""
        return super().loops(schedule, replace(ports, noise=_Halved(ports.noise)))


class _Halved:
    private = True

    def __init__(self, noise: Any) -> None:
        self._noise: RememberedNoise = noise

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw at half the scale."""
        return self._noise.discrete_laplace(float(scale) / 2, shape)

    def select(self, scores: Any, scale: Scale) -> int:
        """Select."""
        return self._noise.select(scores, scale)


class _MutantStore(Pipeline):
    """A pipeline over a store with one check removed."""

    store: type[MemoryStore]

    def make_store(self, clock_us: Callable[[], int]) -> MemoryStore:
        """Return the wrong store."""
        return self.store(clock_us)


class ReleaseTwice(_MutantStore):
    """The release script does not compare the head: a retry writes its own noise over the first."""

    class store(MemoryStore):
        """Forgets what was released after the caller's head."""

        async def release(self, stream: str, release: Release) -> Reply:
            """Release again."""
            state = self._streams[stream]
            if state.seq > release.expected_seq and state.epoch.epoch == release.epoch:
                state.seq, state.head = release.expected_seq, release.expected_head
                state.released_bin = release.first_bin - 1
                for append in release.tiles:
                    del state.tiles[append.key][append.offset_bytes :]
            return await super().release(stream, release)


class ApplyTwice(_MutantStore):
    """The apply script does not check the position: a batch that comes again is added again."""

    class store(MemoryStore):
        """Adds whatever comes."""

        async def apply(self, stream: str, change: Apply) -> Reply:
            """Apply at any position."""
            partition = self._streams[stream].partitions.get(change.partition)
            if partition is not None and partition.position >= change.new:
                partition.position = change.expected
            return await super().apply(stream, change)


class RefiredNode(_MutantStore):
    """A late event reopens its released bin, which is then released again with it."""

    class store(MemoryStore):
        """Reopens sealed bins."""

        async def apply(self, stream: str, change: Apply) -> Reply:
            """Reopen what the change touches."""
            state = self._streams[stream]
            touched = int(change.bins.min()) if change.bins.size else state.sealed_bin + 1
            if state.epoch.first_bin <= touched <= state.released_bin:
                back = state.released_bin - touched + 1
                state.sealed_bin, state.released_bin = touched - 1, touched - 1
                state.seq -= back
                state.head = _head_of(state.chain, state.seq)
                state.counter = b"" if touched == state.epoch.first_bin else state.counter
            return await super().apply(stream, change)

    def assign(self, own: Int64Array, earliest: Int64Array) -> Int64Array:
        """Count every event in its own bin, however late."""
        return own


def _head_of(chain: dict[int, bytes], seq: int) -> str:
    from tests.simulator.checks import row_hash

    return row_hash(chain[seq]) if seq in chain else "0" * 64


class SealIgnoresPartition(_MutantStore):
    """A bin is sealed as soon as one partition allows it."""

    class store(MemoryStore):
        """Takes the fastest partition for all."""

        async def seal(
            self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int
        ) -> int:
            """Seal too early."""
            state = self._opened(stream)
            fastest = max((p.base_bin for p in state.partitions.values()), default=state.sealed_bin)
            state.sealed_bin = max(state.sealed_bin, min(fastest, up_to_bin))
            return state.sealed_bin


class SealIgnoresUnknown(_MutantStore):
    """A listed partition that the store has not met yet does not hold back the seal."""

    class store(MemoryStore):
        """Looks at known partitions only."""

        async def seal(
            self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int
        ) -> int:
            """Seal without the unknown ones."""
            return await super().seal(stream, strategy_hash, (), up_to_bin)


class CutsUnchecked(_MutantStore):
    """The apply script does not compare the cuts that the batch was binned against, nor look at the clock."""

    class store(MemoryStore):
        """Believes the caller."""

        async def apply(self, stream: str, change: Apply) -> Reply:
            """Apply against any cuts."""
            partition = self._streams[stream].partitions.get(change.partition)
            if partition is not None:
                change = replace(change, last_cut_bin=partition.last_cut_bin, due_us=None)
            return await super().apply(stream, change)


class WitnessIgnored(Pipeline):
    """Nobody asks the witness: a restored store goes on as if it had never been ahead."""

    def loops(self, schedule: Schedule, ports: Ports) -> list[Coroutine[Any, Any, None]]:
        """Return loops that see a witness without rows."""
        return super().loops(schedule, replace(ports, witness=_Forgetful(ports.witness)))


class _Forgetful:
    def __init__(self, witness: Any) -> None:
        self._witness = witness

    async def append(self, stream: str, rows: Sequence[tuple[int, bytes]]) -> None:
        """Append, whatever is there already."""
        try:
            await self._witness.append(stream, rows)
        except ValueError:
            return

    async def head(self, stream: str) -> None:
        """Say that there is nothing."""

    async def rows(self, stream: str, after_seq: int) -> list[tuple[int, bytes]]:
        """Say that there is nothing."""
        return []


class PublishBeforeDurable(Pipeline):
    """Rows go to the witness before the store has answered that it holds them."""

    def loops(self, schedule: Schedule, ports: Ports) -> list[Coroutine[Any, Any, None]]:
        """Return loops over a store that shows first and writes then."""
        return super().loops(schedule, replace(ports, store=_Eager(ports.store, ports.witness)))


class _Eager:
    def __init__(self, store: Any, witness: Any) -> None:
        self._store = store
        self._witness = witness

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def release(self, stream: str, release: Release) -> Reply:
        """Show, then write."""
        rows = [(release.expected_seq + 1 + i, row) for i, row in enumerate(release.rows)]
        await self._witness.append(stream, rows)
        reply: Reply = await self._store.release(stream, release)
        return reply


class PublishUnwitnessed(Pipeline):
    """Rows become visible without having been witnessed."""

    def loops(self, schedule: Schedule, ports: Ports) -> list[Coroutine[Any, Any, None]]:
        """Return loops whose witness forgets to write."""
        return super().loops(schedule, replace(ports, witness=_Silent(ports.witness)))


class _Silent:
    def __init__(self, witness: Any) -> None:
        self._witness = witness

    def __getattr__(self, name: str) -> Any:
        return getattr(self._witness, name)

    async def append(self, stream: str, rows: Sequence[tuple[int, bytes]]) -> None:
        """Write nothing."""


class LateByProcessingTime(Pipeline):
    """An event is late if its bin is closed when it is processed, wherever it stands in the log."""

    def assign_state(self, state: Any) -> Any:
        """Return cuts that apply to every position."""
        return replace(state, base_bin=state.last_cut_bin, cuts=())


class WatermarkClosing(Pipeline):
    """Bins close because an event of a later time arrived, as with watermarks."""

    def now_us(self, source: Any, clock_us: int) -> int:
        """Return the largest event time that has arrived."""
        arrived = [
            entry.time_us
            for name in source.log.names(clock_us)
            for entry in source.log.partitions[name][: source.log.watermark(name, clock_us)]
        ]
        return int(np.max(arrived, initial=0))
