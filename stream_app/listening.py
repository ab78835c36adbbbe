"""Addresses and certificates of listeners: waits for an address, and reads new certificates."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from stream_app.durable import version_of

Taken = TypeVar("Taken")

LOOK_EVERY_S = 1.0  # for new certificates
# An earlier process that had just started loads its modules and answers for a moment, before it ends.
_PREDECESSOR_S = 10.0
_ORPHANED_S = 0.05  # within this time a process learns that its parent is gone

log = logging.getLogger(__name__)


async def once_free(take: Callable[[], Taken], patience_s: float = _PREDECESSOR_S) -> Taken:
    """Return the result of ``take``, trying again while the address is in use.

    An earlier process that still holds the address ends soon after its parent.
    Raises: the OSError of ``take`` after ``patience_s``; any error other than "in use" at once.
    """
    clock = asyncio.get_running_loop().time
    # If this process's parent is gone, it is cancelled here, before it takes the address from its successor.
    await asyncio.sleep(_ORPHANED_S)
    deadline_s = clock() + patience_s
    while True:
        try:
            return take()
        except OSError as failure:
            if failure.errno != errno.EADDRINUSE or clock() > deadline_s:
                raise
        await asyncio.sleep(0.1)


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
    seen = loaded = [*map(version_of, files)]
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        before, seen = seen, [*map(version_of, files)]
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
