"""The only file that wires: settings become stores, sources, clocks and loops.

What is private and what is public is decided here: the worker gets the whole store and the system's noise,
the API a reader of public keys.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from dphist import SystemNoise
from stream_app.alert_delivery import deliver
from stream_app.alert_watch import AlertWatcher
from stream_app.clocks import LiveClock, ReplayClock
from stream_app.closer import Closer
from stream_app.config import Settings, StreamSettings
from stream_app.core.bins import Binning
from stream_app.core.closing import Closing
from stream_app.core.declaration import Declaration
from stream_app.durable import write_durably
from stream_app.ingest import Ingest
from stream_app.monitoring.listener import serving
from stream_app.monitoring.metrics import Metrics
from stream_app.monitoring.observed import watch_dead_letters, watch_source, watch_store
from stream_app.plans import planned
from stream_app.ports import AlertTarget, Clock, NoiseKeys, OperatorError, PublicReader, Source
from stream_app.sinks.dead_letter_file import DeadLetterFile
from stream_app.sinks.witness_file import WitnessFile
from stream_app.sources.decode import TimeField
from stream_app.sources.file import FileSource
from stream_app.sources.replay import ReplaySource
from stream_app.state.alert_store import RedisAlertStore
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import check_safety
from stream_app.vault.key_files import KeyFiles
from stream_app.vault.shared_key import SharedKey

PREDECESSOR_S = 20.0
REDIS_LOOK_EVERY_S = 0.2
REPLAY_STRIDE_BINS = 256  # at full speed: bins that are cut, sealed and released in one step

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One source from end to end: the loop that counts its events and the loops that release its streams."""

    ingest: Ingest
    closers: Sequence[Closer]

    async def run(self) -> None:
        """Run until cancelled; a replay returns when its last bin is visible."""
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(self.ingest.run())
            async with asyncio.TaskGroup() as releasing:
                for closer in self.closers:
                    releasing.create_task(closer.run())
            counting.cancel()


@dataclass(frozen=True, slots=True)
class Ends:
    """What all pipelines of a worker share; ``resources`` are closed when it ends."""

    settings: Settings
    store: RedisStore
    witness: WitnessFile
    noise_keys: NoiseKeys
    metrics: Metrics
    resources: AsyncExitStack


@asynccontextmanager
async def redis_server(settings: Settings) -> AsyncIterator[Settings]:
    """Yield settings whose Redis can be reached: an embedded one runs for as long as this is open.

    Raises: OperatorError where it cannot be started or used, or may lose what it acknowledges.
    """
    if settings.redis.embedded is None:
        if settings.redis.url is not None:
            await check_safety(settings.redis.url, settings.redis.accept)
        yield settings
        return
    with EmbeddedRedis(settings.redis.embedded) as server:
        await check_safety(server.worker_url, settings.redis.accept)
        reached = replace(
            settings.redis,
            url=server.worker_url,
            api_url=server.api_url,
            alerts_url=server.alerts_url,
            embedded=None,
        )
        watching = asyncio.create_task(_keep_running(server))
        try:
            yield replace(settings, redis=reached)
        finally:
            watching.cancel()


async def _keep_running(server: EmbeddedRedis) -> None:
    """Start the server again if it dies: everything that it acknowledged is in its file."""
    while True:
        await asyncio.sleep(REDIS_LOOK_EVERY_S)
        if not server.running:
            log.warning("the embedded Redis ended; starting it again")
            try:
                server.restart()
            except OperatorError as refusal:
                log.error("%s", refusal)


@asynccontextmanager
async def open_reader(settings: Settings) -> AsyncIterator[PublicReader]:
    """Yield a reader of what is visible. Raises: OperatorError for an embedded Redis of another command."""
    if settings.redis.api_url is None:
        raise OperatorError(
            "redis.url: an embedded server belongs to one command; use stream-app run, or a server of its own"
        )
    reader = RedisReader(settings.redis.api_url)
    try:
        yield reader
    finally:
        await reader.close()


async def run_api(settings: Settings) -> None:
    """Serve released values until cancelled or told to stop by a signal.

    Raises: OperatorError where the address cannot be had.
    """
    # Here and not above: a worker starts a second sooner without the web's packages.
    from stream_app.api.app import listen, serve_on

    host, port = settings.api.host, settings.api.port
    try:
        listener = listen(host, port)
    except OSError as failure:
        raise OperatorError(
            f"api.port: {host}:{port} cannot be served ({os.strerror(failure.errno or 0)}); free it"
        ) from None
    with listener:
        await serve_on(listener, lambda: open_reader(settings))


async def run_alerts(settings: Settings) -> None:
    """Watch the rules and tell their transitions until cancelled, from released values only.

    Raises: OperatorError where the store cannot be named.
    """
    # Here and not above: a worker needs no client for HTTP.
    import httpx

    from stream_app.sinks.alert_targets import AlertmanagerTarget, LogTarget, WebhookTarget

    if settings.redis.alerts_url is None:
        raise OperatorError("redis.alerts_url: it is missing; name the store that keeps the alerts' states")
    store = RedisAlertStore(settings.redis.alerts_url)
    async with AsyncExitStack() as resources:
        resources.push_async_callback(store.close)
        reader = await resources.enter_async_context(open_reader(settings))
        client = await resources.enter_async_context(httpx.AsyncClient())
        alerts = settings.alerts
        targets: list[AlertTarget] = [
            LogTarget(),
            *(WebhookTarget(url, client) for url in alerts.webhooks),
            *(AlertmanagerTarget(url, client) for url in alerts.alertmanagers),
        ]
        for target in targets:
            await store.told(target.name)  # a new target is told what is decided from now on
        async with asyncio.TaskGroup() as group:
            group.create_task(deliver(store, targets))
            group.create_task(AlertWatcher(alerts.rules, reader, store).run())


async def run_worker(settings: Settings) -> None:
    """Count and release until cancelled, or until every stream is a replay that has ended.

    Raises: OperatorError, one line, where it cannot start or go on.
    """
    async with AsyncExitStack() as resources:
        await resources.enter_async_context(_only_worker(settings.state_dir))
        connected = await resources.enter_async_context(redis_server(settings))
        url = connected.redis.url
        if url is None:
            raise OperatorError("redis.url: it is missing; name the store that the worker writes to")
        metrics = Metrics()
        if settings.operator is not None:
            resources.enter_context(serving(metrics, settings.operator.host, settings.operator.port))
        store = watch_store(RedisStore(url), metrics, _live_closings(settings))
        resources.push_async_callback(store.close)
        witness = WitnessFile(settings.state_dir / "witness")
        resources.callback(witness.close)
        ends = Ends(settings, store, witness, _noise_keys(settings), metrics, resources)
        pipelines = [await _pipeline(streams, ends) for streams in _by_source(settings)]
        await _run_all(pipelines)


def _noise_keys(settings: Settings) -> NoiseKeys:
    """Return where keys of stored noise are: in the state directory, or a secret shared by many workers."""
    if settings.noise_key_file is not None:
        return SharedKey.read(settings.noise_key_file)
    return KeyFiles(settings.state_dir / "noise_keys")


@asynccontextmanager
async def _only_worker(state_dir: Path) -> AsyncIterator[None]:
    """Hold the state directory, waiting for a worker whose parent was killed to see that and end.

    Raises: OperatorError where another worker keeps it.
    """
    with _lock_file(state_dir) as lock:
        deadline_s = time.monotonic() + PREDECESSOR_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    text = f"state.dir: {state_dir} is in use by another worker; stop it or choose another"
                    raise OperatorError(text) from None
            await asyncio.sleep(0.05)
        yield


def _lock_file(state_dir: Path) -> IO[bytes]:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return (state_dir / "worker.lock").open("wb")


async def _run_all(pipelines: Sequence[Pipeline]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for pipeline in pipelines:
                group.create_task(pipeline.run())
    except* OperatorError as refusals:
        raise _first(refusals) from None


def _first(group: BaseExceptionGroup[OperatorError]) -> OperatorError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _by_source(settings: Settings) -> list[list[StreamSettings]]:
    """Return the streams in groups that read one file: it is decoded once for all of them."""
    groups: dict[Path, list[StreamSettings]] = defaultdict(list)
    for stream in settings.streams:
        groups[stream.source.file.resolve()].append(stream)
    return list(groups.values())


async def _pipeline(streams: Sequence[StreamSettings], ends: Ends) -> Pipeline:
    """Open the streams of one source and join their loops."""
    settings, store = ends.settings, ends.store
    wall = LiveClock(store)
    clock = _clock(streams, wall)
    for stream in streams:
        _check_reading(stream, settings.state_dir)
    source = await asyncio.to_thread(_source, streams[0], settings.state_dir, clock)
    ends.resources.push_async_callback(source.close)
    letters = DeadLetterFile(settings.state_dir / "dead_letters" / f"{streams[0].name}.ndjson")
    ends.resources.callback(letters.close)
    identity = streams[0].source.identity
    source = watch_source(source, identity, ends.metrics)
    dead_letters = watch_dead_letters(letters, identity, ends.metrics)
    strategies = [planned(stream) for stream in streams]
    closers = [
        Closer(
            store,
            source,
            clock,
            wall,
            ends.witness,
            SystemNoise(),
            ends.noise_keys,
            strategy,
            publish_every_us=settings.publish_every_us,
            accept=stream.privacy.accept,
        )
        for stream, strategy in zip(streams, strategies, strict=True)
    ]
    states = [await closer.open() for closer in closers]
    if isinstance(clock, ReplayClock):
        closings = [Declaration.of(strategy).closing for strategy in strategies]
        pairs = zip(closings, states, strict=True)
        clock.start_at(min(closing.instant_us(state.released_bin) for closing, state in pairs))
    names = [stream.name for stream in streams]
    return Pipeline(Ingest(source, store, clock, dead_letters, names, streams[0].source.start), closers)


def _live_closings(settings: Settings) -> dict[str, Closing]:
    """Return when the bins of the live streams close: a replay's are in the past and cannot be overdue."""
    live = [stream for stream in settings.streams if stream.source.replay is None]
    return {
        stream.name: Closing(Binning(stream.time.bin_us, stream.time.timezone), stream.time.grace_us)
        for stream in live
    }


def _source(stream: StreamSettings, state_dir: Path, clock: Clock) -> Source:
    """Open the log that a stream reads, with a directory of its own for what it must remember."""
    settings, field = stream.source, TimeField(stream.time.field, stream.time.format)
    directory = state_dir / "sources" / _reading(stream, state_dir)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if isinstance(clock, ReplayClock):
        return ReplaySource.open(settings.file, settings.format, field, directory, clock.reached_us)
    return FileSource(settings.file, settings.format, [field], directory)


def _reading(stream: StreamSettings, state_dir: Path) -> str:
    """Name one way of reading one file: positions in a sorted copy mean nothing in another.

    The file is named from the state directory, so that both can be moved together.
    """
    file = stream.source.file.resolve()
    seen_from_state = os.path.relpath(file, state_dir.resolve())
    facts = (seen_from_state, stream.source.format, stream.time.field, stream.time.format)
    return f"{file.stem}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"


def _check_reading(stream: StreamSettings, state_dir: Path) -> None:
    """Refuse another file under a stream that has begun: its events could be counted a second time.

    Raises: OperatorError, one line.
    """
    note = state_dir / "streams" / f"{stream.name}.json"
    reading = json.dumps({"reading": _reading(stream, state_dir)}).encode()
    if not note.exists():
        write_durably(note, [reading])
    elif note.read_bytes() != reading:
        raise OperatorError(
            f"streams.{stream.name}.source.file: {stream.source.file} is not the file that the stream began "
            "with, or it is read in another way; put that back, or give the new stream another name"
        )


def _clock(streams: Sequence[StreamSettings], wall: Clock) -> Clock:
    replay = streams[0].source.replay
    if replay is None:
        return wall
    return ReplayClock(
        replay.from_us,
        replay.to_us + max(stream.time.grace_us for stream in streams),
        replay.speed,
        REPLAY_STRIDE_BINS * max(stream.time.bin_us for stream in streams),
    )
