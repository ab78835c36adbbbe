"""A whole service in memory over one real file. The test moves its clock and runs its loops."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dphist.noise import NoiseSource, SystemNoise
from stream_app.core.incoming import RecordBatch, Refusal
from stream_app.core.records import StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock
from stream_app.loops.closer import Closer
from stream_app.loops.ingest import Start
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import NoiseKeys, Source
from stream_app.source_ledger import SourceLedger
from stream_app.sources.decode import TimeField
from stream_app.sources.file import FileSource
from stream_app.vault.key_files import KeyFiles
from stream_app.wiring.pipeline import Counting
from tests.models.memory import MemoryStore
from tests.patience import ended
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.declared import BIN_US, FIRST_BIN, SOURCE, STREAM

AT = TimeField("at", "us")
USER = "user"


def event_line(time_us: int, **more: object) -> bytes:
    """Return one event as a line."""
    return json.dumps({"at": time_us, **more}).encode() + b"\n"


def write_events(path: Path, times_us: Iterable[int]) -> Path:
    """Write a file of events."""
    path.write_bytes(b"".join(event_line(time_us, n=n) for n, time_us in enumerate(times_us)))
    return path


def packed(path: Path) -> Path:
    """Compress a file in its place, as gzip does."""
    target = path.with_name(f"{path.name}.gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return target


def read(source: Source, position: int = 0) -> tuple[list[RecordBatch], int]:
    """Return everything that can be read from a position of a log of files, and where that ends."""
    batches: list[RecordBatch] = []
    while found := asyncio.run(source.read({"0": position}, 0.0)):
        [batch] = found
        assert batch.start == position < batch.end
        batches.append(batch)
        position = batch.end
    return batches, position


def times(batches: Sequence[RecordBatch]) -> list[int]:
    """Return the event times."""
    return [time for batch in batches for time in batch.columns["at"].tolist()]


def end_of(source: Source) -> int:
    """Return where a log of files ends now: the next cut."""
    [end] = asyncio.run(source.positions_at(["0"], [7]))["0"]
    return int(end)


@dataclass
class HandClock:
    """The store's clock, set by the test."""

    now_us: int = FIRST_BIN * BIN_US

    def __call__(self) -> int:
        """Return the time."""
        return self.now_us

    def set_bin(self, bin: float) -> None:
        """Set the time to a bin's start, or to a fraction of a bin after it."""
        self.now_us = int(bin * BIN_US)


@dataclass
class DeadLetterList:
    """The dead letters in the order of writing. ``streams`` holds the stream that refused each."""

    kept: list[Refusal] = field(default_factory=list)
    streams: list[str | None] = field(default_factory=list)

    async def write(
        self, refusals: Sequence[Refusal], streams: tuple[str | None, ...] = (None,)
    ) -> Sequence[int]:
        """Keep new letters. A repeated letter is kept once."""
        numbers = list[int]()
        for stream in streams:
            written = list(zip(self.kept, self.streams, strict=True))
            new = [refusal for refusal in refusals if (refusal, stream) not in written]
            self.kept += new
            self.streams += [stream] * len(new)
            numbers.append(len(new))
        return numbers

    def reasons(self) -> list[str]:
        """Return the letters' reasons."""
        return [str(refusal.reason) for refusal in self.kept]


class ReadAtOnce(FileSource):
    """A file. Nobody waits for its next events."""

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        """Return what is there."""
        return await super().read(positions, 0.0)


@dataclass(frozen=True)
class ByHand:
    """A reader and its cutter. The test runs each step."""

    source: FileSource
    counting: Counting

    async def step(self) -> int:
        """Take the due cuts, then read and apply once. Cuts that become due meanwhile are taken too."""
        await self.cut()
        cutting = asyncio.create_task(self._keep_cutting())
        try:
            return await self.counting.ingest.step()
        finally:
            await ended(cutting)
            await self.counting.ingest._letters.written()

    async def cut(self) -> None:
        """Take the cuts that are due."""
        await self.counting.cutter.take_due(await self.source.owned())

    async def run(self) -> None:
        """Run reader and cutter until cancelled."""
        await self.counting.run()

    async def _keep_cutting(self) -> None:
        while True:
            await asyncio.sleep(0.002)
            with suppress(OSError):
                await self.cut()


class OneUserKey(KeyFiles):
    """Keys of noise in files; the key of users' hashes is zeros, so that runs choose alike."""

    def user_key(self, stream: str, mark: bytes = b"") -> bytes:
        """Return the key."""
        return bytes(32)


class OneSource:
    """A file, a store and a witness. Each call of ``ingest`` or ``closer`` starts a worker over them."""

    fields: Sequence[str] = (USER,)  # that the events have beside their time

    def __init__(self, directory: Path, *strategies: Strategy) -> None:
        self.path = directory / "events.ndjson"
        self.path.touch()
        self.directory = directory
        self.strategies = strategies
        self.clock = HandClock()
        self.store = MemoryStore(self.clock)
        self.witness = MemoryWitness()
        self.letters = DeadLetterList()
        self.keys: NoiseKeys = OneUserKey(directory / "noise_keys")
        self.sources: list[FileSource] = []

    def close(self) -> None:
        """Close each opened file."""
        for source in self.sources:
            with suppress(StopIteration):  # a file is closed without waiting
                source.close().send(None)

    def append_events_of(self, events: Iterable[tuple[float, dict[str, Any]]]) -> None:
        """Append events: (time in bins, other fields)."""
        with self.path.open("ab") as file:
            file.writelines(event_line(int(bin * BIN_US), **more) for bin, more in events)

    def append(self, *bins: float) -> None:
        """Append one event per time, given in bins."""
        self.append_events_of((bin, {}) for bin in bins)

    def append_of(self, *events: tuple[float, str | None]) -> None:
        """Append events of users: (time in bins, user)."""
        self.append_events_of((bin, {"user": user}) for bin, user in events)

    def source(self) -> FileSource:
        """Open the file."""
        self.sources.append(ReadAtOnce(self.path, "ndjson", AT, self.directory / "notes", self.fields))
        return self.sources[-1]

    async def count_until(self, bin: float, noise: NoiseSource | None = None) -> None:
        """Count all events and close the bins before ``bin``, with new loops."""
        closer = self.closer(noise=noise)
        await closer.reconcile()
        ingest = self.ingest()
        self.clock.set_bin(bin)
        while await ingest.step():
            pass
        await closer.close_due()
        await closer.publisher.publish()

    def ports(self, source: FileSource, store: Any = None, clock: Any = None, **others: Any) -> Ports:
        """Return the ports of one worker; its clock is the store's."""
        store = store or self.store
        clock = clock or LiveClock(store)
        world: dict[str, Any] = {
            "wall": clock,
            "witnesses": defaultdict(lambda: self.witness),
            "noise": defaultdict(SystemNoise),
            "keys": self.keys,
            "dead_letters": self.letters,
        }
        return Ports(store=store, source=source, clock=clock, **(world | others))

    def ingest(self, store: Any = None, start: Start = "earliest", clock: Any = None) -> ByHand:
        """Start a reader and its cutter."""
        source, names = self.source(), [strategy.stream for strategy in self.strategies]
        ports = self.ports(source, store, clock)
        return ByHand(source, Counting.over(ports, names, start=start))

    def closer(
        self,
        strategy: Strategy | None = None,
        accept: str | None = None,
        ledger: Mapping[str, Any] | None = None,
        store: Any = None,
        witness: Any = None,
        noise: Any = None,
        sharing: Mapping[str, Any] | None = None,
        **world: Any,
    ) -> Closer:
        """Start a closer.

        Args: sharing, more fields of the ``Stream``; world, other ports.
        """
        store = store or self.store
        if witness is not None:
            world["witnesses"] = defaultdict(lambda: witness)
        if noise is not None:
            world["noise"] = defaultdict(lambda: noise)
        stream = Stream(
            strategy=strategy or self.strategies[0],
            ledger=SourceLedger(store, accept, **(ledger or {})),
            **(sharing or {}),
        )
        return Closer(self.ports(self.source(), store, **world), stream)

    async def state(self, stream: str = STREAM) -> StreamState:
        """Return the state of a stream, which the store has."""
        state = await self.store.load(stream)
        assert state is not None
        return state

    async def cells(self, last_bin: int, stream: str = STREAM) -> dict[int, int]:
        """Return the exact counts that the store holds, released or not, of bins that are not empty."""
        rows = {bin: count for bin, count in (await self.released(stream)).items() if bin <= last_bin}
        kept = self.store.streams[stream].cells
        return dict(Counter(rows) + Counter({bin: cells.get(0, 0) for bin, cells in kept.items()}))

    async def released(self, stream: str = STREAM) -> dict[int, int]:
        """Return the count of every released bin, read from its leaf. There is no noise."""
        counts = {}
        for _, row in await self.store.rows(stream, 0, 10**6):
            message = json.loads(row)
            counts[message["bin"]] = message["nodes"][0][2][0]
        return counts

    async def epochs(self, stream: str = STREAM) -> list[tuple[int, int, int]]:
        """Return (epoch, first bin, first seq) of all epochs in the store."""
        return [(e.epoch, e.first_bin, e.first_seq) for e in self.store.streams[stream].epochs]

    async def reserved(self) -> list[tuple[str, int, int]]:
        """Return (stream, epoch, first bin) of every ledger entry."""
        return [(e.stream, e.epoch, e.start_us // BIN_US) for e in await self.store.ledger(SOURCE)]
