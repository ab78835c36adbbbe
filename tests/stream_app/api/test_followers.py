"""Followers get every visible release once, in order and with its stored bytes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stream_app.api import replica as replica_module
from stream_app.api import replicas as replicas_module
from stream_app.api.replica import StreamReplica
from stream_app.api.replicas import Replicas
from stream_app.api.sse import Place, _Follower, follow, frames, start_of
from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.core.records import EpochRecord, PublicState
from stream_app.core.segments.visible_costs import KnownEpochs
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import Api, released, with_api
from tests.stream_app.published import Published


def events_of(chunks: list[bytes]) -> list[tuple[int, bytes]]:
    """Return (id, data) of each event, parsed as a browser does."""
    events = []
    for block in b"".join(chunks).split(b"\n\n"):
        fields = dict(
            line.split(b": ", 1) for line in block.split(b"\n") if b": " in line and line[0:1] != b":"
        )
        if fields.get(b"event") == b"release":
            events.append((int(fields[b"id"]), fields[b"data"]))
    return events


async def take(stream: AsyncIterator[bytes], events: int) -> list[bytes]:
    """Read chunks until they contain this many events."""
    chunks: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(events_of(chunks)) < events:
            chunks.append(await anext(stream))
    return chunks


async def stored(api: Api, after: int = 0) -> list[tuple[int, bytes]]:
    return await api.store.reader().rows("departures", after, 100_000)


@with_api([5] * 12)
async def test_follower_gets_stored_rows_and_then_new_rows(api: Api) -> None:
    stream = follow(api.replica, 0)
    chunks = await take(stream, 12)
    assert chunks[0].startswith(b"retry: 2000\n\nevent: privacy\n")
    assert events_of(chunks) == await stored(api)
    waiting = asyncio.create_task(take(stream, 3))
    await api.stream.close([1, 2, 3])
    assert not waiting.done()
    await api.refresh()
    assert events_of(await waiting) == await stored(api, after=12)


@with_api([5] * 12)
async def test_a_follower_resumes_after_any_seq(api: Api) -> None:
    for seq in range(12):
        assert events_of(await take(follow(api.replica, seq), 12 - seq)) == await stored(api, after=seq)


@pytest.mark.parametrize("expected", [True, False])
def test_a_follower_waits_while_a_restored_store_lacks_a_configured_stream(expected: bool) -> None:
    async def run() -> None:
        store = MemoryStore()
        stream = await released([5] * 3, store, epoch_bins=24)
        replicas = Replicas(store.reader(), AllLabels({"departures": Labels()} if expected else {}))
        await replicas.refresh()
        follower, backup = follow(replicas.by_name["departures"], 0, heartbeat_s=0.01), store.copy()
        await take(follower, 3)
        store.restore(MemoryStore())
        await replicas.refresh()
        if not expected:  # it was removed from the configuration
            assert [chunk async for chunk in follower] == []
            return
        await anext(follower)
        store.restore(backup)
        await stream.close([5])
        await replicas.refresh()
        assert events_of(await take(follower, 1)) == await store.reader().rows("departures", 3, 9)

    asyncio.run(run())


@pytest.mark.slow
async def test_follower_far_behind_gets_many_rows_per_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "RECENT_ROWS", 50)
    monkeypatch.setattr(replica_module, "_ROWS_A_READ", 200)

    store = MemoryStore()
    await released([1] * 500, store, epoch_bins=600)
    replica = StreamReplica(store.reader(), "departures", Replicas(store.reader()).stated, KnownEpochs())
    await replica.refresh()
    chunks = await take(follow(replica, 0), 500)
    assert events_of(chunks) == await store.reader().rows("departures", 0, 500)
    assert len(chunks) <= 4
    assert [seq for seq, _ in await replica.rows_after(470)] == list(range(471, 501))


@with_api([5] * 3, epoch_bins=2_000)
async def test_rows_of_a_stream_stay_in_memory_for_a_while_only(api: Api) -> None:
    def kept() -> list[int]:
        return [seq for seq, _ in api.replica.recent]

    most = replica_module.RECENT_ROWS
    await api.stream.close([1] * 600)
    await api.refresh()
    assert kept() == list(range(604 - most, 604))
    await api.stream.close([1] * 300)
    await api.replica.read_news(903)
    assert kept() == list(range(604, 904))  # shown together, so followers get them from memory
    await api.stream.close([1])
    await api.replica.read_news(904)
    assert kept() == list(range(905 - most, 905))
    assert events_of(await take(follow(api.replica, 0), 904)) == await stored(api)


@with_api([5] * 3)
async def test_follower_gets_heartbeats_and_ends_when_the_service_closes(api: Api) -> None:
    stream = follow(api.replica, 3, heartbeat_s=0.01)
    assert [await anext(stream) for _ in range(3)][1:] == [b": nothing new yet\n\n"] * 2
    waiting = asyncio.create_task(anext(follow(api.replica, 3), b"the end"))
    await asyncio.sleep(0)
    api.app.state.replicas.close()
    assert [chunk async for chunk in stream] == []
    assert (await waiting).startswith(b"retry: 2000\n\n")


@with_api([5] * 3)
async def test_follower_that_waits_gets_each_row_once_pushed_or_yielded(api: Api) -> None:
    pushed: list[bytes] = []
    tries = iter([True, True, False, True, False, False])  # False: the connection is full

    def push(part: bytes) -> bool:
        if taken := next(tries):
            pushed.append(part)
            got.append(part)
        return taken

    got: list[bytes] = []
    stream = follow(api.replica, 0, push=push)
    got += await take(stream, 3)
    for closed in range(6):
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await api.stream.close([closed] * (1 + closed % 2))
        await api.refresh()
        await asyncio.sleep(0)
        if waiting.done():
            got.append(await waiting)
        else:
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            stream = follow(api.replica, api.replica.seq, push=push)
            await anext(stream)
        assert events_of(got) == await stored(api)
    assert [len(events_of([part])) for part in pushed] == [1, 2, 2]


@with_api([5] * 3)
async def test_news_reach_requests_between_groups_of_followers(api: Api) -> None:
    order: list[str] = []

    def slow(part: bytes) -> bool:
        order.append("follower")
        until_s = time.perf_counter() + 0.000_1
        while time.perf_counter() < until_s:
            pass
        return True

    async def wait(stream: AsyncIterator[bytes]) -> None:
        async for _ in stream:
            pass

    followers = [asyncio.create_task(wait(follow(api.replica, 3, push=slow))) for _ in range(40)]
    for _ in range(10):
        await asyncio.sleep(0)
    await api.stream.close([1])
    refreshing = asyncio.create_task(api.refresh())
    async with asyncio.timeout(PATIENCE_S):
        while order.count("follower") < 40:
            order.append("request")
            await asyncio.sleep(0)
    await refreshing
    groups = "".join("f" if one == "follower" else " " for one in order).split()
    assert max(len(group) for group in groups) <= 10
    api.replica.close()
    await asyncio.gather(*followers)


@with_api([5] * 3)
async def test_follower_waits_for_a_future_seq(api: Api) -> None:
    # Another process may have shown the follower rows that this one has not read yet.
    stream = follow(api.replica, 5, heartbeat_s=0.01)
    assert events_of([await anext(stream), await anext(stream)]) == []
    await api.stream.close([1, 2, 3])
    await api.refresh()
    assert [seq for seq, _ in events_of(await take(stream, 1))] == [6]


def test_follower_of_a_generation_that_is_gone_gets_the_next_one_from_its_first_row() -> None:
    reader = MemoryStore().reader()
    third, second = (
        StreamReplica(reader, f"departures@{number}", Replicas(reader).stated, KnownEpochs())
        for number in (3, 2)
    )
    assert start_of([third, second], third, Place(1, 40)) == (second, 0)
    assert start_of([third, second], third, Place(2, 40)) == (second, 40)


def test_rows_are_framed_as_events() -> None:
    assert events_of([frames([(1, b"{}"), (2, b'{"a":1}')])]) == [(1, b"{}"), (2, b'{"a":1}')]


class FaultyReader:
    """A reader with one method that fails, with a secret in the error's message."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.failing = ""

    def __getattr__(self, name: str) -> Any:
        if name == self.failing:
            raise ConnectionError("redis://worker:hunter2@10.0.0.1 refused")
        return getattr(self._reader, name)


@pytest.mark.parametrize("failing", ["streams", "public_state", "tile_rows", "rows", "ledger"])
async def test_answers_stay_complete_while_the_store_fails(
    failing: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "POLL_S", 0.001)

    with caplog.at_level(logging.WARNING):
        store = MemoryStore()
        stream = await released([4, 4], store)
        reader = FaultyReader(store.reader())
        replicas = Replicas(reader)
        await replicas.refresh()
        reader.failing = failing
        await stream.close([4, 4, 4])
        task = asyncio.create_task(replicas.keep_fresh())
        await asyncio.sleep(0.02)
        replica = replicas.by_name["departures"]
        assert replica.view is not None
        assert replica.view.span.stop - replica.view.span.start in (2, 5)
        reader.failing = ""
        assert await replica.news.awaited(PATIENCE_S, lambda: replica.seq < 5)
        assert (replica.seq, replica.view.visible_seq) == (5, 5)
        assert [seq for seq, _ in await replica.rows_after(0)] == [1, 2, 3, 4, 5]
        task.cancel()
    assert "ConnectionError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_stream_that_was_started_anew_replaces_the_old_one() -> None:
    store = MemoryStore()
    old = await released([9, 9, 9], store)
    replicas = Replicas(store.reader())
    await replicas.refresh()
    fresh = MemoryStore()
    await released([1], fresh, first_bin=old.first_bin + 5)
    store.restore(fresh)
    await replicas.refresh()
    replica = replicas.by_name["departures"]
    assert replica.view is not None
    assert replica.view.span == (old.first_bin + 5, old.first_bin + 6)
    assert await replica.rows_after(0) == await fresh.reader().rows("departures", 0, 10)


async def test_removed_stream_is_forgotten() -> None:
    store = MemoryStore()
    stream = Published(store)
    await stream.open()
    replicas = Replicas(store.reader())
    await replicas.refresh()
    replica = replicas.by_name["departures"]
    store.restore(MemoryStore())
    await replicas.refresh()
    assert replicas.by_name == {}
    assert replica.closed


async def test_view_shows_the_old_state_until_a_refresh_is_complete() -> None:
    """While a refresh waits for the store, readers see the previous state, complete."""

    store = MemoryStore()
    stream = await released([7], store, epoch_bins=9, branching=(3, 3))
    reader = store.reader()
    replica = StreamReplica(reader, "departures", Replicas(reader).stated, KnownEpochs())
    await replica.refresh()
    await stream.close([7] * 8)
    seen: list[tuple[int, int]] = []
    original = reader.tile_rows

    async def watched(*place: Any) -> Any:
        assert replica.view is not None
        seen.append((replica.view.visible_seq, replica.view.span.stop - replica.view.span.start))
        return await original(*place)

    reader.tile_rows = watched  # type: ignore[method-assign, assignment]
    await replica.refresh()
    assert seen == [(1, 1)] * 3
    assert replica.view is not None
    assert replica.view.shown == await _state(store)


class Counted:
    """A reader that records the names of its called methods."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._reader, name)


async def test_new_rows_are_read_in_one_round_trip_unless_an_epoch_ends() -> None:
    store = MemoryStore()
    stream = await released([7], store, epoch_bins=4)
    reader = Counted(store.reader())
    replicas = Replicas(reader)
    await replicas.refresh()
    replica = replicas.by_name["departures"]
    for seq in range(2, 8):
        if seq == 5:
            await stream.open(1, stream.first_bin + 4)
        await stream.close([7])
        reader.asked.clear()
        await replica.read_news(seq)
        if seq in (4, 5):  # the end of an epoch, and the first release of the next one
            assert "public_state" in reader.asked
        else:
            assert reader.asked == ["news", "ledger"]
        fresh = StreamReplica(store.reader(), "departures", Replicas(store.reader()).stated, KnownEpochs())
        await fresh.refresh()
        assert fresh.view is not None
        assert replica.view is not None
        assert replica.view.shown == fresh.view.shown
        for one, other in zip(replica.view.epochs, fresh.view.epochs, strict=True):
            for table in replica.view.strategy.kind.tables:
                assert one.rows(table).tolist() == other.rows(table).tolist()
        assert await replica.rows_after(0) == await store.reader().rows("departures", 0, 99)


async def _state(store: MemoryStore) -> PublicState:
    state = await store.reader().public_state("departures")
    assert state is not None
    return state


async def test_follower_skips_rows_that_a_lost_store_had() -> None:
    """A new store continued the chain from the witness, so it has no rows before some seq."""

    store = MemoryStore()
    stream = Published(store)
    record = EpochRecord(1, stream.first_bin, stream.epoch_bins, 6, stream.strategy.hash)
    await store.open_epoch(stream.name, stream.strategy.to_json(), record, head="1" * 64)
    await store.start_partition(stream.name, stream.strategy.hash, "0", 0)
    await store.publish(stream.name, 5)
    reader = store.reader()
    original = reader.rows

    async def rows(*place: Any) -> Any:
        await asyncio.sleep(0)  # wait as over a network, so that the timeout below can end a loop
        return await original(*place)

    reader.rows = rows  # type: ignore[method-assign, assignment]
    replica = StreamReplica(reader, stream.name, Replicas(reader).stated, KnownEpochs())
    await replica.refresh()
    assert replica.seq == 5
    follower = follow(replica, 0, heartbeat_s=0.01)
    async with asyncio.timeout(PATIENCE_S):
        assert [await anext(follower) for _ in range(2)][1] == b": nothing new yet\n\n"
    await stream.close([3])
    await replica.refresh()
    assert [seq for seq, _ in events_of(await take(follower, 1))] == [6]


@with_api([5] * 3)
async def test_a_follower_that_missed_a_row_is_not_pushed_newer_ones(api: Api) -> None:
    pushed: list[bytes] = []
    await api.stream.close([1])
    await api.refresh()
    assert [seq for seq, _ in api.replica.newest] == [4]

    def push(part: bytes) -> bool:
        pushed.append(part)
        return True

    assert not _Follower(api.replica, 2, False, push).take()
    assert pushed == []
    assert _Follower(api.replica, 3, False, push).take()
    assert events_of(pushed) == await stored(api, after=3)
