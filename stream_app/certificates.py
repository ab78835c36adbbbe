"""Certificates of listeners, read again when their files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

LOOK_EVERY_S = 1.0

log = logging.getLogger(__name__)


@asynccontextmanager
async def following(
    context: ssl.SSLContext | None, files: tuple[Path, Path] | None, setting: str
) -> AsyncIterator[None]:
    """Load certificate and key into a listener's context whenever their files change, during the block.

    Guarantee: new connections get the new certificate; open ones go on. While the files cannot be used, the
        certificate from before stays, and a line says so.
    Args: context and files, None for a listener without TLS; setting, that names the files, for messages.
    """
    if context is None or files is None:
        yield
        return
    task = asyncio.create_task(_follow(context, files, setting))
    try:
        yield
    finally:
        task.cancel()


async def _follow(context: ssl.SSLContext, files: tuple[Path, Path], setting: str) -> None:
    seen = loaded = _marks(files)
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        before, seen = seen, _marks(files)
        if seen == loaded or seen != before:
            continue  # nothing new, or the other file may still follow
        loaded = seen
        try:
            # First into another one: a key that does not fit would leave this one with half of both pairs.
            await asyncio.to_thread(_load, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)
            _load(context, files)  # here, so no connection meets the new certificate with the old key
        except OSError as failure:  # ssl.SSLError is one
            log.error(
                "%s: the new certificate or key cannot be used (%s); the old one stays", setting, failure
            )
        else:
            log.info("%s: read again", setting)


def _load(context: ssl.SSLContext, files: tuple[Path, Path]) -> None:
    context.load_cert_chain(*files, password=lambda: "")  # an encrypted key is refused, not asked about


def _marks(files: tuple[Path, Path]) -> list[tuple[int, ...] | None]:
    """Return values that change with the content of each file; None for a file that is not there."""
    found: list[tuple[int, ...] | None] = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_ctime_ns, status.st_size))
    return found
