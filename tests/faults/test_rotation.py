"""The key of stored noise is rotated while workers release; the rotation dies at every call.

Whatever dies: no epoch ends, no noise is drawn again for an epoch that has begun, and after the rotation the
old key opens no stored page.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from dphist.tree.decoder import decode_noise
from stream_app.core.kinds import pages as noise_pages
from stream_app.core.records import Cut, Reply
from stream_app.loops.closer import Closer
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import NoiseKeys, OperatorError
from stream_app.sinks.witness_file import WitnessFile
from stream_app.state.connection import connect, execute
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.key_notes import StoredPages
from stream_app.state.keys import StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.vault import key_ring
from stream_app.vault.cipher import decrypt_page, derived_chain_key, later_chain_key
from stream_app.vault.key_files import KeyFiles
from stream_app.vault.key_ring import KeyRing, SharedKey
from stream_app.wiring import rotating
from tests.faults.roll_over import DESIGN, HandClock, OnePartition, RecordedNoise, strategy
from tests.models.memory import time_of
from tests.simulator.memory_sinks import MemoryDeadLetters
from tests.stream_app.declared import BIN_US, FIRST_BIN

pytestmark = [pytest.mark.redis]

BINS, EPOCH = 5, 4  # two pages in an epoch
OLD = bytes(range(32))


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    memory = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory,
        EmbeddedRedis(Path(directory) / "redis") as server,
    ):
        yield server


@pytest.fixture(autouse=True)
def two_bins_in_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_pages, "BINS_PER_PAGE", 2)


class Stopping:
    """A part of a rotation that dies before the n-th call, counted over all parts."""

    def __init__(self, inner: Any, left: list[int]) -> None:
        self._inner, self._left = inner, left

    def __getattr__(self, name: str) -> Any:
        if not iscoroutinefunction(getattr(self._inner, name)):
            return getattr(self._inner, name)

        async def call(*arguments: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] == 0:
                raise asyncio.CancelledError
            return await getattr(self._inner, name)(*arguments)

        return call


class Service:
    """Two workers of one stream that read one key file, or copies of it."""

    def __init__(self, server: EmbeddedRedis, directory: Path, stream: str, store: RedisStore) -> None:
        self.server, self.directory, self.name, self.store = server, directory, stream, store
        self.file, self.clock = directory / "noise.key", HandClock()
        directory.mkdir(exist_ok=True)
        self.strategy, self.witness = strategy(stream), WitnessFile(directory / "witness")
        write_key(self.file, OLD)
        self.bin = FIRST_BIN
        self.clock.time_us = FIRST_BIN * BIN_US

    @property
    def held(self) -> KeyFiles:
        """The keys of a worker without a key file."""
        return KeyFiles(self.directory / "noise_keys")

    async def worker(self, file: Path | None = None, keys: NoiseKeys | None = None) -> Closer:
        """Start a worker. Args: file, its copy of the key file; keys, others than those of a file."""
        ports = Ports(
            store=self.store,
            source=OnePartition(),  # type: ignore[arg-type]
            clock=self.clock,
            wall=self.clock,
            witnesses={self.name: self.witness},
            dead_letters=MemoryDeadLetters(),
            noise={self.name: RecordedNoise(self.directory / "draws")},
            keys=keys or SharedKey.read(file or self.file),
        )
        closer = Closer(ports, Stream(strategy=self.strategy))
        await closer.reconcile()
        if self.bin == FIRST_BIN:
            cuts = [Cut(FIRST_BIN + BINS - 1, 0)]
            await self.store.take_cuts(self.name, self.strategy.hash, "0", FIRST_BIN - 1, cuts)
        return closer

    async def release(self, worker: Closer) -> None:
        """Release the next bin."""
        self.bin += 1
        self.clock.time_us = self.bin * BIN_US
        await worker.close_due()
        await worker.publisher.publish()

    async def finish(self, left: list[int] | None = None) -> None:
        """Finish the rotation. Args: left, how many calls before it dies; None: it lives."""
        pages = StoredPages(self.store)
        if left is None:
            await rotating.finish_in(self.store, pages, self.file, [self.name], partial(time_of, self.store))
            return
        deadly: Any = [Stopping(inner, left) for inner in (self.store, pages)]
        now_us = partial(time_of, deadly[0])
        await rotating.finish_in(deadly[0], deadly[1], self.file, [self.name], now_us)

    async def opened_by(self, key: bytes) -> int:
        """Return how many stored pages a key opens, of whatever epoch."""
        redis = connect(self.server.operator_url)
        stored = await execute(redis, "HGETALL", StreamKeys(self.name).noise)
        await redis.aclose()
        opened = 0
        for field, data in stored.items():
            nonce, _, page = field.decode().rpartition(":")
            for epoch in range(4) if nonce else ():
                chain = later_chain_key(derived_chain_key(key, self.name, epoch, nonce), int(page))
                try:
                    decrypt_page(chain, self.name, epoch, nonce, int(page), data)
                except ValueError:
                    continue
                opened += 1
        return opened

    async def check_rotated(self) -> None:
        """Check that the new key alone is left, and the old one opens nothing."""
        key, *others = KeyRing.read(self.file).keys
        assert key != OLD
        assert not others
        assert base64.b64encode(OLD) not in self.file.read_bytes()
        assert await self.opened_by(OLD) == 0
        state = await self.store.load(self.name)
        assert state is not None
        pages = await StoredPages(self.store).pages(self.name, state.noise)
        assert await self.opened_by(key) >= len(pages)

    async def check_released(self, epochs: Sequence[int] = (0,) * EPOCH + (1,) * (BINS - EPOCH)) -> None:
        """Check that each bin is released once, and each epoch has one drawing of its own.

        Args: epochs, of each bin; without them, no epoch ended early.
        """
        rows = [json.loads(row.row) for row in await self.witness.rows(self.name, 0)]
        assert [(row["bin"], row["epoch"]) for row in rows] == list(
            zip(range(FIRST_BIN, FIRST_BIN + BINS), epochs, strict=True)
        )
        lines = (self.directory / "draws").read_text().splitlines()
        drawn = [np.array(json.loads(line), np.int64) for line in lines]
        drawings = [
            decode_noise(DESIGN, pair)[:, 0].tolist() for pair in zip(drawn[::2], drawn[1::2], strict=False)
        ]
        used = [
            {n for n, errors in enumerate(drawings) if all(errors[i] == v for i, v in enumerate(values))}
            for values in ([row["published"][0] for row in rows if row["epoch"] == e] for e in (0, 1))
        ]
        assert [len(one) for one in used] == [1, 1]
        assert used[0] != used[1]


def write_key(file: Path, *keys: bytes) -> None:
    file.touch(0o600)
    file.write_bytes(b"".join(base64.b64encode(key) + b"\n" for key in keys))


@asynccontextmanager
async def service(server: EmbeddedRedis, directory: Path, stream: str = "visits") -> AsyncIterator[Service]:
    """Yield a service over the server, which is emptied unless it is another stream's."""
    if stream == "visits":
        redis = connect(server.operator_url)
        await execute(redis, "FLUSHALL")
        await redis.aclose()
    store = RedisStore(server.worker_url, 0, rewrites=False)
    one = Service(server, directory, stream, store)
    try:
        yield one
    finally:
        one.witness.close()
        await store.close()


@pytest.fixture
async def one(server: EmbeddedRedis, tmp_path: Path) -> AsyncIterator[Service]:
    async with service(server, tmp_path) as one:
        yield one


async def rotate(one: Service, finish: Callable[[Service], Awaitable[None]]) -> None:
    """Release all bins with two workers, while the key is rotated between bins."""
    first = await one.worker()
    await one.release(first)
    late = one.directory / "late.key"
    write_key(late, OLD)
    key_ring.begin(one.file)
    second = await one.worker()
    await one.release(second)
    # The noise of the next epoch, drawn under the old key, waits for its epoch.
    assert await first._ahead.stored(one.strategy, 1) is not None
    await finish(one)
    await one.check_rotated()
    # A worker whose copy of the file is late ends with one line. It ends no epoch, and stores nothing.
    with pytest.raises(OperatorError, match=r"encrypted with a key that .*late\.key does not hold"):
        await one.release(await one.worker(late))
    one.bin -= 1
    await one.check_rotated()
    for worker in (second, first, await one.worker()):
        await one.release(worker)
    await one.check_rotated()
    await one.check_released()


def test_a_rotation_that_dies_before_any_call_is_finished_by_the_next(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    async def dies(stop: int) -> bool:
        left = [stop]

        async def finish(one: Service) -> None:
            try:
                await one.finish(left)
            except asyncio.CancelledError:
                if len(KeyRing.read(one.file).keys) == 1:  # the old key stays until nothing needs it
                    await one.check_rotated()
                await (await one.worker()).reconcile()
                await one.finish()

        async with service(server, tmp_path / str(stop)) as one:
            await rotate(one, finish)
        return left[0] <= 0

    stop = 1
    while asyncio.run(dies(stop)):
        stop += 1
    assert stop > 10


def test_a_move_of_keys_that_dies_before_any_call_is_finished_by_the_next(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    """A worker had no key file. Its keys move into one, and no epoch ends."""

    async def dies(stop: int) -> bool:
        left = [stop]
        async with service(server, tmp_path / str(stop)) as one:
            one.file.unlink()
            worker = await one.worker(keys=one.held)
            for _ in range(2):
                await one.release(worker)
            assert await worker._ahead.stored(one.strategy, 1) is not None
            users = one.held.user_key(one.name)
            parts: Any = [Stopping(inner, left) for inner in (one.store, StoredPages(one.store), one.held)]
            try:
                await rotating.move_in(parts[0], parts[1], one.file, [one.name], parts[2])
            except asyncio.CancelledError:
                alive = one.store, StoredPages(one.store)
                await rotating.move_in(*alive, one.file, [one.name], one.held)
            assert not one.held.holds_keys
            assert KeyRing.read(one.file).users == (users,)
            await one.check_rotated()
            while one.bin < FIRST_BIN + BINS:
                await one.release(await one.worker())
            await one.check_rotated()
            await one.check_released()
        return left[0] <= 0

    stop = 1
    while asyncio.run(dies(stop)):
        stop += 1
    assert stop > 10


class KeyNotNoted(StoredPages):
    """The store does not note the new key, so a late worker stores pages under the old one."""

    async def note_key(self, stream: str, mark: bytes) -> None:
        """Note nothing."""


class PagesLeftAsTheyAre(StoredPages):
    """No page is encrypted again."""

    async def pages(self, stream: str, nonce: str) -> list[int]:
        """Find no page."""
        return []


class NextNoiseKept(RedisStore):
    """The noise of an epoch that has not opened stays under the old key."""

    async def discard_noise(self, stream: str, kept: Any, nonce: str = "", spent: int = 0) -> None:
        """Keep it."""


class ReplacesBlindly(StoredPages):
    """A page is said to be replaced, and is not."""

    async def replace(self, stream: str, nonce: str, page: int, before: bytes, after: bytes) -> Reply:
        """Do nothing."""
        return Reply.DONE


def key_left_in_the_file(file: Path, wanted: KeyRing) -> int:
    """Leave the old key in the file."""
    return 1


def key_taken_out_of_the_file_first(one: Service) -> None:
    """Take the old key out before the pages are encrypted again."""
    ring = KeyRing.read(one.file)
    key_ring.keep(one.file, KeyRing(ring.keys[:1], ring.users))


async def waits_for_no_key(keys: SharedKey, stream: str, stored: bytes) -> bytes:
    """Go on with this worker's keys, whichever the store notes."""
    return stored or keys._ring.marks[0]


@pytest.mark.parametrize("left_out", ["note", "encrypt", "replace", "discard", "drop", "drop first", "late"])
def test_each_step_that_is_left_out_is_noticed(
    server: EmbeddedRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    stores = {"discard": NextNoiseKept}
    parts = {"note": KeyNotNoted, "encrypt": PagesLeftAsTheyAre, "replace": ReplacesBlindly}
    if left_out == "drop":
        monkeypatch.setattr(key_ring, "keep", key_left_in_the_file)
    if left_out == "late":
        monkeypatch.setattr(SharedKey, "mark", waits_for_no_key)

    async def finish(one: Service) -> None:
        if left_out == "drop first":
            key_taken_out_of_the_file_first(one)
        store = stores.get(left_out, RedisStore)(server.worker_url, 0, rewrites=False)
        try:
            pages = parts.get(left_out, StoredPages)(store)
            await rotating.finish_in(store, pages, one.file, [one.name], partial(time_of, store))
        finally:
            await store.close()

    async def run() -> None:
        async with service(server, tmp_path) as one:
            await rotate(one, finish)

    with pytest.raises((AssertionError, OperatorError, pytest.fail.Exception)):
        asyncio.run(run())


async def test_a_page_that_is_replaced_while_it_is_read_is_read_again(one: Service) -> None:
    """A worker reads a page under the old key; before it has the keys, the whole rotation happens."""
    worker = await one.worker()
    await one.release(worker)
    keys: Any = worker._ahead._keys
    chains = keys.chains

    async def later(*place: Any) -> Any:
        keys.chains = chains
        key_ring.begin(one.file)
        await one.finish()
        return await chains(*place)

    keys.chains = later
    worker._ahead._page = None
    for _ in range(BINS - 1):
        await one.release(worker)
    await one.check_rotated()
    await one.check_released()


async def test_noise_that_is_being_drawn_during_a_rotation_is_drawn_again(
    one: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first page is stored under the old key, then the whole rotation happens; its epoch never opened."""
    worker = await one.worker()
    await one.release(worker)
    write, left = one.store.write_noise, [1]

    async def later(*page: Any) -> bool:
        if left[0] == 0:
            left[0] = -1
            key_ring.begin(one.file)
            await one.finish()
        left[0] -= 1
        return await write(*page)

    monkeypatch.setattr(one.store, "write_noise", later)
    assert await worker._ahead.stored(one.strategy, 1) is not None
    await one.check_rotated()
    for _ in range(BINS - 1):
        await one.release(worker)
    await one.check_rotated()
    await one.check_released()
    assert len((one.directory / "draws").read_text().splitlines()) == 6  # two levels, three drawings


@pytest.mark.parametrize("what", ["the key file is lost", "Redis is restored from before a rotation"])
async def test_noise_under_a_lost_key_is_given_up_and_its_epoch_ends(one: Service, what: str) -> None:
    """Nothing goes on until the operator says so. Then the epoch ends, and no noise is used twice."""
    await one.release(await one.worker())
    redis = connect(one.server.operator_url)
    copy = {key: await execute(redis, "DUMP", key) for key in await execute(redis, "KEYS", "*")}
    if what == "the key file is lost":
        write_key(one.file, bytes(32))
    else:
        key_ring.begin(one.file)
        await one.finish()
        await one.release(await one.worker())
        await execute(redis, "FLUSHALL")
        for key, value in copy.items():
            await execute(redis, "RESTORE", key, 0, value)
    await redis.aclose()
    released = one.bin
    with pytest.raises(OperatorError, match=r"if this key is lost, run stream-app rotate-key lost$"):
        await one.release(await one.worker())
    one.bin = released
    with pytest.raises(OperatorError, match=r"run stream-app rotate-key lost; nothing was changed$"):
        await one.finish()
    pages = StoredPages(one.store)
    assert await rotating.give_up_in(one.store, pages, one.file, [one.name]) == [one.name]
    assert await rotating.give_up_in(one.store, pages, one.file, [one.name]) == []
    worker = await one.worker()
    while one.bin < FIRST_BIN + BINS:
        await one.release(worker)
    assert await one.opened_by(OLD) == 0
    ends = released - FIRST_BIN
    await one.check_released([0] * ends + [1] * min(EPOCH, BINS - ends) + [2] * (BINS - ends - EPOCH))


async def test_noise_that_no_key_reads_stops_the_rotation(one: Service) -> None:
    """Nothing changes: the file of another service, then a damaged page."""
    await one.release(await one.worker())
    before = await one.opened_by(OLD)
    write_key(one.file, bytes(32))
    with pytest.raises(OperatorError, match=r"^stream visits: .* copy the file of a worker that runs"):
        await one.finish()
    write_key(one.file, OLD)
    key_ring.begin(one.file)
    redis, key = connect(one.server.operator_url), StreamKeys(one.name).noise
    state = await one.store.load(one.name)
    assert state is not None
    await execute(redis, "HSET", key, f"{state.noise}:1", b"damaged")
    await redis.aclose()
    with pytest.raises(OperatorError, match=r"page 1 of its noise can be read with no key"):
        await one.finish()
    assert len(KeyRing.read(one.file).keys) == 2
    assert await one.opened_by(OLD) == before - 1


async def test_noise_of_builds_that_noted_no_key_is_rotated(server: EmbeddedRedis, tmp_path: Path) -> None:
    """Pages as they were stored before streams noted a key; a stream of another service is left alone."""
    async with service(server, tmp_path) as one, service(server, tmp_path / "other", "other") as other:
        write_key(other.file, bytes(32))
        await other.release(await other.worker())
        worker = await one.worker()
        await one.release(worker)
        redis = connect(server.operator_url)
        for name in (one.name, other.name):
            await execute(redis, "HDEL", StreamKeys(name).noise, "key")
        await redis.aclose()
        key_ring.begin(one.file)
        await one.finish()
        await one.check_rotated()
        assert await other.opened_by(bytes(32)) == 2
        for _ in range(BINS - 1):
            await one.release(worker)
        await one.check_released()
