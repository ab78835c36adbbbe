"""Says on standard error what a command is doing, if it takes long; its results are on standard output."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

AFTER_S = 2.0
EVERY_S = 15.0  # without a terminal
_REDRAW_S = 0.2

Step = Callable[[str], None]  # takes what is done next, for example "asking Redis"


def silent(_doing: str) -> None:
    """Say nothing about a step."""


@contextmanager
def working(doing: str) -> Iterator[Step]:
    """Say what is done while the block runs, from the third second on; yield a function for the next step.

    On a terminal one line shows the step and its time and disappears at the end; elsewhere a line is written
    now and then.
    """
    began_s, done, current = time.monotonic(), threading.Event(), [doing]

    def step(doing: str) -> None:
        current[0] = doing

    def line() -> str:
        return f"{current[0]} ({time.monotonic() - began_s:,.0f} s so far)"

    def say() -> None:
        if done.wait(AFTER_S):
            return
        console = Console(stderr=True)
        if console.is_terminal:
            with console.status(line()) as status:
                while not done.wait(_REDRAW_S):
                    status.update(line())
            return
        console.print(line(), markup=False, highlight=False, soft_wrap=True)
        while not done.wait(EVERY_S):
            console.print(line(), markup=False, highlight=False, soft_wrap=True)

    saying = threading.Thread(target=say, name="working", daemon=True)
    saying.start()
    try:
        yield step
    finally:
        done.set()
        saying.join()
