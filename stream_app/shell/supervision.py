"""Run the whole service in one command: a store, a worker, an API and alerts, supervised together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Never

from stream_app.config import AlertSettings, ApiSettings, Settings
from stream_app.listening import once_free
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader
from stream_app.shell.pace import ReplayWatch
from stream_app.shell.processes import COMPLETE, NOTHING_COUNTED, REFUSED, run_child, until_stopped
from stream_app.shell.progress import (
    Report,
    StreamProgress,
    address,
    first_lines,
    listening_lines,
    progress_of,
    refused_lines,
)
from stream_app.wiring.checks import checks_of_machine
from stream_app.wiring.event_logs import check_files
from stream_app.wiring.public import open_reader
from stream_app.wiring.redis_server import redis_server

_LOOK_EVERY_S = 0.25
_PREDECESSOR_S = 3.0  # report an occupied port soon; the API itself waits longer


@dataclass(frozen=True, slots=True)
class Service:
    """When the service ends by itself, and whether it serves readers. It always ends on Ctrl-C."""

    seconds: float = 0  # end after this long; 0 for never
    when_complete: bool = False  # end as soon as every replay has released its last bin
    serves: bool = True  # whether the API runs; if not, no port is used
    port_key: str = "api.port"  # the configuration key or option that errors name for the API's port
    tells_refused: bool = False  # whether to say at the end how many records were refused. SECRET.


async def run_service(settings: Settings, report: Report, service: Service) -> int:
    """Run the service's processes with separate Redis users; return the exit status.

    Returns: 0 after Ctrl-C, the requested end, or a completed replay; 2 after an operator's error, also if it
        has stopped only some streams, or if no replay has counted a record.
    Raises: OperatorError if it cannot start.
    """
    check_files(settings.streams)
    for check in checks_of_machine(settings):
        await check.asked()
    if service.serves:
        await _check_port(settings.api, service.port_key)
    status = COMPLETE

    async def work() -> None:
        nonlocal status
        async with redis_server(settings) as connected, open_reader(connected) as reader:
            try:
                for line in await first_lines(settings, reader, serves=service.serves):
                    report.say(line)
            except OSError as failure:
                raise OperatorError(f"redis.api_url: {failure}") from None
            run = _Run(connected, reader, report, service)
            try:
                await run.until_over()
            finally:
                status = run.status

    try:
        async with asyncio.timeout(service.seconds or None):
            await until_stopped(work())
    except TimeoutError:
        report.say(f"{service.seconds:g} seconds are over; ending")
    return status


async def _check_port(api: ApiSettings, key: str) -> None:
    """Check that the API can listen on its port, before anything is measured."""

    def probe() -> None:
        socket.create_server((api.host, api.port), family=family(api.host)).close()

    try:
        await once_free(probe, _PREDECESSOR_S)
    except OSError as failure:
        reason = os.strerror(failure.errno or 0)
        raise OperatorError(
            f"{key}: {api.host}:{api.port} cannot be served ({reason}); free it or choose another with {key}"
        ) from None


def family(host: str) -> socket.AddressFamily:
    """Return the family of an address; only IPv6 addresses contain a colon."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def roles_of(settings: Settings, service: Service) -> dict[str, Settings]:
    """Return the children to run, each with the settings that it may see.

    The API and alerts get no access to the store's secret half, to metrics or to events.
    """
    public = replace(settings.redis, url=None, accept=None)
    kafka, alerts = settings.kafka, settings.alerts
    if kafka is not None:  # alerts get the one cluster that is notified of them, if any
        notified = None if alerts.topic is None else {alerts.cluster: kafka.clusters[alerts.cluster]}
        kafka = None if notified is None else replace(kafka, clusters=notified)
    alerts_only = replace(settings, redis=public, kafka=kafka, operator=None, ingest=None)
    api_redis = replace(public, alerts_url=None)
    api_only = replace(alerts_only, redis=api_redis, kafka=None, alerts=AlertSettings())
    roles = {"worker": settings}
    if service.serves:
        roles["api"] = api_only
    if alerts.rules:
        roles["alerts"] = alerts_only
    if settings.ingest is not None:
        no_redis = replace(api_redis, api_url=None)
        roles["ingest"] = replace(api_only, redis=no_redis, noise_key_file=None, ingest=settings.ingest)
    return roles


class _Run:
    """The children of one run. Its ``status`` is the command's exit status, also if the run is stopped."""

    def __init__(self, settings: Settings, reader: PublicReader, report: Report, service: Service) -> None:
        self._settings, self._reader, self._report, self._service = settings, reader, report, service
        self._started: set[str] = set()  # roles that do their work
        self.status = COMPLETE

    async def until_over(self) -> None:
        """Run the children and show progress until a child refuses to run or the requested work is done."""
        children = {asyncio.ensure_future(run): role for role, run in self._children()}
        progress = asyncio.ensure_future(self._follow())
        running: set[asyncio.Future[Any]] = {progress, *children}
        try:
            while True:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if progress in done:
                    progress.result()
                for child, role in children.items():
                    if child in done and await self._is_over(role, child.result()):
                        return
        finally:
            for task in (progress, *children):
                task.cancel()
            if REFUSED in await asyncio.gather(progress, *children, return_exceptions=True):
                self.status = self.status or REFUSED

    async def _follow(self) -> Never:
        replays: ReplayWatch | None = None
        while True:
            with contextlib.suppress(OSError):  # the children report errors of the store
                progress = await _show(self._settings, self._reader, self._report)
                if "worker" in self._started:  # until then nothing is read
                    replays = replays or ReplayWatch(self._settings, self._report.say)
                    replays.seen(progress)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _children(self) -> Iterator[tuple[str, Coroutine[Any, Any, int]]]:
        for role, settings in roles_of(self._settings, self._service).items():
            yield role, run_child(role, settings, self._report.say, partial(self._has_started, role))

    def _has_started(self, role: str) -> None:
        if role in self._started:
            return  # it crashed, and runs again
        self._started.add(role)
        for line in listening_lines(role, self._settings):
            self._report.say(line)

    async def _is_over(self, role: str, ended: int) -> bool:
        """Return whether the run is over, now that a child has ended."""
        if role == "worker" and ended in (COMPLETE, NOTHING_COUNTED):
            await _show(self._settings, self._reader, self._report)
            for line in await refused_lines(self._settings) if self._service.tells_refused else ():
                self._report.say(line)
            self.status = COMPLETE if ended == COMPLETE else REFUSED
            if self._service.when_complete:
                return True
            page = address(self._settings.api)
            self._report.say(f"the replay is complete; {page} stays up until Ctrl-C")
            return False
        if ended == COMPLETE and role == "alerts":
            return False
        self.status = ended
        # The API still serves readers after counting stops, if counting had begun.
        stays = self._service.serves and not self._service.when_complete and "worker" in self._started
        if role != "worker" or ended != REFUSED or not stays:
            return True
        shown = await _show(self._settings, self._reader, self._report)
        complete = [stream.name for stream in shown if stream.complete]
        state = "counting has stopped, see above"
        if complete:
            state = f"complete: {', '.join(complete)}; all other streams have stopped, see above"
        self._report.say(
            f"{state}; {address(self._settings.api)} still serves what was released; "
            "end this command with Ctrl-C, correct the cause, and start it again"
        )
        return False


async def _show(settings: Settings, reader: PublicReader, report: Report) -> Sequence[StreamProgress]:
    progress = [await progress_of(stream, reader) for stream in settings.streams]
    report.show(progress)
    return progress
