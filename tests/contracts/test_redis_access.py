"""Every key of Redis is in the table, and the API's user reads no secret and writes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from fnmatch import fnmatchcase
from uuid import uuid4

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry

from dphist.caps import Caps
from stream_app.core.counting.bounding import Bounds, UserShard
from stream_app.core.kinds.pages import StoredNoise
from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.records import GENESIS, Cut
from stream_app.core.store_writes import TileKey
from stream_app.state.alert_store import RedisAlertStore
from stream_app.state.connection import batch, connect, execute
from stream_app.state.keys import (
    ALERT_PATTERN,
    CLOCK_MARK,
    PUBLIC_PATTERN,
    STREAM_NAMES,
    TABLE,
    KeyKind,
    StreamKeys,
    ledger_key,
)
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import FIRST
from tests.contracts.conftest import SERVERS, Servers
from tests.contracts.examples import (
    ENTRY,
    EPOCH,
    FIRST_BIN,
    HASH,
    TEXT,
    apply,
    of_users,
    release_of,
    setting_aside,
)
from tests.contracts.servers import ServerUrls

WRITES = [
    ("SET", "{key}", "1"),
    ("DEL", "{key}"),
    ("APPEND", "{key}", "1"),
    ("EXPIRE", "{key}", "1"),
    ("RENAME", "{key}", "dp:{{x}}:pub:y"),
    ("EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", "{key}"),
]
READS = {
    "string": ("GET", "{key}"),
    "hash": ("HGETALL", "{key}"),
    "list": ("LRANGE", "{key}", "0", "-1"),
    "zset": ("ZRANGE", "{key}", "0", "-1"),
    "stream": ("XRANGE", "{key}", "-", "+"),
    "set": ("SMEMBERS", "{key}"),
}
OTHERS = [
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("MONITOR",),
    ("SAVE",),
    ("INFO",),
]


def kind_of(key: str) -> KeyKind:
    """Return the row of the table that a key belongs to."""
    name = key.split("}:", 1)[1]
    fixed = [kind for kind in TABLE if name == kind.name]
    varying = [kind for kind in TABLE if "<" in kind.name and name.startswith(kind.name.split("<")[0])]
    [kind] = fixed or varying
    return kind


async def fill(store: RedisStore, stream: str) -> None:
    """Drive one stream until every kind of key exists."""
    await store.need_format(FIRST)
    await store.reserve(ENTRY)
    await store.now_us(2**53)
    await store.write_noise(stream, "nonce", 0, b"page")
    await store.open_epoch(stream, TEXT, EPOCH, GENESIS, StoredNoise("nonce", 1))
    await store.start_partition(stream, HASH, "0", 0)
    change = apply(0, 5, [(FIRST_BIN, 0, 3), (FIRST_BIN + 1, 2, 4)])
    await store.apply(stream, replace(change, operator_counts={"late": 1}))
    await store.apply(stream, of_users(5, 6, [(FIRST_BIN, 0, "ann"), (FIRST_BIN + 1, 0, "ann")]))
    older = StreamKeys(stream).untallied_shard(f"{FIRST_BIN + 1}:{FIRST_BIN + 1}:0")
    await execute(store.connection, "HSET", older, b"a user and a cell", 1)  # as builds of format 2 do
    far = FIRST_BIN + 99
    await store.apply(stream, setting_aside(6, 7, [(far, 0, 1)], [(far, 6)]))
    await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, [Cut(FIRST_BIN, 7), Cut(FIRST_BIN + 1, 9)])
    last = FIRST_BIN + 1
    await store.apply(stream, setting_aside(7, 8, [(far, 0, 1)], [(far, 7)], last_cut_bin=last))
    await store.seal(stream, HASH, ["0"], FIRST_BIN + 1)
    state = await store.load(stream)
    assert state is not None
    await store.tally(stream, HASH, Bounds(Caps(2)), FIRST_BIN)
    await store.release(stream, release_of(state, 1))
    await store.publish(stream, 1)
    await store.hold([stream], "worker", 60_000)
    await store.attend("clicks", "ab12", "worker", 60_000)


async def fill_alerts(url: str) -> None:
    """Store a decision of a watcher, as its own user, until every kind of key exists."""
    alerts = RedisAlertStore(url)
    before = (await alerts.load())[1].get("clicks")
    assert await alerts.commit("clicks", before, 1, {"busy": b"{}"}, [{"key": "k"}])
    assert await alerts.register("log")
    await alerts.acknowledge("log", "0-0", "busy", "log (status 400)")
    await alerts.begin({"log": ""})
    await alerts.close()


Filled = tuple[ServerUrls, list[str]]


@pytest.fixture(params=SERVERS)
def filled(request: pytest.FixtureRequest, servers: Servers) -> Filled:
    server, stream = servers[request.param], f"stream-{uuid4().hex}"

    async def prepare() -> list[str]:
        store = RedisStore(server.worker_url)
        await fill(store, stream)
        await store.close()
        await fill_alerts(server.alerts_url)
        client = connect(server.worker_url)
        _, keys = await execute(client, "SCAN", 0, "COUNT", 10**6)
        await client.aclose()
        found = [key.decode() for key in keys]
        return sorted(key for key in found if stream in key or (stream not in key and "stream-" not in key))

    return server, asyncio.run(prepare())


@pytest.mark.redis
def test_every_key_is_in_the_table_with_its_type(filled: Filled) -> None:
    server, keys = filled
    with redis.Redis.from_url(server.worker_url, protocol=2) as client:
        types = {key: client.type(key).decode() for key in keys}
    assert {kind_of(key).name for key in keys} == {kind.name for kind in TABLE}
    for key, type in types.items():
        assert type == kind_of(key).type, key
        assert kind_of(key).name.startswith("pub:") == fnmatchcase(key, PUBLIC_PATTERN), key


@pytest.mark.redis
def test_api_user_reads_public_keys_only_and_writes_none(filled: Filled) -> None:
    server, keys = filled
    refused = (redis.exceptions.NoPermissionError, redis.exceptions.ResponseError)
    with redis.Redis.from_url(server.api_url, protocol=2) as client:
        for key in keys:
            read = [part.format(key=key) for part in READS[kind_of(key).type]]
            if kind_of(key).name.startswith("pub:"):
                assert client.execute_command(*read)
            else:
                with pytest.raises(refused, match=r"(?i)permission"):
                    client.execute_command(*read)
                with pytest.raises(refused, match=r"(?i)permission"):
                    client.exists(key)
            for write in WRITES:
                with pytest.raises(refused, match=r"(?i)permission"):
                    client.execute_command(*(part.format(key=key) for part in write))
        for command in OTHERS:
            with pytest.raises(refused, match=r"(?i)permission"):
                client.execute_command(*command)


@pytest.mark.redis
def test_alerts_user_writes_its_own_keys_and_sees_no_other(filled: Filled) -> None:
    server, keys = filled
    refused = (redis.exceptions.NoPermissionError, redis.exceptions.ResponseError)
    others = [key for key in keys if not fnmatchcase(key, ALERT_PATTERN)]
    assert len(others) > 10
    with redis.Redis.from_url(server.alerts_url, protocol=2) as client:
        for key in others:
            for command in (READS[kind_of(key).type], *WRITES):
                with pytest.raises(refused, match=r"(?i)permission"):
                    client.execute_command(*(part.format(key=key) for part in command))
        for command in OTHERS:
            with pytest.raises(refused, match=r"(?i)permission"):
                client.execute_command(*command)


@pytest.mark.redis
def test_nobody_enters_without_a_password(filled: Filled) -> None:
    server, _ = filled
    path = server.worker_url.split("@")[1].split("?")[0]
    once = Retry(NoBackoff(), 0)
    refused = pytest.raises(redis.exceptions.AuthenticationError)
    with redis.Redis(unix_socket_path=path, protocol=2, retry=once) as client, refused:
        client.ping()


@pytest.mark.redis
def test_errors_hold_no_secret(servers: Servers) -> None:
    """An error does not repeat the failed command, which may hold a count or a bin."""
    stream = f"stream-{uuid4().hex}"
    key = StreamKeys(stream).state

    async def fail() -> OSError:
        client, store = connect(servers["bundled"].worker_url), RedisStore(servers["bundled"].worker_url)
        await execute(client, "SET", key, "not a hash")
        change = replace(apply(0, 5, [(FIRST_BIN, 0, 31_337)]), operator_counts={"late": 31_337})
        with pytest.raises(OSError, match="WRONGTYPE") as error:
            await store.apply(stream, change)
        await client.aclose()
        await store.close()
        return error.value

    error = asyncio.run(fail())
    assert "31337" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


@pytest.mark.redis
async def test_scripts_survive_a_flushed_script_cache(servers: Servers) -> None:
    store = RedisStore(servers["bundled"].worker_url)
    admin = connect(servers["bundled"].worker_url)
    await store.now_us()
    await batch(admin, [("SCRIPT", "FLUSH")])
    now_us, _ = await store.now_us()
    assert now_us > 0
    await admin.aclose()
    await store.close()


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.sampled_from(
    ["a:pub:b", "{a}:pub:", "dp:{x}:pub:chain", "*", "}:pub:{"]
)


@given(stream=names, partition=names, other=names, bin=st.integers())
def test_no_name_makes_a_secret_key_public(stream: str, partition: str, other: str, bin: int) -> None:
    keys = StreamKeys(stream)
    secret = [
        keys.state,
        keys.positions,
        keys.starts,
        keys.base_bins,
        keys.cut_calls,
        keys.open_bins,
        keys.open_windows,
        keys.untallied,
        keys.entries(UserShard(bin, bin, 255)),
        keys.users(bin),
    ]
    secret += keys.ahead(partition)
    secret += [keys.operator_counts, keys.cuts(partition), keys.cells(bin), CLOCK_MARK]
    public = [keys.strategy, keys.epochs, keys.visible, keys.chain, keys.tile(TileKey(0, PUBLISHED, 2, 3))]
    assert not any(fnmatchcase(key, PUBLIC_PATTERN) for key in secret)
    assert all(fnmatchcase(key, PUBLIC_PATTERN) for key in [*public, ledger_key(stream), STREAM_NAMES])
    # One slot a stream: what is between the first braces is the same, and differs from other streams'.
    tags = {key.split("{")[1].split("}")[0] for key in [*public, *secret[:-1]]}
    assert len(tags) == 1
    if other != stream:
        assert not set(public) & {StreamKeys(other).strategy, StreamKeys(other).chain}
        assert StreamKeys(other).state != keys.state
    if other != partition:
        assert keys.cuts(other) != keys.cuts(partition)
