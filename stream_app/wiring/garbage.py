"""Keeps memory small: garbage is found quickly and soon, and freed memory leaves the process."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TRIM_EVERY_S = 60.0


def exempt_live_objects() -> None:
    """Exempt all live objects from later searches for garbage, in place of those exempted before.

    The second collection finds next to nothing to search. Python searches its oldest objects only once those
    that have come to them since the last full collection exceed a quarter of those which that collection
    left, and ``gc.freeze`` does not reset this number. Without it, tens of thousands of objects would come
    to wait as garbage, with all that they hold: megabytes, in a service that runs for an hour.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.collect()


@asynccontextmanager
async def freed_memory_returned(every_s: float = TRIM_EVERY_S) -> AsyncIterator[None]:
    """Give freed memory back to the system now and then during the block, where the C library can.

    Buffers of some 100 kB come and go between small objects that stay, so the C library's heap is full of
    holes. It returns the end of its heap only: the heap would grow by megabytes an hour while the memory in
    use stays the same. The clock decides when, not the records.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it

    async def trim_always() -> None:
        while trim is not None:
            await asyncio.sleep(every_s)
            await asyncio.to_thread(trim, 0)

    trimming = asyncio.create_task(trim_always())
    try:
        yield
    finally:
        trimming.cancel()
