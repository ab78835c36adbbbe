"""The service's processes: the worker, which alone sees events, and the API, which cannot.

A child gets its settings through its standard input and lives no longer than that stays open, so neither
a password nor an orphan is left behind when its parent is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from stream_app.config import KAFKA_PASSWORD, REDIS_ALERTS_URL, REDIS_API_URL, REDIS_URL, Settings
from stream_app.config.operator import OPERATOR_TOKEN
from stream_app.monitoring.logs import LOG_FORMAT, LOG_LEVEL, format_for
from stream_app.ports import OperatorError
from stream_app.shell.ending import COMPLETE, CRASHED, REFUSED, exit_status

log = logging.getLogger(__name__)

_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 4.0)
_CALM_S = 15.0  # a child that lived this long starts its backoff anew
STOP_S = 3.0  # until a process leaves that was asked to end; nothing depends on how it ends
_KILL_S = STOP_S + 2.0  # until its parent ends it


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of child: its name is the word after ``python -m stream_app.shell.child``."""

    name: str
    settings: Settings


async def run_child(role: Role, say: Callable[[str], None]) -> int:
    """Run a child until it ends with COMPLETE or REFUSED, starting it again after crashes.

    Returns: the exit status; 1 after it crashed again and again.
    """
    crashes = 0
    clock = asyncio.get_running_loop().time
    while True:
        started_s = clock()
        status = await _run_once(role, say)
        if status in (COMPLETE, REFUSED):
            return status
        crashes = 1 if clock() - started_s > _CALM_S else crashes + 1
        if crashes > len(_BACKOFF_S):
            say(f"the {role.name} crashed {crashes} times in a row; giving up")
            return 1
        say(f"the {role.name} {_how_it_ended(status)}; starting it again, nothing is lost or counted twice")
        await asyncio.sleep(_BACKOFF_S[crashes - 1])


async def _run_once(role: Role, say: Callable[[str], None]) -> int:
    # A session of its own: Ctrl-C reaches the parent only, which then ends its children in order.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stream_app.shell.child",
        role.name,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        # Settings come through the input; the API's process must not find the worker's password around it.
        env=_environment(),
    )
    assert process.stdin is not None
    assert process.stderr is not None
    stderr = process.stderr
    try:
        process.stdin.write(pickle.dumps(role.settings))
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        async for line in stderr:
            say(line.decode(errors="replace").rstrip())
        return await process.wait()
    finally:
        await _end(process)


def _environment() -> dict[str, str]:
    """Return the parent's environment without passwords, and how the parent writes its log lines."""
    secret = (REDIS_URL, REDIS_API_URL, REDIS_ALERTS_URL, KAFKA_PASSWORD, OPERATOR_TOKEN)
    kept = {name: value for name, value in os.environ.items() if name not in secret}
    return {**kept, LOG_FORMAT: format_for(sys.stderr), LOG_LEVEL: str(logging.getLogger().level)}


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_KILL_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _how_it_ended(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


async def read_orders() -> tuple[Settings, asyncio.Event]:
    """Return, in a child, the settings from its parent and an event that is set when the parent is gone."""
    settings = pickle.load(sys.stdin.buffer)
    if not isinstance(settings, Settings):
        raise OperatorError("stream_app.shell.child is started by stream-app run; start that instead")
    orphaned = asyncio.Event()
    await asyncio.get_running_loop().connect_read_pipe(lambda: _EndOfInput(orphaned), sys.stdin)
    return settings, orphaned


class _EndOfInput(asyncio.Protocol):
    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


async def until_stopped(
    work: Coroutine[Any, Any, None], *stops: asyncio.Event, within_s: float | None = None
) -> bool:
    """Run ``work`` until it ends or a stop is set or a signal asks for the end; return whether it ended.

    Args: within_s, after which the process leaves, once asked or once ``work`` has ended, whatever still
        holds it.
    Raises: what ``work`` raises.
    """
    asked = asyncio.Event()
    with _signals(asked):
        task = asyncio.ensure_future(work)
        waits = [asyncio.ensure_future(stop.wait()) for stop in (asked, *stops)]
        try:
            await asyncio.wait([task, *waits], return_when=asyncio.FIRST_COMPLETED)
            ended = task.done()
        finally:
            if within_s is not None:
                _leave_after(within_s, task)
            for other in (task, *waits):
                other.cancel()
            results = await asyncio.gather(task, *waits, return_exceptions=True)
        failure = results[0]
        if isinstance(failure, asyncio.CancelledError):
            if ended:
                raise RuntimeError("the work was cancelled, and nobody had asked for it")
        elif isinstance(failure, BaseException):
            raise failure
        return ended


def _leave_after(seconds: float, work: asyncio.Future[None]) -> None:
    """End the process when the time is over: a library that waits for a lost connection must not hold it."""

    def leave() -> None:
        log.warning(
            "not everything came to its end within %g s; leaving: nothing is lost or counted twice", seconds
        )
        status = CRASHED
        try:
            status = exit_status(work.result) if work.done() and not work.cancelled() else COMPLETE
        finally:
            os._exit(status)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


@contextlib.contextmanager
def _signals(asked: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in caught:
        loop.add_signal_handler(number, asked.set)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
