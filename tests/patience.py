"""How long tests wait for what must happen: one number for all of them.

On an idle machine every wait ends within seconds. CI's machine is slower, runs several tests at once, and
may stand still for half a minute. So a test waits for what it needs, and concludes nothing from time that has
passed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

PATIENCE_S = 240.0
PAUSE_S = 0.02

T = TypeVar("T")


def pause_s_after(asked_s: float, least_s: float = PAUSE_S) -> float:
    """Return how long to wait before the next look, by when the last one began on the monotonic clock.

    A look at a service takes time from the service, which it then lacks for what is awaited. So looks take a
    fifth of the time at most.
    """
    took_s = time.monotonic() - asked_s
    return max(least_s, min(4 * took_s, 0.5))


def eventually(holds: Callable[[], T], what: str | Callable[[], str], pause_s: float = PAUSE_S) -> T:
    """Return the first true answer of ``holds``. Args: what, for the message if it does not come."""
    deadline_s = (asked_s := time.monotonic()) + PATIENCE_S
    while not (found := holds()):
        if time.monotonic() > deadline_s:
            raise AssertionError(_waited(what))
        time.sleep(pause_s_after(asked_s, pause_s))
        asked_s = time.monotonic()
    return found


async def eventually_async(
    holds: Callable[[], Awaitable[T]], what: str | Callable[[], str], pause_s: float = PAUSE_S
) -> T:
    """Do as ``eventually`` does, in an event loop."""
    deadline_s = (asked_s := time.monotonic()) + PATIENCE_S
    while not (found := await holds()):
        if time.monotonic() > deadline_s:
            raise AssertionError(_waited(what))
        await asyncio.sleep(pause_s_after(asked_s, pause_s))
        asked_s = time.monotonic()
    return found


def _waited(what: str | Callable[[], str]) -> str:
    return f"waited {PATIENCE_S:.0f} s until {what if isinstance(what, str) else what()}"


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has ended: its threads have then written what the test looks at."""
    task.cancel()
    await asyncio.wait([task])
