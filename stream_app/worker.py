"""Run the worker inside a Faust process: ``STREAM_APP_CONFIG=app.yaml faust -A stream_app.worker worker``.

Faust is the host here, not the stream processor: it gives the process its command line, its signal handling
and its log set-up. It starts no Kafka client, no web server, no agent and no table. The loops of
``stream-app worker`` read, count and release, so both commands count the same.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import faust
from mode import Service

from stream_app.config import ConfigError, Settings, load
from stream_app.durable import state_directory
from stream_app.monitoring.logs import dict_config, log_crashes
from stream_app.ports import OperatorError
from stream_app.shell.processes import exit_status, outlive_sighup
from stream_app.wiring.workers import run_worker

CONFIG = "STREAM_APP_CONFIG"  # the configuration file, for Faust's own command line


class Counting(Service):
    """Runs the loops from the app's start to its stop."""

    loops: asyncio.Task[None] | None = None

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    async def on_start(self) -> None:
        """Start the loops."""
        outlive_sighup()
        self.loops = asyncio.create_task(run_worker(self._settings))

    async def on_stop(self) -> None:
        """End the loops."""
        if self.loops is not None:
            self.loops.cancel()
            await asyncio.wait([self.loops])


class Process(faust.Worker):
    """Faust's process. It ends when the loops end, and reports the reason like every command."""

    async def on_started(self) -> None:
        """Return when the loops have ended, or a signal asks for the end."""
        stopped = asyncio.ensure_future(self.wait_until_stopped())
        await asyncio.wait([self.app.counting.loops, stopped], return_when=asyncio.FIRST_COMPLETED)

    def execute_from_commandline(self) -> NoReturn:
        """Run until the end; exit with the loops' status."""
        log_crashes()
        try:
            super().execute_from_commandline()
        except SystemExit as end:
            faust_status = end.code
        loops = self.app.counting.loops
        if loops is not None and not loops.cancelled():
            sys.exit(exit_status(loops.result))
        sys.exit(faust_status)


class _LoopsOnly(faust.App.BootStrategy):
    enable_kafka = False
    # Faust's web pages would show event counts, and its command line opens them despite the settings.
    enable_web = False


class App(faust.App):
    """A Faust app without Kafka client and web server that runs the configured loops."""

    BootStrategy = _LoopsOnly

    def __init__(self, settings: Settings) -> None:
        if settings.kafka is None:
            raise OperatorError("kafka: is missing, and Faust needs a cluster; or stream-app run for files")
        state_directory("state.dir", settings.state_dir)
        super().__init__(
            settings.kafka.group,
            broker=[f"kafka://{server}" for server in settings.kafka.bootstrap_servers.split(",")],
            datadir=settings.state_dir / "faust",
            worker_redirect_stdouts=False,
            logging_config=dict_config("worker"),
            Worker=Process,
        )
        self.counting = Counting(settings)
        self.service(self.counting)


def __getattr__(name: str) -> Any:
    """Return the app configured by ``STREAM_APP_CONFIG`` when Faust's command line asks for it."""
    if name != "app":
        raise AttributeError(name)
    path = os.environ.get(CONFIG)
    if path is None:
        raise ConfigError(f"environment: {CONFIG} is missing; name the configuration file in it")
    globals()["app"] = App(load(Path(path)))
    return globals()["app"]
