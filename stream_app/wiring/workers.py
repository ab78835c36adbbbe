"""The wiring of the worker, which gets the whole store, secrets included, and the system's noise."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from stream_app.config import Settings
from stream_app.config.access import check_operator
from stream_app.loops.clocks import LiveClock
from stream_app.monitoring.metrics import Metrics, follow_memory
from stream_app.monitoring.observed import watch_store
from stream_app.monitoring.registry import CLOCK, KAFKA, OWN_START, REDIS
from stream_app.monitoring.stored_counts import follow
from stream_app.ports import ClockDoubt, NothingCountedError, OperatorError
from stream_app.ports.errors import OvertakenError
from stream_app.sinks.dead_letter_file import expiring_letters
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import Unreachable
from stream_app.state.servers import servers_memory
from stream_app.stored_format import ENTRIES, FIRST
from stream_app.together import Loop, each_to_its_end, until_one_ends
from stream_app.wiring.checks import noise_of_this_machine
from stream_app.wiring.counted_log import Adapters
from stream_app.wiring.counted_logs import CountedLogs, Joining
from stream_app.wiring.event_logs import check_files
from stream_app.wiring.halted import Halted
from stream_app.wiring.process import (
    client_certificates,
    exempt_live_objects,
    freed_memory_returned,
    operator_endpoint,
)
from stream_app.wiring.redis_server import redis_server
from stream_app.wiring.starting import CheckedStart, checked_start
from stream_app.wiring.storage import close_client, letters_topic, own_directory, store_of

START_AGAIN_S = 1.0
SAY_EVERY_S = 5.0  # how far a start is
GARBAGE = 20_000, 20, 20  # new objects before a search for garbage, which looks at all objects of all streams

log = logging.getLogger(__name__)


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
        joining = Joining()
        while True:
            try:
                if not await _start_and_run(settings, directory, metrics, on_ready, joining):
                    return
                continue  # a log is to be opened anew for a segment
            except ClockDoubt as failure:
                metrics.waiting.now = CLOCK
                log.warning("%s; trying again", failure)
            except (ConnectionError, TimeoutError, Unreachable, OvertakenError) as failure:
                log.warning("%s; trying again", failure)
            await asyncio.sleep(START_AGAIN_S)


async def _start_and_run(
    configured: Settings,
    directory: Path,
    metrics: Metrics,
    on_ready: Callable[[], None],
    joining: Joining,
) -> bool:
    """Count and release; return whether to start again, because a segment needs a log reopened."""
    async with AsyncExitStack() as resources:
        keep_s = configured.dead_letters.keep_us / 1e6
        await resources.enter_async_context(expiring_letters(configured.state_dir, keep_s))
        metrics.waiting.now = REDIS
        connected = await resources.enter_async_context(redis_server(configured))
        live = set[str]()  # no replays: their bins are in the past and never overdue
        new_store = _stores(connected, metrics, live)
        store = new_store(resources)
        await store.need_format(FIRST)

        # Ends are stored by this clock, and cannot be taken back: a wrong one stops the start here.
        wall = LiveClock(store, configured.redis.largest_clock_skew_us, on_skew=metrics.clock_skew)
        metrics.start_again()
        halted = Halted([stream.name for stream in configured.streams], store, metrics)
        start = await checked_start(configured, store, wall, metrics, joining.elsewhere, halted, resources)
        if start is None:
            await asyncio.sleep(START_AGAIN_S)
            return True
        running = start.settings
        if any(one.declared.capped is not None for one in running.streams):
            await store.need_format(ENTRIES)
        if said := noise_of_this_machine(running):
            log.warning("secrets.key_file: %s", said)
        anew = await _not_begun(start, store, halted.lines)
        metrics.waiting.now = OWN_START if configured.kafka is None else KAFKA
        letters = await resources.enter_async_context(letters_topic(configured, metrics.letters_unsent.inc))
        adapters = Adapters(start, directory, new_store, store, metrics, resources, letters, live=live)
        logs = CountedLogs(adapters, halted)
        work = await _opened_work(adapters, logs)
        metrics.waiting.now = None
        exempt_live_objects()  # what is open now stays, until another start
        on_ready()

        async def checked(before: CheckedStart) -> CheckedStart | None:
            async with AsyncExitStack() as attempt:  # so that the next one finds no file in use
                found = await checked_start(
                    configured, store, wall, metrics, joining.elsewhere, halted, attempt, before
                )
                if found is not None:
                    resources.push_async_exit(attempt.pop_all())
                return found

        try:
            await until_one_ends(work, joining.run(adapters, logs, wall, checked))
        except asyncio.CancelledError:
            halted.check_none()  # the end was requested: say once more what was not counted
            raise
        if not joining.must_reopen:
            _check_counted(running, metrics, anew)
        return joining.must_reopen


def _stores(
    settings: Settings, metrics: Metrics, live: Collection[str]
) -> Callable[[AsyncExitStack], RedisStore]:
    """Return a function that connects to the store once more. Args: live, streams whose bins can be overdue.

    Raises: OperatorError if the configuration names no store.
    """
    url = settings.redis.url
    if url is None:
        raise OperatorError("redis.url: it is missing; name the store that the worker writes to")

    def new_store(resources: AsyncExitStack) -> RedisStore:
        store = watch_store(store_of(settings, url), metrics, live)
        resources.push_async_callback(close_client, store.close)
        return store

    return new_store


async def _opened_work(adapters: Adapters, logs: CountedLogs) -> Loop:
    """Open all logs and streams; return the loops that run until all streams have ended."""
    settings, metrics = adapters.start.settings, adapters.metrics
    preparing = Preparing(stream.name for stream in settings.streams)

    def all_logs_open() -> None:
        metrics.waiting.now = OWN_START
        metrics.waiting.detail = preparing

    async with preparing.said():
        await logs.open(all_logs_open, preparing.opened)
    if settings.operator is None:
        return logs.run()
    asked = adapters.new_store(adapters.resources)
    memory = follow_memory(partial(servers_memory, asked.connection), metrics)
    return until_one_ends(logs.run(), follow(asked, adapters.running, metrics.stored), memory)


async def _not_begun(start: CheckedStart, store: RedisStore, halted: Container[str]) -> set[str]:
    """Return the streams that no earlier process has begun, so that this one may read all of their logs."""

    async def has_begun(stream: str) -> bool:
        return await store.load(stream) is not None or await start.witnesses[stream].head(stream) is not None

    names = [stream.name for stream in start.settings.streams if stream.name not in halted]
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


class Preparing:
    """The streams that a start has not opened yet. Args: streams, by name, in the order of the file."""

    def __init__(self, streams: Iterable[str]) -> None:
        self._left = dict.fromkeys(streams)
        self._all = len(self._left)

    def opened(self, stream: str) -> None:
        """Note that a stream is open."""
        self._left.pop(stream, None)

    def __str__(self) -> str:
        """Return how far the start is, without names: health is answered to everybody.

        >>> start = Preparing(["a", "b", "c"])
        >>> start.opened("a")
        >>> str(start)
        '1 of 3 streams open'
        """
        return f"{self._all - len(self._left):,} of {self._all:,} streams open"

    @asynccontextmanager
    async def said(self) -> AsyncIterator[None]:
        """Log how far the start is, now and then, during the block."""
        saying = asyncio.create_task(self._keep_saying())
        try:
            yield
        finally:
            saying.cancel()

    async def _keep_saying(self) -> None:
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            for first in list(self._left)[:1]:
                log.warning("start: %s; preparing %s", str(self), first)
