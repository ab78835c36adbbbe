"""The process of ``long_questions.py``: it reads questions from a socket, computes in threads, and answers.

It ends when the socket ends. Only one question about a stream is under way at a time, so a copy never grows
while a thread reads it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

# What questions call is loaded here, before the priority is lowered. Loaded by the first question, it would
# take seconds on a busy machine.
from stream_app.api import overview  # noqa: F401
from stream_app.api.admission.long_questions import grown
from stream_app.api.answers import counts, statements, streams, sums, values, windows  # noqa: F401
from stream_app.api.prometheus import metrics  # noqa: F401
from stream_app.core.answers.query import StreamView

_NICE = 10
_TOGETHER = 8  # more than the API asks at a time
# Python's switch interval, 5 ms by default: a thread asks for the interpreter only after no other thread has
# released it for this long. Numpy releases it and takes it back all the time, so a short answer would wait.
_SWITCH_S = 0.000_02


def main() -> None:
    """Answer until the service ends."""
    with suppress(OSError):  # a sandbox may refuse it
        os.nice(_NICE)
    for number in (signal.SIGINT, signal.SIGHUP):  # they are for the service, which ends this process
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_S)
    try:
        serve(Connection(int(sys.argv[1])))
    except (EOFError, OSError):
        os._exit(0)  # whatever is still computed


def serve(connection: Connection) -> None:
    """Answer questions. Raises: EOFError when the other end is closed."""
    copies: dict[str, StreamView] = {}
    threads, writing = ThreadPoolExecutor(_TOGETHER), threading.Lock()

    def compute(number: int, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        said = _said(number, function, arguments)
        with writing:
            connection.send_bytes(said)

    while True:
        buffers = int.from_bytes(connection.recv_bytes(), "little")
        said = connection.recv_bytes()
        rows = [connection.recv_bytes() for _ in range(buffers)]
        number, lacking, function, arguments = pickle.loads(said, buffers=rows)
        for stream, growth in lacking:
            copies[stream] = grown(copies.get(stream), growth)
        if lacking:
            *before, own = (copies[stream] for stream, _ in lacking)
            arguments = own.following(tuple(before)), *arguments
        threads.submit(compute, number, function, arguments)


def _said(number: int, function: Callable[..., Any], arguments: tuple[object, ...]) -> bytes:
    """Call the function; return the bytes to send: its number, whether it succeeded, its result or error."""
    try:
        return pickle.dumps((number, True, function(*arguments)))
    except Exception as failure:
        return _said_failure(number, failure)


def _said_failure(number: int, failure: Exception) -> bytes:
    try:
        said = pickle.dumps((number, False, failure))
        pickle.loads(said)
    except Exception:  # of a kind that cannot be sent
        return pickle.dumps((number, False, RuntimeError(type(failure).__name__)))
    return said


if __name__ == "__main__":
    main()
