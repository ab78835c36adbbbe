"""Where a worker stores data: its directory, noise keys, the store, witnesses, the outside ledger."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stream_app.config import Settings, TopicSettings
from stream_app.core.user_keys import mark_of_users
from stream_app.durable import locked, secret_directory, state_directory
from stream_app.loops.clocks import LiveClock
from stream_app.loops.recovery import catch_up
from stream_app.ports import (
    ACCEPT_MANAGED,
    ClockDoubt,
    DeadLetters,
    NoiseKeys,
    OperatorError,
    OutsideLedger,
    Store,
    Witness,
)
from stream_app.ports.errors import about
from stream_app.sinks.dead_letter_file import DeadLetterFiles
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.sinks.witness_file import WitnessFile
from stream_app.state.embedded import running_url
from stream_app.state.key_notes import StoredUserKeys
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import check_directory_format, mark_directory
from stream_app.vault.key_files import KeyFiles
from stream_app.vault.key_ring import SharedKey
from stream_app.wiring.known_segments import of_all_segments
from stream_app.wiring.redis_server import redis_server

if TYPE_CHECKING:
    from stream_app.sinks.dead_letter_topic import DeadLetterTopic
    from stream_app.sinks.witness_topic import WitnessTopic

Topics: TypeAlias = "Mapping[tuple[str, str], WitnessTopic]"

PREDECESSOR_S = 20.0
CLOSE_S = 1.0

log = logging.getLogger(__name__)


def store_of(settings: Settings, url: str) -> RedisStore:
    """Return the store at an address, written as the configuration says."""
    redis = settings.redis
    return RedisStore(url, redis.replicas, rewrites=redis.accept != ACCEPT_MANAGED)


@asynccontextmanager
async def writing(settings: Settings) -> AsyncIterator[RedisStore]:
    """Yield the store, as a worker opens it; an embedded one may be running, or is started for the block.

    Raises: OperatorError if it cannot be used, or has a newer format.
    """
    embedded = settings.redis.embedded
    async with AsyncExitStack() as resources:
        url = None if embedded is None else running_url(embedded)
        if url is None:
            url = (await resources.enter_async_context(redis_server(settings))).redis.url
        if url is None:
            raise OperatorError("redis.url: it is missing; name the store")
        store = store_of(settings, url)
        resources.push_async_callback(store.close)
        await store.check_format()
        yield store


async def time_to_store(settings: Settings, store: Store) -> int:
    """Return the store's time for a command that stores it. Raises: OperatorError if it may be wrong."""
    try:
        return await LiveClock(store, settings.redis.largest_clock_skew_us, notes=False).now_us()
    except ClockDoubt as doubt:
        raise OperatorError(f"{doubt}; then run this again") from None


async def stored_counts(settings: Settings) -> dict[str, Mapping[str, int]]:
    """Return the operator's counters of each segment, from the store. SECRET. Raises: OSError."""
    assert settings.redis.url is not None  # only who runs a worker asks
    store = store_of(settings, settings.redis.url)
    try:
        known = (await of_all_segments(settings, store)).streams
        return {stream.name: await store.operator_counts(stream.name) for stream in known}
    finally:
        await close_client(store.close)


@asynccontextmanager
async def own_directory(settings: Settings, patience_s: float = PREDECESSOR_S) -> AsyncIterator[Path]:
    """Yield a directory that no other worker uses, under ``state.dir``.

    Workers whose streams all have an input and an output topic share ``state.dir``, each in its own
    subdirectory. Any other worker uses it alone, and waits until a predecessor has ended.
    Args: patience_s, how long; a command does not wait. Raises: OperatorError if a worker keeps using it.
    """
    sharing = all(
        isinstance(stream.source, TopicSettings) and settings.output_of(stream.name)
        for stream in settings.streams
    )
    state_directory("state.dir", settings.state_dir)
    check_directory_format("state.dir", settings.state_dir)
    deadline_s = time.monotonic() + patience_s
    number = 0
    while True:
        directory = settings.state_dir / f"worker-{number}" if sharing else settings.state_dir
        directory.mkdir(mode=0o700, exist_ok=True)
        with (directory / "worker.lock").open("wb") as lock:
            if locked(lock.fileno()):
                mark_directory("state.dir", settings.state_dir)
                yield directory
                return
        if sharing:
            number += 1
            continue
        if time.monotonic() > deadline_s:
            raise OperatorError(
                f"state.dir: {directory} is in use by a worker; stop it, and run this again (a second worker "
                "needs another state.dir)"
            )
        await asyncio.sleep(0.05)


@contextmanager
def no_worker(state_dir: Path) -> Iterator[None]:
    """Keep workers from starting over a state directory. Raises: OperatorError if one runs."""
    with ExitStack() as held:
        for lock in [*state_dir.glob("worker.lock"), *state_dir.glob("worker-*/worker.lock")]:
            if not locked(held.enter_context(lock.open("rb")).fileno()):
                raise OperatorError(
                    f"state.dir: {lock.parent} is in use by a worker; stop it, and run this again"
                )
        yield


def noise_keys(settings: Settings) -> NoiseKeys:
    """Return the keys of stored noise: files in the state directory, or a secret that many workers share.

    Raises: OperatorError, one line, for a secret that cannot be used.
    """
    if settings.noise_key_file is not None:
        return SharedKey.read(settings.noise_key_file)
    return KeyFiles(settings.state_dir / "noise_keys")


async def holds_users_keys(
    settings: Settings, store: RedisStore, keys: NoiseKeys, stream: str, released_bin: int | None = None
) -> bool:
    """Return whether this machine has the keys of users' hashes that a stream's cap windows need.

    It draws no key: without ``secrets.key_file`` the first start does.
    Args: released_bin, windows up to it are over; None: as the store says. Raises: OSError.
    """
    state, counted = await store.load(stream), await StoredUserKeys(store).counted(stream) or {}
    if state is None or state.has_ended:
        return True
    last = state.released_bin if released_bin is None else released_bin
    wanted = {*(counted[window] for window in counted if window > last), *state.user_keys.since(last).marks}
    drawn = settings.noise_key_file is not None or (settings.state_dir / "noise_keys" / "users.key").exists()
    return all(drawn and _holds(keys, stream, mark) for mark in wanted - {b""})


def _holds(keys: NoiseKeys, stream: str, mark: bytes) -> bool:
    try:
        return mark_of_users(keys.user_key(stream, mark)) == mark
    except OperatorError:
        return False


async def open_topics(settings: Settings, resources: AsyncExitStack) -> Topics:
    """Return the output topics of all streams, by cluster and name. A missing one is created.

    Raises: StreamError for a topic that cannot be used; OSError if the cluster is unreachable.
    """
    names = {stream.name for stream in settings.streams}
    outputs = [output for output in settings.outputs if output.stream in names]
    opened = dict[tuple[str, str], "WitnessTopic"]()
    for output in outputs:
        from stream_app.sinks.witness_topic import WitnessTopic
        from stream_app.wiring.topics import cluster_of

        place = output.cluster, output.topic
        if place not in opened:
            with about(output.stream):
                opened[place] = await WitnessTopic.open(cluster_of(settings, output.cluster), output.topic)
            resources.push_async_callback(close_client, opened[place].close)
    return opened


def witnesses_of(settings: Settings, topics: Topics, resources: AsyncExitStack) -> dict[str, Witness]:
    """Return each stream's witness: a topic, or a file on this machine."""
    file, found = file_witness(settings, resources), dict[str, Witness]()
    for stream in settings.streams:
        output = settings.output_of(stream.name)
        found[stream.name] = file if output is None else topics[output.cluster, output.topic]
    return found


def file_witness(settings: Settings, resources: AsyncExitStack) -> WitnessFile:
    """Return the witness on this machine."""
    in_files = secret_directory(settings.state_dir / "witness")
    mark_directory("state.dir", in_files)
    file = WitnessFile(in_files)
    resources.callback(file.close)
    return file


async def remember_ended(settings: Settings, store: Store, witnesses: Iterable[str]) -> None:
    """Let the witness on this machine know segments that had ended before this worker began.

    Args: witnesses, of the streams that it knows already. Raises: OperatorError; OSError.
    """
    unknown = [name for name in settings.ended - set(witnesses) if settings.output_of(name) is None]
    async with AsyncExitStack() as resources:
        for name in unknown:
            await catch_up(store, file_witness(settings, resources), name)


def outside_ledger(settings: Settings) -> OutsideLedger | None:
    """Return the configured ledger outside the store, or None."""
    if settings.ledger is None:
        return None
    if settings.ledger.file is not None:
        return LedgerFile(settings.ledger.file)
    from stream_app.sinks.ledger_topic import LedgerTopic
    from stream_app.wiring.topics import cluster_of

    assert settings.ledger.topic is not None  # either is written
    return LedgerTopic(cluster_of(settings, settings.ledger.cluster), settings.ledger.topic)


async def new_ledger(settings: Settings) -> str:
    """Create the ledger outside the store; return its name.

    Raises: OperatorError if none is configured, it exists already, or it cannot be created.
    """
    if settings.ledger is None:
        raise OperatorError(
            f"{settings.file}: ledger is missing; write ledger: {{file: ...}} or {{topic: ...}}"
        )
    if settings.ledger.file is not None:
        return LedgerFile.create(settings.ledger.file).name
    from stream_app.sinks.ledger_topic import LedgerTopic
    from stream_app.wiring.topics import cluster_of

    assert settings.ledger.topic is not None  # either is written
    try:
        cluster = cluster_of(settings, settings.ledger.cluster)
        return (await LedgerTopic.create(cluster, settings.ledger.topic)).name
    except OSError as failure:
        raise OperatorError(f"ledger.topic: {failure}") from None


@asynccontextmanager
async def letters_topic(
    settings: Settings, on_unsent: Callable[[int], None]
) -> AsyncIterator[DeadLetterTopic | None]:
    """Yield the open topic of dead letters, whose letters are sent meanwhile; None without a topic.

    Args: on_unsent, takes the number of letters that the topic did not get.
    Raises: OperatorError if the topic cannot be used.
    """
    kept = settings.dead_letters
    if kept.topic is None:
        yield None
        return
    from stream_app.sinks.dead_letter_topic import DeadLetterTopic
    from stream_app.wiring.topics import cluster_of

    cluster = cluster_of(settings, kept.cluster)
    topic = DeadLetterTopic(cluster, kept.topic, kept.keep_us, kept.most_bytes, on_unsent)
    await topic.open()
    sending = asyncio.create_task(topic.run())
    try:
        yield topic
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await close_client(topic.close)


def in_both(files: DeadLetterFiles, topic: DeadLetterTopic | None, source: str) -> DeadLetters:
    """Return a sink for letters: files, and the topic if there is one. Args: source, of the letters."""
    if topic is None:
        return files
    from stream_app.sinks.dead_letter_topic import LettersInBoth

    return LettersInBoth(files, topic, source)


async def close_client(close: Callable[[], Awaitable[None]]) -> None:
    """Close a client; a slow or failing close neither delays the worker's end nor hides why it ends."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await close()
    except Exception as failure:
        log.info("a client did not close: %s", failure)
