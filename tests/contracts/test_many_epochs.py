"""What is asked at each bin does not grow with the epochs of a stream, and every change is still seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from stream_app.core.records import LedgerEntry, Reply
from stream_app.state.connection import batch, connect
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import ledger_key
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.state.round_trips import Command, ServerRoundTrips
from tests.contracts.conftest import SERVERS, Servers, Stores, over
from tests.contracts.examples import BINS, ENTRY, EPOCH, FIRST_BIN, TEXT
from tests.contracts.test_store import loaded, opened, release, shown
from tests.stream_app.declared import BIN_US

pytestmark = pytest.mark.anyio
FEW, MANY = 3, 30


class Replies:
    """How many values Redis has replied with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values = 0
        ask = ServerRoundTrips.ask

        async def counted(client: ServerRoundTrips, commands: Sequence[Command], atomic: bool = False) -> Any:
            replies = await ask(client, commands, atomic)
            self.values += _values(replies)
            return replies

        monkeypatch.setattr(ServerRoundTrips, "ask", counted)

    def taken(self) -> int:
        """Return how many values there were since the last call."""
        values, self.values = self.values, 0
        return values


def _values(reply: Any) -> int:
    if isinstance(reply, dict):
        return 2 * len(reply)
    return sum(map(_values, reply)) if isinstance(reply, list | tuple) else 1


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, servers: Servers) -> EmbeddedRedis:
    return servers[request.param]


@pytest.fixture
async def redis_stores(server: EmbeddedRedis) -> AsyncIterator[Stores]:
    async with over(server) as stores:
        yield stores


async def with_epochs(stores: Stores, number: int) -> None:
    """Complete and show epochs, up to a running one with this number; each is in the ledger."""
    state = await stores.store.load(stores.stream)
    if state is None:
        assert await stores.store.reserve(entry(stores, 0)) == Reply.DONE
        state = await opened(stores)
    for epoch in range(state.epoch.epoch + 1, number + 1):
        state = await release(stores, state.epoch.first_bin + BINS - 1 - state.released_bin)
        assert await stores.store.reserve(entry(stores, epoch)) == Reply.DONE
        last = state.released_bin + 1
        record = replace(EPOCH, epoch=epoch, first_bin=last, first_seq=state.seq + 1)
        assert await stores.store.open_epoch(stores.stream, TEXT, record, state.head) == Reply.DONE
        state = await loaded(stores)
    await release(stores, 1)
    await stores.store.publish(stores.stream, (await loaded(stores)).seq)


def entry(stores: Stores, epoch: int) -> LedgerEntry:
    return replace(ENTRY, source=stores.stream, stream=stores.stream, epoch=epoch)


async def asked_at_each_bin(stores: Stores, replies: Replies) -> dict[str, int]:
    """Return how many values Redis replies with, to what a worker and an API ask at each bin."""
    public = await shown(stores)
    found = {}
    for name, asking in {
        "load": lambda: stores.store.load(stores.stream),
        "public state": lambda: stores.reader.public_state(stores.stream),
        "news": lambda: stores.reader.news(stores.stream, public, public.visible_seq - 1, []),
        "ledger of readers": lambda: stores.reader.ledger(stores.stream),
        "ledger of workers": lambda: stores.store.ledger(stores.stream),
    }.items():
        await asking()
        replies.taken()
        await asking()
        found[name] = replies.taken()
    return found


async def test_what_is_asked_at_each_bin_does_not_grow_with_epochs(
    redis_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = Replies(monkeypatch)
    await with_epochs(redis_stores, FEW)
    few = await asked_at_each_bin(redis_stores, replies)
    await with_epochs(redis_stores, MANY)
    assert await asked_at_each_bin(redis_stores, replies) == few
    state = await release(redis_stores, BINS - 1)
    record = replace(EPOCH, epoch=MANY + 1, first_bin=state.released_bin + 1, first_seq=state.seq + 1)
    replies.taken()
    await redis_stores.store.open_epoch(redis_stores.stream, TEXT, record, state.head)
    assert replies.taken() < MANY  # an opening does not read all epochs either


async def test_a_reader_that_stays_sees_what_a_new_one_sees(
    redis_stores: Stores, server: EmbeddedRedis
) -> None:
    store, stream = redis_stores.store, redis_stores.stream
    assert isinstance(store, RedisStore)

    async def same() -> list[int]:
        """Return the epochs that readers see, after the check."""
        new = RedisReader(server.api_url)
        state = await redis_stores.reader.public_state(stream)
        assert state == await new.public_state(stream)
        ledger = await redis_stores.reader.ledger(stream)
        assert ledger == await store.ledger(stream) == await new.ledger(stream)
        await new.close()
        return [] if state is None else [epoch.epoch for epoch in state.epochs]

    assert await same() == []
    await with_epochs(redis_stores, 2)
    assert await same() == [0, 1, 2]
    state = await loaded(redis_stores)
    await store.end_epoch(stream, 2, state.seq, "early")
    assert await same() == [0, 1, 2]
    # A store that was set back opens an epoch with a higher number, after rows that it has not.
    record = replace(EPOCH, epoch=5, first_bin=state.released_bin + 7, first_seq=state.seq + 7)
    assert await store.open_epoch(stream, TEXT, record, "f" * 64) == Reply.DONE
    await same()
    await release(redis_stores, 1)
    await store.publish(stream, state.seq + 7)
    assert await same() == [0, 1, 2, 5]
    assert await store.trim(stream, (FIRST_BIN + BINS) * BIN_US) == 1
    assert await same() == [1, 2, 5]


async def test_a_ledger_that_was_set_back_is_read_again(redis_stores: Stores, server: EmbeddedRedis) -> None:
    store, stream = redis_stores.store, redis_stores.stream
    assert isinstance(store, RedisStore)
    place = ledger_key(stream)
    for epoch in range(3):
        await store.reserve(entry(redis_stores, epoch))
    [held] = await batch(store.connection, [("HGETALL", place)])
    for epoch in (3, 4, 5):
        await store.reserve(entry(redis_stores, epoch))
        assert len(await store.ledger(stream)) == len(await redis_stores.reader.ledger(stream)) == epoch + 1
    others = [replace(entry(redis_stores, epoch), stream="other") for epoch in range(4)]
    for more in range(len(others)):  # as long as before it was set back, shorter, or longer
        await batch(store.connection, [("DEL", place), ("HSET", place, *chain.from_iterable(held.items()))])
        for one in others[: more + 1]:
            assert await store.reserve(one) == Reply.DONE
        expected = (*(entry(redis_stores, epoch) for epoch in range(3)), *others[: more + 1])
        assert await store.ledger(stream) == await redis_stores.reader.ledger(stream) == expected


async def test_several_new_epochs_of_a_stream_are_all_read(redis_stores: Stores) -> None:
    store, stream = redis_stores.store, redis_stores.stream
    expected: list[LedgerEntry] = []
    for number in (1, 1, 2, 1, 3):
        for epoch in range(len(expected), len(expected) + number):
            expected.append(entry(redis_stores, epoch))
            await store.reserve(expected[-1])
        assert await redis_stores.reader.ledger(stream) == tuple(expected)
    again = await redis_stores.reader.ledger(stream)
    assert again is await redis_stores.reader.ledger(stream)


@pytest.mark.parametrize("reads", ["the worker", "a reader"])
async def test_a_ledger_is_read_again_after_a_new_connection(
    redis_stores: Stores, server: EmbeddedRedis, reads: str
) -> None:
    """Behind it may be a server with as many entries and the same last one, but with another one between."""
    store, stream = redis_stores.store, redis_stores.stream
    assert isinstance(store, RedisStore)
    stays = redis_stores.reader if reads == "a reader" else store
    for epoch in range(3):
        await store.reserve(entry(redis_stores, epoch))
    for _ in range(2):  # the first read makes a connection, too
        assert [one.epoch for one in await stays.ledger(stream)] == [0, 1, 2]
    other = RedisStore(server.worker_url)
    await batch(other.connection, [("HDEL", ledger_key(stream), f"{stream}:1", f"{stream}:2")])
    expected = (
        entry(redis_stores, 0),
        replace(entry(redis_stores, 0), stream="other"),
        entry(redis_stores, 2),
    )
    for one in expected[1:]:
        assert await other.reserve(one) == Reply.DONE
    await other.close()
    operator = connect(server.operator_url)
    await batch(operator, [("CLIENT KILL", "TYPE", "normal")])
    await operator.aclose()
    assert await stays.ledger(stream) == expected
