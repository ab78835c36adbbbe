"""A process for computations of seconds: beside the loop they would hold the interpreter from it.

It computes pure functions of public arguments, one at a time, with little claim to the processors. It begins
with the first question and ends with the service, however that ends.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Answer = TypeVar("Answer")
Key = tuple[Any, ...]
_NICE = 10


class Apart:
    """One process beside this one."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._filling: dict[Key, asyncio.Task[None]] = {}

    async def fill(self, answers: dict[Key, Answer], function: Callable[..., Answer], key: Key) -> None:
        """Put ``function(*key)`` into ``answers``, once, even if all readers that asked have left.

        Raises: what the function raises; BrokenProcessPool.
        """
        if key in answers:
            return
        if key not in self._filling:
            self._filling[key] = asyncio.create_task(self._fill(answers, function, key))
        await asyncio.shield(self._filling[key])

    async def _fill(self, answers: dict[Key, Answer], function: Callable[..., Answer], key: Key) -> None:
        try:
            answers[key] = await self.of(function, *key)
        finally:
            del self._filling[key]

    async def of(self, function: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what a function of a module returns. Raises: what it raises; BrokenProcessPool."""
        loop = asyncio.get_running_loop()
        pool = self._pool = self._pool or _pool()
        try:
            return await loop.run_in_executor(pool, function, *arguments)
        except BrokenProcessPool:  # the process was ended: another one computes it
            pool = self._pool = _pool()
            return await loop.run_in_executor(pool, function, *arguments)

    def close(self) -> None:
        """End the process, whatever it computes."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)


def _pool() -> ProcessPoolExecutor:
    # Not by fork: this process has threads.
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin)


def _begin() -> None:
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends this process
    threading.Thread(target=_end_with_the_service, daemon=True).start()


def _end_with_the_service() -> None:
    service = multiprocessing.parent_process()
    if service is not None:
        service.join()
    os._exit(0)
