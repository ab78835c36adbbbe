"""One log of a worker: it is opened, counted, and stopped at a fault while other logs go on."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dphist import SystemNoise
from dphist.noise import NoiseSource
from stream_app.config import Settings, SourceSettings, StreamSettings, TopicSettings
from stream_app.config.plans import planned
from stream_app.config.source import ledgers_of
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock, ReplayClock
from stream_app.loops.lease import Lease
from stream_app.loops.stream import Ports, Stream
from stream_app.monitoring.metrics import Metrics
from stream_app.monitoring.observed import watch_dead_letters, watch_source
from stream_app.ports import Clock, ClockDoubt, OperatorError, Source, Witness
from stream_app.ports.errors import StreamError, WorkerError, about
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping
from stream_app.source_ledger import SourceLedger
from stream_app.sources.read_ahead import read_ahead
from stream_app.state.redis_store import RedisStore
from stream_app.together import until_one_ends
from stream_app.wiring.deleting import delete_counted, destroy_visitor_keys, first_unreleased
from stream_app.wiring.event_logs import (
    check_file,
    check_one_source,
    decodes_for,
    named_by,
    open_source,
    visitor_keys,
)
from stream_app.wiring.halted import START_AGAIN, Halted
from stream_app.wiring.known_logs import ledger_of
from stream_app.wiring.pipeline import Pipeline
from stream_app.wiring.starting import CheckedStart
from stream_app.wiring.storage import close_client, in_both

if TYPE_CHECKING:
    from stream_app.sinks.dead_letter_topic import DeadLetterTopic

RETRY_S, LONGEST_RETRY_S = 5.0, 300.0  # before a file is looked at again whose fault has stopped its streams
REPLAY_STRIDE_BINS = 256  # at full speed: bins that are cut, sealed and released in one step

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Adapters:
    """The adapters that all pipelines of a worker share; ``resources`` are closed when the worker ends.

    Args:
        start: the streams that run now; it changes when a segment joins.
        names: the names of all streams, also of those that have ended.
        running: the names of the streams that run.
        live: the names of the streams whose bins can be overdue.
    """

    start: CheckedStart
    directory: Path  # of this worker only
    # For one loop, so that the loop notices a changed server process; the stack closes it.
    new_store: Callable[[AsyncExitStack], RedisStore]
    store: RedisStore
    metrics: Metrics
    resources: AsyncExitStack
    letters: DeadLetterTopic | None = None
    worker: str = field(default_factory=lambda: secrets.token_hex(8))
    names: set[str] = field(default_factory=set)
    witnesses: dict[str, Witness] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    live: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.run_start(self.start)

    def run_start(self, start: CheckedStart) -> None:
        """Run the streams that a start has checked. The running loops see them, too."""
        self.start = start
        self.names |= start.settings.names
        self.witnesses |= start.witnesses
        for stream in start.settings.streams:
            if stream.name not in self.running:
                of_engine = stream.declared.source.origins > 0
                self.metrics.know(stream.name, stream.declared.time.bin_us / 1e6, of_engine=of_engine)
                self.running.append(stream.name)
            if stream.declared.source.replay is None:
                self.live.add(stream.name)


class CountedLog:
    """One log. Args: streams, all that are configured over it; measuring, the streams of each source."""

    def __init__(
        self,
        streams: Sequence[StreamSettings],
        adapters: Adapters,
        halted: Halted,
        measuring: Callable[[], Mapping[str, Sequence[Stream]]],
    ) -> None:
        self.named: dict[str, Strategy] = {}  # the strategies that name the log, once it was open
        self._streams, self._adapters, self._halted = list(streams), adapters, halted
        self._measuring = measuring
        self._counted = [stream for stream in streams if stream.name not in halted.lines]
        self._is_file = isinstance(streams[0].source, SourceSettings)
        self._waiting: Sequence[StreamSettings] = ()  # until the cause of the log's fault is corrected
        self._resources = AsyncExitStack()
        self._ports: Ports | None = None
        self._source: Source | None = None
        self._opened_for: Sequence[StreamSettings] = ()
        self._noise: dict[str, NoiseSource] = {}
        self._pipeline: Pipeline | None = None
        self._was_read = asyncio.Event()
        self._pause_s = RETRY_S
        adapters.resources.push_async_callback(self._close)

    async def open_log(self, others: Sequence[Strategy]) -> None:
        """Open the log. Args: others, the strategies of open logs. Raises: OperatorError; OSError."""
        await self._without_faulty(partial(self._open_log, others))

    async def open_streams(self, opened: Callable[[str], None]) -> None:
        """Open the streams. Args: opened, called for each. Raises: OperatorError; OSError."""
        await self._without_faulty(partial(self._open_streams, opened))

    async def run(self) -> None:
        """Count; if a fault of a file stops it, try again now and then. Raises: as ``CountedLogs.run``."""
        while not await self._without_faulty(self._count):
            if not self._waiting:
                return
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, LONGEST_RETRY_S)
            self._counted = list(self._waiting)
        self._halted.ended([stream.name for stream in self._counted])

    def is_over_this_log(self, stream: StreamSettings) -> bool:
        """Return whether a segment is of a stream over this log that no fault has stopped."""
        others = (*self._counted, *self._waiting)
        return stream.base in {one.base for one in others}

    def can_read(self, streams: Sequence[StreamSettings]) -> bool:
        """Return whether the open log decodes the fields that its streams need, for all lines they count."""
        own = [*filter(self.is_over_this_log, streams)]
        return self._source is None or decodes_for(self._opened_for, own)

    async def join(self, streams: Sequence[StreamSettings]) -> None:
        """Count further streams; while a fault has closed the log, they wait with the others."""
        self._streams += streams
        for stream in streams:
            if stream.base in {one.base for one in self._counted}:
                self._counted.append(stream)
            else:
                self._waiting = [*self._waiting, stream]
        await self._join_pipeline()

    def end_at(self, ends: Mapping[str, int | None]) -> None:
        """Set where the closers of streams end. Args: ends, by stream; None: the stream has no end."""
        for closer in () if self._pipeline is None else self._pipeline.closers:
            if (until_us := ends.get(closer.name)) is not None:
                closer.end_at(until_us)

    async def _join_pipeline(self) -> None:
        """Let each stream join the running loops that is not in them."""
        pipeline = self._pipeline
        for stream in [one for one in self._counted if pipeline and one.name not in pipeline.by_name]:
            settings, source = self._adapters.start.settings, self._source
            try:
                if isinstance(stream.source, SourceSettings):
                    await asyncio.to_thread(check_file, stream, settings.state_dir)
                self._check_user_key(stream)
            except OperatorError as fault:
                self._counted.remove(stream)
                await self._halted.add([stream], fault, START_AGAIN)
                continue
            if pipeline is None or source is None or pipeline is not self._pipeline:
                return  # a fault has closed the log meanwhile: it is opened with the stream
            self.named[stream.name] = named_by(source, planned(stream), settings.state_dir)
            self._noise[stream.name] = SystemNoise()
            self._adapters.metrics.dead_letters.labels(label_of([stream], settings), stream.name)
            pipeline.join(self._stream(stream, self._measuring()))

    def _check_user_key(self, stream: StreamSettings) -> None:
        """Check that a file has the key of a stream's users. Raises: StreamError."""
        if stream.declared.capped is not None:
            with about(stream.name):
                self._adapters.start.keys.user_key(stream.name)

    async def _without_faulty(self, step: Callable[[], Awaitable[None]]) -> bool:
        """Do a step, and again without each stream that a fault stops; return False if none is left.

        Raises: OperatorError if no stream of any log is left, or if the fault is the worker's.
        """
        while self._counted:
            try:
                await step()
            except WorkerError:
                raise
            except OperatorError as fault:
                await self._stop(fault)
            else:
                return True
        return False

    async def _stop(self, fault: OperatorError) -> None:
        """Stop the streams that a fault is about; those that are left have to be opened again."""
        await self._close()
        name = fault.stream if isinstance(fault, StreamError) else None
        if name not in [stream.name for stream in self._counted]:
            name = None  # the log has the fault, or a halted stream of unknown cost: all stop
        faulty = [stream for stream in self._counted if name in (None, stream.name)]
        self._counted = [stream for stream in self._counted if stream not in faulty]
        self._waiting = [stream for stream in self._waiting if stream not in faulty]
        then = START_AGAIN
        if name is None and self._is_file:
            self._waiting, then = faulty, "once the cause is corrected, they go on by themselves"
        await self._halted.add(faulty, fault, then)

    async def _close(self) -> None:
        self._ports = self._pipeline = self._source = None
        await self._resources.aclose()

    async def _open_log(self, others: Sequence[Strategy] = ()) -> None:
        start, settings = self._adapters.start, self._adapters.start.settings
        streams, metrics = self._counted, self._adapters.metrics
        new_store = partial(self._adapters.new_store, self._resources)
        wall = LiveClock(new_store(), settings.redis.largest_clock_skew_us, on_skew=metrics.clock_skew)
        clock = _clock(streams, wall)
        # Join the group only with a right clock: a member that leaves holds up the others.
        await wall.now_us()
        coming = [one for one in start.plan.checked.streams if self.is_over_this_log(one)]
        self._source = source = await open_source(streams, settings, clock, coming)
        self._opened_for = [*streams, *coming]
        log = source if clock.virtual else read_ahead(source)  # a replay's clock decides what it may read
        self._resources.push_async_callback(close_client, log.close)
        for stream in streams:
            self.named[stream.name] = named_by(source, planned(stream), settings.state_dir)
        check_one_source([*others, *self.named.values()])
        kept = settings.dead_letters
        letters = DeadLetterFiles(
            self._adapters.directory / "dead_letters" / self._streams[0].base,
            Keeping(kept.keep_us / 1e6, kept.most_bytes, kept.content),
        )
        self._resources.callback(letters.close)
        kept_in = in_both(letters, self._adapters.letters, streams[0].declared.source.name)
        label, names = label_of(streams, settings), [stream.name for stream in streams]
        self._was_read = asyncio.Event()
        self._noise = dict.fromkeys(self._adapters.witnesses, SystemNoise())
        self._ports = Ports(
            store=new_store(),
            source=watch_source(log, label, metrics, self._was_read.set),
            clock=clock,
            wall=wall,
            witnesses=self._adapters.witnesses,
            dead_letters=watch_dead_letters(kept_in, label, names, metrics),
            noise=self._noise,
            keys=start.keys,
            new_store=new_store,
        )

    async def _open_streams(self, opened: Callable[[str], None] = lambda stream: None) -> None:
        """Open the streams of the log and join their loops."""
        if self._ports is None:  # a fault has closed it
            await self._open_log()
        assert self._ports is not None
        for stream in self._counted:
            self._check_user_key(stream)
        together = self._measuring()
        pipeline = Pipeline.over(
            self._ports,
            [self._stream(stream, together) for stream in self._counted],
            start=self._counted[0].source.start,
        )
        self._resources.push_async_callback(close_client, pipeline.leave)
        await pipeline.agree(opened)
        clock = self._ports.clock
        if isinstance(clock, ReplayClock):
            states = [await closer.reconcile() for closer in pipeline.closers]
            closings = [self.named[stream.name].declared.time.closing for stream in self._counted]
            ends = zip(closings, states, strict=True)
            clock.start_at(min(closing.instant_us(state.released_bin) for closing, state in ends))
        self._pipeline = pipeline
        await self._join_pipeline()  # those that joined meanwhile

    async def _count(self) -> None:
        """Run the loops of the log; open them first where they are not."""
        while self._pipeline is None:
            try:
                await self._open_streams()
            except (ConnectionError, TimeoutError, ClockDoubt) as failure:  # other logs go on
                log.warning("%s; trying again", failure)
                await self._close()
                await asyncio.sleep(RETRY_S)
        settings, store, source = self._adapters.start.settings, self._adapters.store, self._counted[0].source
        skew_us, witnesses = settings.redis.largest_clock_skew_us, self._adapters.witnesses
        closes = self._adapters.metrics.closes.labels(label_of(self._counted, settings)).set
        loops = [self._pipeline.run(closes), self._resume(self._pipeline)]
        if isinstance(source, SourceSettings) and source.keep_us is not None:
            loops.append(delete_counted(self._streams, witnesses, skew_us, store.load))
        if self._streams[0].declared.source.is_of_web_server:
            keys = visitor_keys(self._streams[0], settings.state_dir)
            needed = partial(first_unreleased, self._streams, witnesses, store.load)
            loops.append(destroy_visitor_keys(keys, needed))
        await until_one_ends(*loops)

    async def _resume(self, pipeline: Pipeline) -> None:
        """Once the log was read, note that its streams are counted; then wait for ever."""
        await self._was_read.wait()
        marked = [closer.name for closer in pipeline.closers if closer.was_halted]
        await self._halted.resume(self._counted, marked)
        self._pause_s, self._waiting = RETRY_S, ()
        await asyncio.Event().wait()

    def _stream(self, stream: StreamSettings, together: Mapping[str, Sequence[Stream]]) -> Stream:
        """Return a stream as configured; other workers may close a stream over a topic, so it has a lease."""
        adapters, strategy, lease = self._adapters, self.named[stream.name], None
        settings = adapters.start.settings
        if isinstance(stream.source, TopicSettings):
            assert self._ports is not None
            lease = Lease(self._ports.store, stream.name, adapters.worker)
        return Stream(
            strategy=strategy,
            publish_every_us=settings.publish_every_us,
            ledger=ledger_over(stream, adapters),
            lease=lease,
            witness_is_public=settings.output_of(stream.name) is not None,
            measuring=together[strategy.source],
            begins=stream.name in adapters.start.plan.begun,
            until_us=stream.until_us,
            keep_us=stream.keep_us,
            on_end=partial(adapters.metrics.epoch_ended, stream.name),
        )


def label_of(streams: Sequence[StreamSettings], settings: Settings) -> str:
    """Return the name of a log in metrics: its source, or its own name if its source is a group of logs."""
    return ledgers_of(streams[0], settings.file.parent)[-1]


def ledger_over(stream: StreamSettings, adapters: Adapters) -> SourceLedger:
    start = adapters.start
    return ledger_of(stream, start.settings, adapters.store, start.outside, adapters.names)


def _clock(streams: Sequence[StreamSettings], wall: Clock) -> Clock:
    replay, source = streams[0].declared.source.replay, streams[0].source
    if replay is None or isinstance(source, TopicSettings):
        return wall
    return ReplayClock(
        replay.from_us,
        replay.to_us + max(stream.declared.time.grace_us for stream in streams),
        source.speed,
        REPLAY_STRIDE_BINS * max(stream.declared.time.bin_us for stream in streams),
    )
