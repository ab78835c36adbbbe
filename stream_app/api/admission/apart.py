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
from typing import ParamSpec, TypeVar

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
_NICE = 10


class Apart:
    """One process beside this one."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def of(
        self, function: Callable[Asked, Answer], *arguments: Asked.args, **named: Asked.kwargs
    ) -> Answer:
        """Return what a function of a module returns. Raises: what it raises; BrokenProcessPool."""
        loop = asyncio.get_running_loop()
        for last in (False, True):
            pool = self._pool = self._pool or _pool()
            try:
                return await loop.run_in_executor(pool, _called, function, arguments, named)
            except BrokenProcessPool:  # somebody ended the process: the next one computes it
                self._pool = None
                if last:
                    raise
        raise AssertionError("the second attempt has returned or raised")

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


def _called(
    function: Callable[..., Answer], arguments: tuple[object, ...], named: dict[str, object]
) -> Answer:
    return function(*arguments, **named)


def _begin() -> None:
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends this process
    threading.Thread(target=_end_with_the_service, daemon=True).start()


def _end_with_the_service() -> None:
    service = multiprocessing.parent_process()
    if service is not None:
        service.join()
    os._exit(0)
