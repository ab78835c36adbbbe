"""The world: one log, its workers and what they keep, in virtual time; see the package's docstring."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from dphist.noise import NoiseSource, SystemNoise
from stream_app.core.incoming import Refusal
from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import LedgerEntry, StreamState
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock
from stream_app.loops.ingest import Start
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import NoiseKeys
from stream_app.source_ledger import SourceLedger
from stream_app.wiring.pipeline import Pipeline
from tests.models.memory import MemoryStore
from tests.simulator.loop import SimulatedLoop
from tests.simulator.memory_sinks import MemoryKeys, MemoryWitness
from tests.stream_app.declared import BIN_US, FIRST_BIN
from tests.world.faults import Death
from tests.world.log import LogReader, MemoryLog
from tests.world.secrets import Secrets
from tests.world.surfaces import Surfaces

SHOW_EVERY_US = BIN_US // 10  # public instants
CLOSED = 0.35  # bins after a bin's end by which a calm worker has made the bin visible

T = TypeVar("T")


class LetterList:
    """The dead letters in the order of writing. ``streams`` holds the stream that refused each."""

    def __init__(self) -> None:
        self.all: dict[tuple[Refusal, str | None], None] = {}

    async def write(
        self, refusals: Sequence[Refusal], streams: tuple[str | None, ...] = (None,)
    ) -> Sequence[int]:
        """Keep new letters. A repeated letter is kept once."""
        numbers = list[int]()
        for stream in streams:
            before = len(self.all)
            self.all |= dict.fromkeys((refusal, stream) for refusal in refusals)
            numbers.append(len(self.all) - before)
        return numbers

    @property
    def kept(self) -> list[Refusal]:
        """The letters."""
        return [refusal for refusal, _ in self.all]

    @property
    def streams(self) -> list[str | None]:
        """The stream that refused each letter's record; None: its log did."""
        return [stream for _, stream in self.all]

    def reasons(self) -> list[str]:
        """Return the letters' reasons."""
        return [str(refusal.reason) for refusal in self.kept]


class Worker:
    """A worker process. Args: task, its loops; pipeline, of these loops; death, that may end it."""

    def __init__(self, pipeline: Pipeline, task: asyncio.Task[None], death: Death | None) -> None:
        self.pipeline, self.task, self.death = pipeline, task, death

    def kill(self) -> None:
        """End all loops at their next await."""
        self.task.cancel()

    @property
    def failure(self) -> BaseException | None:
        """Return the error with which the worker ended; None: it runs, was killed, or ended well."""
        if self.death is not None and self.death.has_come:
            return None
        return None if not self.task.done() or self.task.cancelled() else self.task.exception()


class World(Surfaces):
    """Streams over one log.

    Args:
        streams: strategies; the first one is meant where a stream is not named.
        noise: one source for all streams; None: the system's.
        partitions: of the log.
        start: where streams without positions begin to read.
        following: another world, whose store, log, witness, keys and clock this one begins with.
        options: of every ``Stream``, for example ``keep_us``; ``ledger`` are options of its ``SourceLedger``.
    """

    def __init__(
        self,
        *streams: Strategy,
        noise: NoiseSource | None = None,
        partitions: Sequence[str] = ("0",),
        keys: NoiseKeys | None = None,
        start: Start = "earliest",
        seed: int = 1,
        ledger: Mapping[str, Any] | None = None,
        following: World | None = None,
        **options: Any,
    ) -> None:
        self.loop: SimulatedLoop = SimulatedLoop(seed)
        self.strategies = list(streams)
        self.clock_ahead_us = 0
        self.start_us = FIRST_BIN * BIN_US
        self.store = MemoryStore(self.now_us)
        self.log = MemoryLog(partitions)
        self.witness = MemoryWitness()
        self.letters = LetterList()
        self.keys: NoiseKeys = keys or MemoryKeys()
        self.noise = noise or SystemNoise()
        self.first_read = start
        self.ledger_options = {"accept": ACCEPTED, **(ledger or {})}
        self.options = options
        self.workers: list[Worker] = []
        if following is not None:
            self.start_us = following.now_us()
            self.store.restore(following.store)
            self.log.records = copy.deepcopy(following.log.records)
            self.witness.kept = copy.deepcopy(following.witness.kept)
            self.keys = copy.deepcopy(following.keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers. A worker that failed and that no test looked at raises its error now."""
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.run(_ended(left))
        self.loop.close()

    def now_us(self) -> int:
        """Return the time in microseconds since 1970."""
        return self.start_us + self.loop.now_us + self.clock_ahead_us

    @property
    def now(self) -> float:
        """The time in bins since 1970."""
        return self.now_us() / BIN_US

    # -- events -------------------------------------------------------------------------------------

    def arrive(self, *bins: float, partition: str = "0", **fields: Any) -> None:
        """Let an event arrive now for each of the given event times, in bins. Args: fields, of each event."""
        self.write(*({"at": int(bin * BIN_US), **fields} for bin in bins), partition=partition)

    def write(self, *records: Mapping[str, Any] | bytes, partition: str = "0") -> None:
        """Append records to the log now: events, or bytes as they are."""
        lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in records]
        self.log.write(partition, lines)

    # -- time and workers ---------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the world, beside its workers."""
        return self.loop.run_until_complete(coroutine)

    def until(self, bin: float) -> None:
        """Let time pass until a bin begins, or until a part of it is over.

        Raises: what a worker raised that is not killed. It is then forgotten.
        """
        self.run(asyncio.sleep(max(0.0, (bin * BIN_US - self.now_us()) / 1e6)))
        for worker in list(self.workers):
            if worker.task.done():
                self.workers.remove(worker)
            if worker.failure is not None:
                raise worker.failure

    def start(self, *, death: Death | None = None, **changed: Any) -> Worker:
        """Start a worker.

        Args: death, ends it; changed, other ports, options, or ``strategies``; ``ledger`` may be a function
            of the stream's name.
        """
        strategies = changed.pop("strategies", self.strategies)
        options = {**self.options, **{n: changed.pop(n) for n in list(changed) if n in _OF_STREAM}}
        ledger = changed.pop("ledger", {})
        first = changed.pop("start", self.first_read)
        ports = self.ports(death, **changed)
        opened = [
            Stream(
                strategy=one,
                ledger=SourceLedger(ports.store, **self.options_of_ledger(ledger, one.stream)),
                **{"publish_every_us": SHOW_EVERY_US, **options},
            )
            for one in strategies
        ]
        pipeline = Pipeline.over(ports, opened, start=first)
        worker = Worker(pipeline, self.loop.create_task(_work(pipeline)), death)
        if death is not None:
            death.kill = worker.kill
        self.workers.append(worker)
        return worker

    def options_of_ledger(self, own: Any, stream: str) -> dict[str, Any]:
        return {**self.ledger_options, **(own(stream) if callable(own) else own)}

    def ports(self, death: Death | None = None, **changed: Any) -> Ports:
        """Return the ports of a new worker. Args: as ``start``."""
        mortal = (lambda port: port) if death is None else death.of
        store, clock = mortal(changed.pop("store", self.store)), changed.pop("clock", None)
        source = changed.pop("source", None) or self.reader(changed.pop("owned", None))
        clock, witness = clock or LiveClock(store), changed.pop("witness", self.witness)
        noise = changed.pop("noise", self.noise)
        ports: dict[str, Any] = {
            "wall": clock,
            "witnesses": defaultdict(lambda: witness),
            "noise": defaultdict(lambda: noise),
            "keys": mortal(changed.pop("keys", self.keys)),
            "dead_letters": changed.pop("letters", self.letters),
        }
        return Ports(store=store, source=mortal(source), clock=clock, **(ports | changed))

    def reader(self, owned: set[str] | None = None) -> LogReader:
        """Return a new worker's reader of the log. Args: owned, its partitions; None: all."""
        return LogReader(self.log, self.strategies, owned)

    def end(self, worker: Worker | None = None) -> None:
        """Kill a worker, or all, and wait until their tasks have ended."""
        ending = [one for one in self.workers if worker in (None, one)]
        self.workers = [one for one in self.workers if one not in ending]
        for one in ending:
            one.kill()
        self.run(_ended([one.task for one in ending]))
        for one in ending:
            if one.failure is not None:
                raise one.failure

    def run_until(self, bin: float, **changed: Any) -> Worker:
        """Start a worker, let it make every bin before ``bin`` visible, and kill it. Args: as ``start``."""
        worker = self.start(**changed)
        self.until(bin + CLOSED)
        if worker in self.workers:
            self.end(worker)
        return worker

    def play(self, events: Mapping[float, Sequence[Mapping[str, Any]]], until: float, step: int = 2) -> None:
        """Let events arrive at their instants, and run workers, a new one after every ``step`` bins.

        Args: events, by the instant in bins at which they arrive; those of one instant are in order.
        """
        arrivals = sorted(events.items())
        end = self.now
        while end < until:
            end = min(end + step, until)
            self.start()
            while arrivals and arrivals[0][0] < end:
                instant, arriving = arrivals.pop(0)
                self.until(instant)
                self.write(*arriving)
            self.until(end)
            if end < until:
                self.end()
        self.until(until + CLOSED)
        self.end()

    # -- the operator -------------------------------------------------------------------------------

    def backup(self) -> MemoryStore:
        """Return a copy of the store."""
        return self.store.copy()

    def restore(self, backup: MemoryStore | None = None) -> None:
        """Set the store back to a copy; None: to an empty store."""
        self.store.restore(backup or MemoryStore(self.now_us))

    def strategy(self, stream: str) -> Strategy:
        """Return the strategy of a stream."""
        return next(one for one in self.strategies if one.stream == stream)

    # -- what only the service knows ----------------------------------------------------------------

    def state(self, stream: str | None = None) -> StreamState:
        """Return the state of a stream. SECRET in the service."""
        found = self.run(self.store.load(stream or self.strategies[0].stream))
        assert found is not None
        return found

    def secrets(self, stream: str | None = None) -> Secrets:
        """Return what the store keeps secret of a stream."""
        return Secrets(self.store, stream or self.strategies[0].stream)

    def operator_counts(self, stream: str | None = None) -> Mapping[str, int]:
        """Return the operator's counters of a stream."""
        return self.run(self.store.operator_counts(stream or self.strategies[0].stream))

    def ledger(self) -> tuple[LedgerEntry, ...]:
        """Return the ledger of the log."""
        return self.run(self.store.ledger(self.strategies[0].source))

    def reserved(self) -> list[tuple[str, int, int]]:
        """Return (stream, epoch, first bin) of every ledger entry."""
        return [(one.stream, one.epoch, one.start_us // BIN_US) for one in self.ledger()]

    def epochs(self, stream: str | None = None) -> list[tuple[int, int, int]]:
        """Return (epoch, first bin, first row) of all epochs that readers know."""
        return [(one.epoch, one.first_bin, one.first_seq) for one in self.public(stream).epochs]

    def stored(self, stream: str | None = None) -> list[tuple[int, bytes]]:
        """Return the rows in the store, whether readers see them or not."""
        return self.run(self.store.rows(stream or self.strategies[0].stream, 0, 10**6))

    def witnessed(self, stream: str | None = None) -> list[dict[str, Any]]:
        """Return the rows that the witness has."""
        rows = self.run(self.witness.rows(stream or self.strategies[0].stream, 0))
        return [json.loads(row.row) for row in rows]

    def letters_by_reason(self) -> Counter[str]:
        """Return how many dead letters have each reason."""
        return Counter(self.letters.reasons())


_OF_STREAM = {"lease", "witness_is_public", "keep_us", "until_us", "publish_every_us", "measuring"}


async def _work(pipeline: Pipeline) -> None:
    await pipeline.agree()
    await pipeline.run()


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
