"""The wiring of the worker, which gets the whole store, secrets included, and the system's noise."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dphist import SystemNoise
from stream_app.config import Settings, SourceSettings, StreamSettings, TopicSettings
from stream_app.config.access import check_operator
from stream_app.config.plans import planned
from stream_app.config.source import by_log, by_source, ledgers_of
from stream_app.core.generations import base_of
from stream_app.core.strategy import Strategy
from stream_app.loops.clocks import LiveClock, ReplayClock
from stream_app.loops.lease import Lease
from stream_app.loops.stream import Ports, Stream
from stream_app.monitoring.metrics import Metrics
from stream_app.monitoring.observed import watch_dead_letters, watch_source, watch_store
from stream_app.monitoring.redis_memory import follow_memory
from stream_app.monitoring.stored_counts import follow
from stream_app.monitoring.waiting import CLOCK, KAFKA, OWN_START, REDIS
from stream_app.ports import Clock, ClockDoubt, NothingCountedError, OperatorError
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping, expiring_letters
from stream_app.source_ledger import SourceLedger
from stream_app.state.memory import servers_memory
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import Unreachable
from stream_app.stored_format import ENTRIES, FIRST
from stream_app.together import Loop, each_to_its_end, until_all_end, until_one_ends
from stream_app.wiring.event_logs import check_files, check_told_apart, named_by, open_source
from stream_app.wiring.garbage import exempt_live_objects, freed_memory_returned
from stream_app.wiring.known_logs import ledger_of
from stream_app.wiring.letters import in_both, letters_topic
from stream_app.wiring.operator_endpoint import client_certificates, operator_endpoint
from stream_app.wiring.pipeline import Pipeline
from stream_app.wiring.preparing import Preparing
from stream_app.wiring.receiving import delete_counted
from stream_app.wiring.redis_server import redis_server
from stream_app.wiring.starting import CheckedStart, checked_start
from stream_app.wiring.storage import close_client, own_directory, store_of

if TYPE_CHECKING:
    from stream_app.sinks.dead_letter_topic import DeadLetterTopic

START_AGAIN_S = 1.0
GARBAGE = 20_000, 20, 20  # new objects before a search for garbage, which looks at all objects of all streams
REPLAY_STRIDE_BINS = 256  # at full speed: bins that are cut, sealed and released in one step

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters that all pipelines of a worker share; ``resources`` are closed when the worker ends."""

    start: CheckedStart
    directory: Path  # of this worker only
    new_store: Callable[[], RedisStore]  # for one loop, so that the loop notices a changed server process
    store: RedisStore
    metrics: Metrics
    resources: AsyncExitStack
    letters: DeadLetterTopic | None = None
    worker: str = field(default_factory=lambda: secrets.token_hex(8))


async def run_worker(settings: Settings, on_ready: Callable[[], None] = lambda: None) -> None:
    """Count and release until cancelled, or until every stream is a replay that has ended.

    A start waits for servers that are unreachable or have a wrong clock, as the loops do later.
    Args: on_ready, called when everything is open and counting begins.
    Raises: OperatorError, one line, if the worker cannot start or continue.
    """
    check_files(settings.streams)
    check_operator(settings.operator)
    gc.set_threshold(*GARBAGE)
    metrics = Metrics()
    async with AsyncExitStack() as resources:
        directory = await resources.enter_async_context(own_directory(settings))
        # Before anything answers: a worker that waits is alive, and says for what it waits.
        disks = {"state.dir": settings.state_dir}
        if settings.redis.embedded is not None:
            disks["redis.url"] = settings.redis.embedded
        shown = client_certificates(settings)
        endpoint = operator_endpoint("operator.port", metrics, settings.operator, disks, shown)
        await resources.enter_async_context(endpoint)
        await resources.enter_async_context(freed_memory_returned())
        elsewhere = set[str]()
        while True:
            try:
                if not await _start_and_run(settings, directory, metrics, on_ready, elsewhere):
                    return
                continue  # a generation of a stream begins
            except ClockDoubt as failure:
                metrics.waiting.now = CLOCK
                log.warning("%s; trying again", failure)
            except (ConnectionError, TimeoutError, Unreachable) as failure:
                log.warning("%s; trying again", failure)
            await asyncio.sleep(START_AGAIN_S)


async def _start_and_run(
    configured: Settings,
    directory: Path,
    metrics: Metrics,
    on_ready: Callable[[], None],
    elsewhere: set[str],
) -> bool:
    """Count and release; return whether to start again, because a generation of a stream is to begin.

    Args: elsewhere, gets the streams that another worker has taken to a generation.
    """
    async with AsyncExitStack() as resources:
        keep_s = configured.dead_letters.keep_us / 1e6
        await resources.enter_async_context(expiring_letters(configured.state_dir, keep_s))
        metrics.waiting.now = REDIS
        connected = await resources.enter_async_context(redis_server(configured))
        live = set[str]()
        new_store = _stores(connected, metrics, live, resources)
        store = new_store()
        await store.need_format(FIRST)

        # Ends are stored by this clock, and cannot be taken back: a wrong one stops the start here.
        wall = LiveClock(store, configured.redis.largest_clock_skew_us, on_skew=metrics.clock_skew)
        start = await checked_start(configured, store, wall, metrics, elsewhere, resources)
        if start is None:
            await asyncio.sleep(START_AGAIN_S)
            return True
        running = start.settings
        metrics.start_again()
        # A replay's bins are in the past and never overdue.
        live |= {one.name for one in running.streams if one.declared.source.replay is None}
        if any(one.declared.privacy.per_user is not None for one in running.streams):
            await store.need_format(ENTRIES)
        anew = await _not_begun(start, store)
        metrics.waiting.now = OWN_START if configured.kafka is None else KAFKA
        letters = await resources.enter_async_context(letters_topic(configured, metrics.letters_unsent.inc))
        adapters = Adapters(start, directory, new_store, store, metrics, resources, letters)
        work = await _opened_work(adapters)
        metrics.waiting.now = None
        exempt_live_objects()  # what is open now stays, until another start
        on_ready()
        again = False

        async def generation_begins() -> None:
            nonlocal again
            await until_one_ends(start.turned.until_next(running, wall), begins_elsewhere())
            again = True

        async def begins_elsewhere() -> None:
            elsewhere.update(await start.turned.until_begun_elsewhere(running, store))

        await until_one_ends(work, generation_begins())
        if not again:
            _check_counted(running, metrics, anew)
        return again


def _stores(
    settings: Settings, metrics: Metrics, live: Collection[str], resources: AsyncExitStack
) -> Callable[[], RedisStore]:
    """Return a function that connects to the store once more. Args: live, streams whose bins can be overdue.

    Raises: OperatorError if the configuration names no store.
    """
    url = settings.redis.url
    if url is None:
        raise OperatorError("redis.url: it is missing; name the store that the worker writes to")

    def new_store() -> RedisStore:
        store = watch_store(store_of(settings, url), metrics, live)
        resources.push_async_callback(close_client, store.close)
        return store

    return new_store


async def _opened_work(adapters: Adapters) -> Loop:
    """Open all logs and streams; return what is to run until all streams have ended."""
    settings, metrics, witnesses = adapters.start.settings, adapters.metrics, adapters.start.witnesses
    logs = [await _opened(streams, adapters) for streams in by_log(settings.streams)]
    check_told_apart([strategy for log in logs for strategy in log.strategies])
    metrics.waiting.now = OWN_START
    measuring = _by_source(logs, adapters)
    preparing = Preparing(stream.name for stream in settings.streams)
    metrics.waiting.detail = preparing
    async with preparing.said():
        pipelines = [await _pipeline(log, measuring, adapters, preparing.opened) for log in logs]
    deleting = [
        delete_counted(streams, witnesses, settings.redis.largest_clock_skew_us, adapters.store.load)
        for streams in by_log(settings.streams)
        if isinstance(streams[0].source, SourceSettings) and streams[0].source.keep_us is not None
    ]
    closing = [
        pipeline.run(metrics.closes.labels(_label(log.streams, settings)).set)
        for log, pipeline in zip(logs, pipelines, strict=True)
    ]
    work = until_all_end(*closing, *deleting)
    if settings.operator is None:
        return work
    asked, names = adapters.new_store(), [stream.name for stream in settings.streams]
    memory = follow_memory(partial(servers_memory, asked.connection), metrics)
    return until_one_ends(work, follow(asked, names, metrics.stored), memory)


async def _not_begun(start: CheckedStart, store: RedisStore) -> set[str]:
    """Return the streams that no earlier process has begun, so that this one may read all of their logs."""

    async def has_begun(stream: str) -> bool:
        return await store.load(stream) is not None or await start.witnesses[stream].head(stream) is not None

    names = [stream.name for stream in start.settings.streams]
    begun = await each_to_its_end(*map(has_begun, names))
    return {name for name, has in zip(names, begun, strict=True) if not has}


def _check_counted(settings: Settings, metrics: Metrics, anew: Container[str]) -> None:
    """Say which replays have counted nothing. Raises: NothingCountedError if that is true of all.

    Args: anew, the streams that this process began.
    """
    share, names = metrics.refused_share, [stream.name for stream in settings.streams]
    lines = [share.nothing_counted(name, anew=name in anew) for name in names]
    if lines and all(lines):
        raise NothingCountedError("; ".join(filter(None, lines)))
    for line in filter(None, lines):
        log.warning("%s", line)


@dataclass(frozen=True, slots=True)
class _OpenLog:
    """A log that can be read, and the streams over it, each with the strategy that names the log."""

    ports: Ports
    streams: Sequence[StreamSettings]
    strategies: Sequence[Strategy]


def _label(streams: Sequence[StreamSettings], settings: Settings) -> str:
    """Return the name of a log in metrics: its source, or its own name if its source is a group of logs."""
    return ledgers_of(streams[0], settings.file.parent)[-1]


async def _opened(streams: Sequence[StreamSettings], adapters: Adapters) -> _OpenLog:
    """Open the log that all of these streams read."""
    start, settings, store = adapters.start, adapters.start.settings, adapters.store
    wall = LiveClock(store, settings.redis.largest_clock_skew_us, on_skew=adapters.metrics.clock_skew)
    clock = _clock(streams, wall)
    await wall.now_us()  # join the group only with a right clock: a member that leaves holds up the others
    log = await open_source(streams, settings, clock)
    adapters.resources.push_async_callback(close_client, log.close)
    kept = settings.dead_letters
    letters = DeadLetterFiles(
        adapters.directory / "dead_letters" / base_of(streams[0].name),
        Keeping(kept.keep_us / 1e6, kept.most_bytes, kept.content),
    )
    adapters.resources.callback(letters.close)
    kept_in = in_both(letters, adapters.letters, streams[0].declared.source.name)
    label = _label(streams, settings)
    ports = Ports(
        store=store,
        source=watch_source(log, label, adapters.metrics),
        clock=clock,
        wall=wall,
        witnesses=start.witnesses,
        dead_letters=watch_dead_letters(
            kept_in, label, [stream.name for stream in streams], adapters.metrics
        ),
        noise=dict.fromkeys(start.witnesses, SystemNoise()),
        keys=start.keys,
        new_store=adapters.new_store,
    )
    strategies = [named_by(log, planned(stream), settings.state_dir) for stream in streams]
    return _OpenLog(ports, streams, strategies)


def _by_source(logs: Sequence[_OpenLog], adapters: Adapters) -> dict[str, list[Stream]]:
    """Return the streams of each source, by its name: those whose ledger is one."""
    pairs = [pair for log in logs for pair in zip(log.streams, log.strategies, strict=True)]
    opened = {one.name: Stream(strategy=strategy, ledger=_ledger(one, adapters)) for one, strategy in pairs}
    groups = by_source([stream for stream, _ in pairs])
    return {source: [opened[one.name] for one in together] for source, together in groups.items()}


async def _pipeline(
    log: _OpenLog,
    measuring: Mapping[str, Sequence[Stream]],
    adapters: Adapters,
    opened: Callable[[str], None],
) -> Pipeline:
    """Open the streams of one log and join their loops.

    Args: measuring, the streams of each source; opened, called for each stream that is open.
    """
    clock, pairs = log.ports.clock, list(zip(log.streams, log.strategies, strict=True))
    for stream in log.streams:
        if stream.declared.privacy.per_user is not None:
            adapters.start.keys.user_key(stream.name)  # a file without a key ends the start
    pipeline = Pipeline.over(
        log.ports,
        [_stream(stream, strategy, measuring[strategy.source], adapters) for stream, strategy in pairs],
        start=log.streams[0].source.start,
    )
    adapters.resources.push_async_callback(close_client, pipeline.leave)
    for stream in log.streams:
        adapters.metrics.know(stream.name, stream.declared.time.bin_us / 1e6)
    await pipeline.agree(opened)
    if isinstance(clock, ReplayClock):
        states = [await closer.reconcile() for closer in pipeline.closers]
        closings = [strategy.declared.time.closing for strategy in log.strategies]
        ends = zip(closings, states, strict=True)
        clock.start_at(min(closing.instant_us(state.released_bin) for closing, state in ends))
    return pipeline


def _stream(
    stream: StreamSettings, strategy: Strategy, measuring: Sequence[Stream], adapters: Adapters
) -> Stream:
    """Return a stream as configured; other workers may close a stream over a topic, so it has a lease."""
    settings, lease = adapters.start.settings, None
    if isinstance(stream.source, TopicSettings):
        lease = Lease(adapters.store, stream.name, adapters.worker)
    return Stream(
        strategy=strategy,
        publish_every_us=settings.publish_every_us,
        ledger=_ledger(stream, adapters),
        lease=lease,
        witness_is_public=settings.output_of(stream.name) is not None,
        measuring=measuring,
        until_us=stream.until_us,
        keep_us=stream.keep_us,
        on_end=partial(adapters.metrics.epoch_ended, stream.name),
    )


def _ledger(stream: StreamSettings, adapters: Adapters) -> SourceLedger:
    return ledger_of(stream, adapters.start.settings, adapters.store, adapters.start.outside)


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
