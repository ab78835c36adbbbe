"""Makes the configured Redis reachable: it starts the embedded one, and starts it again if it dies."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from stream_app.config import Settings
from stream_app.ports import OperatorError
from stream_app.state.embedded import EmbeddedRedis, running_url
from stream_app.state.safety import check_safety

LOOK_EVERY_S = 0.2

log = logging.getLogger(__name__)


@asynccontextmanager
async def redis_server(settings: Settings) -> AsyncIterator[Settings]:
    """Yield settings whose Redis is reachable; an embedded Redis runs as long as this context is open.

    Raises: OperatorError if it cannot be started or used, or may lose acknowledged writes.
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


@asynccontextmanager
async def looked_at(settings: Settings) -> AsyncIterator[str]:
    """Yield the worker's URL of a store that the caller only reads.

    An embedded Redis may run. If it does not, a private one runs over a copy of its files for the block.
    Raises: OperatorError if it cannot be started or used.
    """
    embedded = settings.redis.embedded
    if embedded is not None and (url := running_url(embedded)) is not None:
        yield url
        return
    with TemporaryDirectory() as copy:
        if embedded is not None:
            files = Path(copy) / "redis"
            if embedded.exists():
                shutil.copytree(embedded, files, ignore=shutil.ignore_patterns("*.sock", "*.lock"))
            settings = replace(settings, redis=replace(settings.redis, embedded=files))
        async with redis_server(settings) as connected:
            if connected.redis.url is None:
                raise OperatorError("redis.url: it is missing; name the store")
            yield connected.redis.url


async def _keep_running(server: EmbeddedRedis) -> None:
    """Start the server again if it dies; all its acknowledged writes are in its file."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if server.running:
            continue
        if full := server.room_to_make():
            log.error("redis.url: %s; the embedded Redis has ended and starts again once there is room", full)
            continue
        log.warning("the embedded Redis ended; starting it again")
        try:
            server.restart()
        except (OperatorError, OSError) as failure:
            log.error("%s", failure)
