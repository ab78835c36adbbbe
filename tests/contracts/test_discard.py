"""What was released but never visible is gone from Redis once the witness went on elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import redis

from stream_app.core.records import Reply
from stream_app.state.redis_store import RedisStore
from tests.contracts.conftest import SERVERS, Servers, Stores
from tests.contracts.examples import NEXT_EPOCH, TEXT, WIDTH
from tests.contracts.test_store import opened, release

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("visible", [0, 1, 3])
async def test_tiles_keep_only_what_was_visible(servers: Servers, server: str, visible: int) -> None:
    """Two noisy values of one node must not lie side by side, not even for who holds the API's password."""
    running = servers[server]
    store = RedisStore(running.worker_url)
    stores = Stores(store, None, f"discard-{visible}-{server}")  # type: ignore[arg-type]
    raw = redis.Redis.from_url(running.operator_url)
    await opened(stores)
    await release(stores, 3)
    await store.publish(stores.stream, visible)
    record = replace(NEXT_EPOCH, epoch=4, first_bin=30, first_seq=9)
    assert await store.open_epoch(stores.stream, TEXT, record, "f" * 64) == Reply.DONE

    lengths = {key.split(b":")[5]: raw.strlen(key) for key in raw.keys(f"dp:{{{stores.stream}}}:pub:tile:*")}
    row = WIDTH * 8
    expected = {b"-1": visible * row, b"1": visible // 2 * row, b"2": visible * row}
    assert lengths == {level: length for level, length in expected.items() if length}
    raw.delete(*raw.keys(f"dp:{{{stores.stream}}}:*"))
    await store.close()
    raw.close()
