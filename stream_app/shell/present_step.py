"""Shows on a terminal the present step of a long command; its results are on standard output."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

AFTER_S = 2.0
_REDRAW_S = 0.2

Step = Callable[[str], None]  # takes what is done next, for example "asking Redis"


def silent(_doing: str) -> None:
    """Say nothing about a step."""


@contextmanager
def working(doing: str) -> Iterator[Step]:
    """Show the present step while the block runs, from the third second on; yield a function that changes it.

    One line of the terminal shows it, and disappears at the end. If standard error is no terminal, nothing is
    said: a log or a mail of cron has no use for it.
    """
    if not sys.stderr.isatty():
        yield silent
        return
    began_s, done, current = time.monotonic(), threading.Event(), [doing]

    def step(doing: str) -> None:
        current[0] = doing

    def line() -> str:
        return f"{current[0]} ({time.monotonic() - began_s:,.0f} s so far)"

    def say() -> None:
        if done.wait(AFTER_S):
            return
        with Console(stderr=True).status(line()) as status:
            while not done.wait(_REDRAW_S):
                status.update(line())

    saying = threading.Thread(target=say, name="working", daemon=True)
    saying.start()
    try:
        yield step
    finally:
        done.set()
        saying.join()
