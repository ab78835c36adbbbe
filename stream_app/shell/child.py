"""``python -m stream_app.shell.child worker|api|alerts|ingest``: one process of ``stream-app run``."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from stream_app.config import Settings
from stream_app.monitoring.logs import LOG_LEVEL, configure
from stream_app.ports import NothingCountedError
from stream_app.shell.processes import (
    COMPLETE,
    NOTHING_COUNTED,
    READY,
    STOP_S,
    exit_status,
    read_orders,
    until_stopped,
)


def work(name: str) -> int:
    """Run a role to its end; return the exit status of a role that has ended without a failure."""
    try:
        asyncio.run(main(name))
    except NothingCountedError as why:
        print(why, file=sys.stderr, flush=True)
        return NOTHING_COUNTED
    return COMPLETE


async def main(name: str) -> None:
    """Run a role until its work is complete, a signal stops it, or the parent process ends."""
    run = _role(name)
    settings, orphaned = await read_orders()
    await until_stopped(run(settings, _say_ready), orphaned, within_s=STOP_S)


def _say_ready() -> None:
    """Tell the parent, if it still runs, that the work has begun."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), f"{READY}\n".encode())


def _role(name: str) -> Callable[[Settings, Callable[[], None]], Coroutine[Any, Any, None]]:
    """Return the work of a role. A process imports its own role only, so that it starts sooner."""
    if name == "worker":
        from stream_app.wiring.workers import run_worker

        return run_worker
    if name == "ingest":
        from stream_app.wiring.receiving import run_ingest

        return run_ingest
    from stream_app.wiring.public import run_alerts, run_api

    return {"api": run_api, "alerts": run_alerts}[name]


if __name__ == "__main__":
    configure(sys.argv[1], int(os.environ.get(LOG_LEVEL, logging.WARNING)))
    sys.exit(exit_status(lambda: work(sys.argv[1]), name=""))
