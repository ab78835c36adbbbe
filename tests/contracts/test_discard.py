"""Releases that nobody saw are deleted, and so are exact counts of released bins in the log on disk."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import redis

from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.records import Reply
from stream_app.core.releases.tiles import tile_appends
from stream_app.ports import OperatorError
from stream_app.state.keys import StreamKeys
from stream_app.state.redis_store import RedisStore
from tests.contracts.conftest import SERVERS, Servers, Stores
from tests.contracts.examples import FIRST_BIN, NEXT_EPOCH, TEXT, WIDTH, apply, release_of
from tests.contracts.test_store import cut_and_seal, loaded, opened, release

pytestmark = pytest.mark.anyio

REWRITE_S = 10  # the child's rewriting of the log, longer than a release takes on a busy machine


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("visible", [0, 1, 3])
async def test_tiles_keep_only_what_was_visible(servers: Servers, server: str, visible: int) -> None:
    """Nobody may read two noisy values of one node, not even with the API's password."""
    running = servers[server]
    store = RedisStore(running.worker_url)
    stores = Stores(store, None, f"discard-{visible}-{server}")  # type: ignore[arg-type]
    raw = redis.Redis.from_url(running.operator_url)
    await opened(stores)
    await release(stores, 3)
    await store.publish(stores.stream, visible)
    record = replace(NEXT_EPOCH, epoch=4, first_bin=30, first_seq=9)
    assert await store.open_epoch(stores.stream, TEXT, record, "f" * 64) == Reply.DONE

    lengths = {
        key.split(b":")[5]: raw.strlen(key) for key in raw.scan_iter(f"dp:{{{stores.stream}}}:pub:tile:*")
    }
    row = WIDTH * 8
    expected = {b"-1": visible * row, b"1": visible // 2 * row, b"2": visible * row}
    assert lengths == {level: length for level, length in expected.items() if length}
    raw.delete(*raw.keys(f"dp:{{{stores.stream}}}:*"))
    await store.close()
    raw.close()


@pytest.mark.parametrize("server", SERVERS)
async def test_a_full_tile_takes_no_more_room_than_it_needs(servers: Servers, server: str) -> None:
    """Redis keeps spare room in a string that grows; a full tile never grows again."""
    store = RedisStore(servers[server].worker_url)
    stores = Stores(store, None, f"full-{server}")  # type: ignore[arg-type]
    raw = redis.Redis.from_url(servers[server].operator_url)
    await opened(stores)
    values = np.arange(32 * 1024).reshape(32, 1024)
    for bin, rows in enumerate(np.split(values, [17])):
        state = await loaded(stores)
        await cut_and_seal(stores, state.released_bin + 1)
        appends = tile_appends(0, PUBLISHED, [0, 17][bin], rows)
        assert [append.fills for append in appends] == [bin == 1]
        assert await store.release(stores.stream, replace(release_of(state, 1), tiles=appends)) == Reply.DONE
    key = StreamKeys(stores.stream).tile(appends[0].key)
    assert raw.get(key) == values.astype("<i8").tobytes()
    used = raw.memory_usage(key)
    assert used is not None
    assert used < 1.3 * raw.strlen(key)
    raw.delete(*raw.keys(f"dp:{{{stores.stream}}}:*"))
    await store.close()
    raw.close()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("callers", [1, 5])
async def test_log_forgets_the_counts_of_released_bins(servers: Servers, server: str, callers: int) -> None:
    """This holds even if the server is already rewriting its log in a child that still sees the counts."""
    running = servers[server]
    store = RedisStore(running.worker_url)
    raw = redis.Redis.from_url(running.operator_url, decode_responses=True)
    stores = Stores(store, None, f"forget-{callers}-{server}")  # type: ignore[arg-type]
    secret_count = 918_273_645_546 + callers
    folder = Path(str(raw.config_get("dir")["dir"]))

    def log_holds_it() -> bool:
        files = (path for path in folder.rglob("*") if path.is_file())
        return any(str(secret_count).encode() in path.read_bytes() for path in files)

    try:
        await opened(stores)
        reply = await store.apply(stores.stream, apply(0, 1, [(FIRST_BIN, 0, secret_count)]))
        assert reply == Reply.DONE
        assert log_holds_it()
        pause_us = REWRITE_S * 1_000_000 // raw.dbsize()  # for each key; other tests leave keys behind
        raw.config_set("rdb-key-save-delay", pause_us)
        raw.bgrewriteaof()
        raw.config_set("rdb-key-save-delay", 0)
        await release(stores, 1)
        assert raw.keys(f"dp:{{{stores.stream}}}:sec:cells:*") == []
        assert raw.info("persistence")["aof_rewrite_in_progress"] == 1
        await asyncio.gather(*(store.forget() for _ in range(callers)))
        assert not log_holds_it()
    finally:
        raw.delete(*raw.keys(f"dp:{{{stores.stream}}}:*"))
        await store.close()
        raw.close()


@pytest.mark.parametrize("server", SERVERS)
async def test_a_redis_user_without_bgrewriteaof_is_refused_in_one_line(
    servers: Servers, server: str
) -> None:
    store = RedisStore(servers[server].api_url)
    with pytest.raises(OperatorError, match=r"redis.url: .*; grant \+bgrewriteaof") as refusal:
        await store.forget()
    assert "\n" not in str(refusal.value)
    await store.close()
