"""Waits for an address that an earlier process may still hold; that process ends soon after its parent."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TypeVar

Taken = TypeVar("Taken")

# An earlier process that had just started loads its modules and answers for a moment, before it ends.
_PREDECESSOR_S = 10.0
_ORPHANED_S = 0.05  # within this time a process learns that its parent is gone


async def once_free(take: Callable[[], Taken], patience_s: float = _PREDECESSOR_S) -> Taken:
    """Return the result of ``take``, trying again while the address is in use.

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
