"""How the service's processes start and end: the worker sees events, the API and alerts cannot.

A child gets its settings through its standard input and ends when its input closes. So a killed parent leaves
neither passwords nor orphans behind.
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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from stream_app.config import Settings
from stream_app.durable import NoRoomError
from stream_app.monitoring.logs import LOG_FORMAT, LOG_LEVEL, format_for
from stream_app.ports import OperatorError

log = logging.getLogger(__name__)

COMPLETE = 0  # no work is left, or the end was requested
CRASHED = 1  # an unexpected error, or a full disk: a supervisor restarts the process
REFUSED = 2  # the operator must correct something; a restart does not help
INTERRUPTED = 130  # Ctrl-C, before the work was done; as shells count: 128 and the signal's number
# What the statuses of a command mean, for people.
MEANINGS = {
    COMPLETE: "Done; or it followed or served until it was asked to end.",
    CRASHED: "An unexpected error, or a full disk. A supervisor may start the process again.",
    REFUSED: "Correct what the command says. A restart does not help.",
    INTERRUPTED: "Ctrl-C ended the command before it was done.",
}
NOTHING_COUNTED = 3  # of a child that is a worker: its replays are complete, and no record was counted

_RELOADED = (
    "SIGHUP: files of API keys and the certificates of api.tls and ingest.tls are read again whenever they "
    "change; anything else of the configuration takes effect at the next start"
)
_VARIABLES = "STREAM_APP_"  # every environment variable of this service begins with this
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 4.0)
_CALM_S = 15.0  # a child that ran this long resets its restart backoff
STOP_S = 3.0  # time for a process to end after a request; a forced end loses nothing
_KILL_S = STOP_S + 2.0  # until its parent kills it


# The extra of this package that brings a module.
_EXTRAS = {
    "aiokafka": "kafka",
    "cramjam": "kafka",
    "faust": "faust",
    "kafka": "kafka",
    "mode": "faust",
    "fastavro": "avro",
    "google": "protobuf",
    "matplotlib": "plot",
    "opentelemetry": "otlp",
    "pyarrow": "parquet",
}


_OWN = ("dphist", "stream_app")  # a module of these that is missing is a fault of this program


def exit_status(work: Callable[[], int | None], name: str = "stream-app: ") -> int:
    """Do the work of a process and return its exit status; print one line about an operator's error.

    A package that is not installed is such an error, and so is a full disk, which ends with status 1. An
    unexpected error is raised: the interpreter then logs its type and place and exits with status 1.

    Args: name, the start of the operator's line.
    """
    try:
        return work() or COMPLETE
    except OperatorError as refusal:
        print(f"{name}{refusal}", file=sys.stderr, flush=True)
        return REFUSED
    except NoRoomError as full:
        print(f"{name}{full}", file=sys.stderr, flush=True)
        return CRASHED
    except ModuleNotFoundError as missing:
        module = (missing.name or "").partition(".")[0]
        if not module or module in _OWN:
            raise
        if module in _EXTRAS:
            remedy = f'pip install "private-counts[{_EXTRAS[module]}]"'
        else:
            remedy = "install private-counts again, or run make setup in a clone"
        print(f"{name}{module} is not installed, and this needs it; {remedy}", file=sys.stderr, flush=True)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED


READY = "ready"  # the line that a child writes to its standard output when it does its work


async def run_child(
    role: str,
    settings: Settings,
    say: Callable[[str], None],
    on_ready: Callable[[], None] = lambda: None,
) -> int:
    """Run a child until it ends by itself, and restart it after crashes.

    Args: role, of ``python -m stream_app.shell.child``; say, a function that shows the operator a line;
        on_ready, called whenever the child, started anew or again, does its work.
    Returns: the exit status; CRASHED after too many crashes in a row. If it is cancelled, it returns REFUSED
        for a child that ends so when it is asked to.
    """
    crashes = 0
    clock = asyncio.get_running_loop().time
    while True:
        started_s = clock()
        status = await _run_once(role, settings, say, on_ready)
        if status in (COMPLETE, REFUSED, NOTHING_COUNTED):
            return status
        crashes = 1 if clock() - started_s > _CALM_S else crashes + 1
        if crashes > len(_BACKOFF_S):
            say(f"the {role} crashed {crashes} times in a row; giving up")
            return CRASHED
        say(f"the {role} {_how_it_ended(status)}; starting it again, nothing is lost or counted twice")
        await asyncio.sleep(_BACKOFF_S[crashes - 1])


async def _run_once(
    role: str, settings: Settings, say: Callable[[str], None], on_ready: Callable[[], None]
) -> int:
    # A separate session: Ctrl-C reaches only the parent, which then ends its children in order.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stream_app.shell.child",
        role,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        # Settings come through standard input; the API's environment must not hold the worker's passwords.
        env=child_environment(),
    )
    assert process.stdin is not None
    assert process.stderr is not None
    assert process.stdout is not None
    stderr = process.stderr
    awaiting = asyncio.create_task(_await_ready(process.stdout, on_ready))
    try:
        process.stdin.write(pickle.dumps(settings))
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        async for line in _lines(stderr):
            say(line)
        return await process.wait()
    except asyncio.CancelledError:
        await end_process(process)
        if process.returncode != REFUSED:
            raise
        async for line in _lines(stderr):  # what it has not counted
            say(line)
        return REFUSED
    finally:
        awaiting.cancel()
        await end_process(process)


async def _await_ready(stdout: asyncio.StreamReader, on_ready: Callable[[], None]) -> None:
    async for line in _lines(stdout):
        if line == READY:
            on_ready()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of a stream, of any length: a long line of a log must not end the service."""
    unfinished = b""
    while read := await stream.read(1 << 16):
        *lines, unfinished = (unfinished + read).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace").rstrip()
    if unfinished:
        yield unfinished.decode(errors="replace").rstrip()


def child_environment() -> dict[str, str]:
    """Return the parent's environment without its settings, with its log level, and the format of its output.

    Some settings are passwords, and a child gets its own through its standard input. The parent prints its
    children's log lines to its standard output.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_VARIABLES)}
    return {**kept, LOG_FORMAT: format_for(sys.stdout), LOG_LEVEL: str(logging.getLogger().level)}


async def end_process(process: asyncio.subprocess.Process, patience_s: float = _KILL_S) -> None:
    """Ask a process to end, and kill it if it has not ended in time."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _how_it_ended(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


async def read_orders() -> tuple[Settings, asyncio.Event]:
    """Return, in a child, the settings from its parent and an event that is set when the parent has ended."""
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
    """Run ``work`` until it ends, a stop is set or a signal arrives; return whether it ended by itself.

    Args: within_s, time from the stop, or the end of ``work``, until the process exits in any case.
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
                raise RuntimeError("the work was cancelled without a request")
        elif isinstance(failure, BaseException):
            raise failure
        return ended


def _leave_after(seconds: float, work: asyncio.Future[None]) -> None:
    """Exit the process after a time limit, even if a library still waits for a lost connection."""

    def leave() -> None:
        log.warning(
            "not everything ended within %g s; leaving anyway: nothing is lost or counted twice", seconds
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
    before = signal.getsignal(signal.SIGHUP)
    for number in caught:
        loop.add_signal_handler(number, asked.set)
    outlive_sighup()
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGHUP, before)  # ignored also while the process ends


def outlive_sighup() -> None:
    """On SIGHUP log which settings it reloads, and go on. If there is a terminal, SIGHUP ends the process."""
    if not sys.stderr.isatty():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, log.warning, _RELOADED)
