"""Calls in the same turn of the loop share a round trip, and each gets only its own replies."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import exceptions

from stream_app.state import round_trips
from stream_app.state.connection import batch, connect, execute, transaction, unknown_outcome
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.greeting import Expected
from stream_app.state.redis_store import RedisStore
from stream_app.state.round_trips import MOST_AT_ONCE, RoundTrips
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.redis, pytest.mark.anyio]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def redis(server: EmbeddedRedis, request: pytest.FixtureRequest) -> AsyncIterator[RoundTrips]:
    """Yield a client. Parameter: how many connections it may have."""
    redis = connect(server.operator_url, getattr(request, "param", 16))
    yield redis
    await redis.aclose()


@contextlib.contextmanager
def writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield a list to which each write to the server appends its number of commands."""
    sizes: list[int] = []
    pack = round_trips.packed

    def packed(commands: Any) -> bytes:
        sizes.append(len(commands))
        return pack(commands)

    with monkeypatch.context() as patch:
        patch.setattr(round_trips, "packed", packed)
        yield sizes


async def test_commands_of_one_turn_of_the_loop_are_sent_together(
    redis: RoundTrips, monkeypatch: pytest.MonkeyPatch
) -> None:
    await execute(redis, "PING")
    with writes(monkeypatch) as sizes:
        numbers = range(20)
        asking = (execute(redis, "ECHO", str(number)) for number in numbers)
        assert await asyncio.gather(*asking) == [b"%d" % number for number in numbers]
        assert sizes == [20]


@pytest.mark.parametrize("redis", [1, 16], indirect=True)
async def test_commands_of_many_tasks_are_sent_in_parts(
    redis: RoundTrips, monkeypatch: pytest.MonkeyPatch
) -> None:
    await execute(redis, "PING")
    with writes(monkeypatch) as sizes:
        numbers = range(2 * MOST_AT_ONCE + 5)
        asking = (execute(redis, "ECHO", str(number)) for number in numbers)
        assert await asyncio.gather(*asking) == [b"%d" % number for number in numbers]
        assert sizes == [MOST_AT_ONCE, MOST_AT_ONCE, 5]


async def test_each_task_gets_its_own_refusal_only(redis: RoundTrips) -> None:
    await execute(redis, "SET", "text", "word")
    outcomes = await asyncio.gather(
        execute(redis, "GET", "text"),
        execute(redis, "INCR", "text"),
        batch(redis, [("ECHO", "a"), ("INCR", "text"), ("ECHO", "b")]),
        transaction(redis, [("SET", "kept", "1"), ("INCR", "text"), ("GET", "kept")]),
        transaction(redis, [("NONSENSE",), ("SET", "lost", "1")]),
        transaction(redis, [("GET", "kept"), ("GET", "lost")]),
        return_exceptions=True,
    )
    refused = "not an integer"
    assert outcomes[0] == b"word"
    assert [refused in str(outcome) for outcome in outcomes[1:4]] == [True] * 3
    assert "unknown command" in str(outcomes[4])
    assert all(isinstance(outcome, OSError) for outcome in outcomes[2:5])
    assert outcomes[5] == [b"1", None]


async def test_replies_have_the_shapes_of_the_client(redis: RoundTrips) -> None:
    await execute(redis, "HSET", "hash", "field", "value")
    [fields] = await transaction(redis, [("HGETALL", "hash")])
    assert fields == await execute(redis, "HGETALL", "hash") == {b"field": b"value"}


@pytest.mark.parametrize("redis", [1], indirect=True)
async def test_a_cancelled_task_takes_no_reply_from_another(redis: RoundTrips) -> None:
    for turns in range(12):
        leaving = asyncio.create_task(execute(redis, "ECHO", "mine"))
        staying = asyncio.create_task(execute(redis, "ECHO", "yours"))
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == b"yours"
        assert await execute(redis, "ECHO", "next") == b"next"


async def test_a_lost_connection_fails_all_tasks_and_the_next_command_works(
    redis: RoundTrips,
    server: EmbeddedRedis,
) -> None:
    killer = connect(server.operator_url)
    name = await execute(redis, "CLIENT ID")
    asking = [asyncio.create_task(execute(redis, "BLPOP", f"empty{place}", 20)) for place in range(3)]
    await asyncio.sleep(0.05)
    await execute(killer, "CLIENT KILL", "ID", name)
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [exceptions.ConnectionError] * 3
    assert await execute(redis, "ECHO", "again") == b"again"
    await killer.aclose()


def test_a_client_works_after_a_loop_ended_during_a_command(server: EmbeddedRedis) -> None:
    async def leave(redis: RoundTrips) -> None:
        asyncio.create_task(execute(redis, "ECHO", "nobody hears this"))  # noqa: RUF006
        await asyncio.sleep(0)

    async def ask(redis: RoundTrips) -> Any:
        try:
            return await execute(redis, "ECHO", "heard")
        finally:
            await redis.aclose()

    redis = connect(server.operator_url)
    asyncio.run(leave(redis))
    assert asyncio.run(ask(redis)) == b"heard"


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_no_connection_is_opened_by_a_command_that_outlives_the_client(
    redis: RoundTrips, server: EmbeddedRedis, is_cancelled: bool
) -> None:
    """The client is closed at each turn of the loop after a command was given."""

    async def connected(redis: RoundTrips) -> int:
        listed = await execute(redis, "CLIENT", "LIST")
        return int(listed.count(b"\n"))

    async def closed_after(turns: int) -> None:
        redis = connect(server.operator_url)
        asking = asyncio.create_task(execute(redis, "PING"))
        for _ in range(turns):
            await asyncio.sleep(0)
        if is_cancelled:
            asking.cancel()
        await redis.aclose()
        [outcome] = await asyncio.wait_for(asyncio.gather(asking, return_exceptions=True), PATIENCE_S)
        expected = (asyncio.CancelledError, exceptions.ConnectionError)
        assert outcome in (True, b"PONG") or isinstance(outcome, expected), outcome

    before = await connected(redis)
    for turns in range(1, 40):
        await closed_after(turns)
    await asyncio.sleep(0.05)  # what outlived its client has opened its connection by now
    assert await connected(redis) == before


async def test_no_cancellation_is_lost_in_the_client(server: EmbeddedRedis) -> None:
    """Before Python 3.12, ``asyncio.wait_for`` in the client lost about one cancellation in a hundred."""
    moments = random.Random(1)

    async def for_ever(store: RedisStore) -> None:
        while True:
            await store.now_us()
            await store.load("none")

    store = RedisStore(server.worker_url)
    for _ in range(1_000):
        task = asyncio.create_task(for_ever(store))
        for _ in range(moments.randrange(40)):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
        assert done, "the loop goes on although it was cancelled"
        assert task.cancelled()
    await store.close()


async def test_clean_up_after_a_cancellation_may_call_the_store(server: EmbeddedRedis) -> None:
    async def clean_up(store: RedisStore) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await store.now_us()
            raise ValueError("the reason of the end")

    store = RedisStore(server.worker_url)
    task = asyncio.create_task(clean_up(store))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ValueError, match="the reason of the end"):
        await task
    await store.close()


async def test_a_server_that_was_started_again_is_not_said_to_be_down(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        redis = connect(server.operator_url, 2, Expected(same_server=True))
        await execute(redis, "PING")
        server.stop()
        with pytest.raises(OSError, match=r"no answer .*, see that its server runs"), unknown_outcome():
            await execute(redis, "PING")
        server.start()
        with (
            pytest.raises(OSError, match=r"^redis: another server process answers than before"),
            unknown_outcome(),
        ):
            await execute(redis, "PING")
        assert await execute(redis, "PING")
        await redis.aclose()
