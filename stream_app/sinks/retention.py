"""Deletes files in the state directory when their time is over, also while nothing new is written."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stream_app.sinks.dead_letter_file import expire

LOOK_EVERY_S = 30.0

log = logging.getLogger(__name__)


@asynccontextmanager
async def expiring_letters(state_dir: Path, keep_s: float) -> AsyncIterator[None]:
    """Delete dead letters that are too old, of all workers and sources ever, while the context is open."""
    looking = asyncio.create_task(_look(state_dir, keep_s))
    try:
        yield
    finally:
        looking.cancel()


async def _look(state_dir: Path, keep_s: float) -> None:
    while True:
        try:
            await asyncio.to_thread(_expire_all, state_dir, keep_s)
        except OSError as failure:
            log.warning("dead letters: %s; those that are too old stay until it is mended", failure)
        await asyncio.sleep(LOOK_EVERY_S)


def _expire_all(state_dir: Path, keep_s: float) -> None:
    for directory in (state_dir / "dead_letters", *state_dir.glob("worker-*/dead_letters")):
        expire(directory, keep_s, time.time())
