"""A loop over the store ends when it is cancelled, whatever call is under way."""

from __future__ import annotations

import asyncio
import random

import pytest

from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.redis


def test_no_cancellation_is_lost_in_the_client(tmp_path):
    """Before Python 3.12, ``asyncio.wait_for`` in the client lost about one cancellation in a hundred."""
    moments = random.Random(1)

    async def cancel_many(url: str) -> None:
        store = RedisStore(url)
        try:
            for _ in range(1_000):
                task = asyncio.create_task(_for_ever(store))
                for _ in range(moments.randrange(40)):
                    await asyncio.sleep(0)
                task.cancel()
                done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
                assert done, "the loop goes on although it was cancelled"
                assert task.cancelled()
        finally:
            await store.close()

    with EmbeddedRedis(tmp_path / "redis") as server:
        asyncio.run(cancel_many(server.worker_url))


async def _for_ever(store: RedisStore) -> None:
    while True:
        await store.now_us()
        await store.load("none")


def test_clean_up_after_a_cancellation_may_call_the_store(tmp_path):
    async def clean_up(store: RedisStore) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await store.now_us()
            raise ValueError("the reason of the end")

    async def cancelled(url: str) -> None:
        store = RedisStore(url)
        try:
            task = asyncio.create_task(clean_up(store))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(ValueError, match="the reason of the end"):
                await task
        finally:
            await store.close()

    with EmbeddedRedis(tmp_path / "redis") as server:
        asyncio.run(cancelled(server.worker_url))
