"""Taking an address that a predecessor may still hold: its parent was killed, and it ends by itself soon."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TypeVar

Taken = TypeVar("Taken")

# A predecessor that was itself just starting first loads its modules and answers for a moment.
_PREDECESSOR_S = 10.0
_ORPHANED_S = 0.05  # in which a process learns that its own parent is gone


async def once_free(take: Callable[[], Taken], patience_s: float = _PREDECESSOR_S) -> Taken:
    """Return what ``take`` does, trying again while the address is in use.

    Args: take, raises an OSError where the address cannot be had; patience_s, for how long to try.
    Raises: the OSError of the last try, at once if it is another than "in use".
    """
    clock = asyncio.get_running_loop().time
    # Whose parent is gone is cancelled here, before it takes the address from its own successor.
    await asyncio.sleep(_ORPHANED_S)
    deadline_s = clock() + patience_s
    while True:
        try:
            return take()
        except OSError as failure:
            if failure.errno != errno.EADDRINUSE or clock() > deadline_s:
                raise
        await asyncio.sleep(0.1)
