"""Run the whole service in one command: a store, a worker and an API, supervised together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from dataclasses import dataclass, replace

from stream_app.addresses import once_free
from stream_app.config import AlertSettings, ApiSettings, Settings, StreamSettings
from stream_app.config.access import check_operator, is_loopback
from stream_app.core.instants import format_instant
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader
from stream_app.shell.demo.progress import Report, StreamProgress
from stream_app.shell.ending import COMPLETE
from stream_app.shell.processes import Role, run_child, until_stopped
from stream_app.wiring.event_logs import check_files
from stream_app.wiring.public import open_reader
from stream_app.wiring.redis_server import redis_server

_LOOK_EVERY_S = 0.25
_PREDECESSOR_S = 3.0  # report an occupied port soon; the API itself waits longer


@dataclass(frozen=True, slots=True)
class Ending:
    """When ``run_service`` returns by itself; it always returns on Ctrl-C.

    Args:
        seconds: after this long; None for never.
        when_complete: as soon as every replay has released its last bin.
    """

    seconds: float | None = None
    when_complete: bool = False


@dataclass(frozen=True, slots=True)
class ApiPort:
    """Whether to serve the API, and the configuration key that errors should name for the port."""

    port_key: str = "api.port"
    is_open: bool = True


_API_PORT = ApiPort()


async def run_service(
    settings: Settings, report: Report, ending: Ending, api_port: ApiPort = _API_PORT
) -> int:
    """Run worker and API in separate processes with separate Redis users; return the exit status.

    Args: api_port; if it is not open, the API does not run and no port is used.
    Returns: 0 after Ctrl-C, the requested end, or a completed replay; 2 after an operator's error.
    Raises: OperatorError, one line, if it cannot start.
    """
    check_files(settings.streams)
    check_operator(settings.operator)
    if api_port.is_open:
        await check_port(settings.api, api_port.port_key)
    status = COMPLETE

    async def work() -> None:
        nonlocal status
        async with redis_server(settings) as connected, open_reader(connected) as reader:
            try:
                await _say_what_happens(settings, reader, report, api_port)
            except OSError as failure:
                raise OperatorError(f"redis.api_url: {failure}") from None
            status = await _watch(connected, reader, report, ending, api_port)

    try:
        async with asyncio.timeout(ending.seconds):
            await until_stopped(work())
    except TimeoutError:
        report.say(f"{ending.seconds:g} seconds are over; ending")
    return status


async def check_port(api: ApiSettings, key: str = _API_PORT.port_key) -> None:
    """Check that the API can listen on its port, before anything is measured.

    Args: key, the name of the port in errors.
    Raises: OperatorError.
    """

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


async def _watch(
    settings: Settings, reader: PublicReader, report: Report, ending: Ending, api_port: ApiPort
) -> int:
    """Run the children and show progress until one refuses to run or the requested work is done."""
    # The API and alerts get no access to the store's secret half, to metrics or to events.
    public = replace(settings.redis, url=None, accept=None)
    kafka = settings.kafka if settings.alerts.topic is not None else None  # except to notify a topic
    alerts_only = replace(settings, redis=public, kafka=kafka, operator=None)
    api_redis = replace(public, alerts_url=None)
    api_only = replace(alerts_only, redis=api_redis, kafka=None, alerts=AlertSettings())
    worker = asyncio.ensure_future(run_child(Role("worker", settings), report.say))
    progress = asyncio.ensure_future(_follow(settings, reader, report))
    reading = [Role("api", api_only)] if api_port.is_open else []
    watching = [Role("alerts", alerts_only)] if settings.alerts.rules else []
    apis = [asyncio.ensure_future(run_child(role, report.say)) for role in reading]
    alerts = [asyncio.ensure_future(run_child(role, report.say)) for role in watching]
    running = {worker, progress, *apis, *alerts}
    try:
        while True:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if progress in done:
                progress.result()
            if worker in done and worker.result() == COMPLETE:
                await _show(settings, reader, report)
                if ending.when_complete:
                    return COMPLETE
                report.say(f"the replay is complete; {address(settings.api)} stays up until Ctrl-C")
            for child in (worker, *apis, *alerts):
                if child in done and child.result() != COMPLETE:
                    return child.result()
            if done.intersection(apis):
                return COMPLETE
    finally:
        for task in (progress, worker, *apis, *alerts):
            task.cancel()
        await asyncio.gather(progress, worker, *apis, *alerts, return_exceptions=True)


def address(api: ApiSettings) -> str:
    """Return the URL of the page."""
    host = f"[{api.host}]" if ":" in api.host else api.host
    return f"http{'s' if api.tls else ''}://{host}:{api.port}/"


async def _say_what_happens(
    settings: Settings, reader: PublicReader, report: Report, api_port: ApiPort
) -> None:
    """Print who is served, and how this start continues from earlier state."""
    if api_port.is_open:
        report.say(f"page and API: {address(settings.api)}    (Ctrl-C ends it)")
    if api_port.is_open and settings.api.keys is None and settings.api.proxy_header is None:
        whose = "everybody on this machine" if is_loopback(settings.api.host) else "EVERYBODY WHO REACHES IT"
        report.say(f"no API key is required: {whose} may read the released values")
    for stream in settings.streams:
        now = await _progress(stream, reader)
        if now.until_us is None:
            report.say(f"{stream.name}: nothing was released yet; {_begins(stream)}")
        elif now.complete:
            report.say(
                f"{stream.name}: already complete; what was released is served, nothing is measured again"
            )
        else:
            until = format_instant(now.until_us)
            report.say(f"{stream.name}: going on from {until}; nothing is measured again")


def _begins(stream: StreamSettings) -> str:
    """Return a text on where counting begins, so that nobody waits for old events that are refused."""
    if stream.declared.source.replay is not None:
        return "starting"
    first_us = stream.declared.time.first_us
    if first_us is not None:
        return f"counting begins at {format_instant(first_us)}, earlier events are refused"
    return "counting begins with the bin of the first start, earlier events are refused (time.first)"


async def _follow(settings: Settings, reader: PublicReader, report: Report) -> None:
    while True:
        with contextlib.suppress(OSError):  # the children report errors of the store
            await _show(settings, reader, report)
        await asyncio.sleep(_LOOK_EVERY_S)


async def _show(settings: Settings, reader: PublicReader, report: Report) -> None:
    report.show([await _progress(stream, reader) for stream in settings.streams])


async def _progress(stream: StreamSettings, reader: PublicReader) -> StreamProgress:
    """Return a stream's progress, from public values only."""
    replay, of_bins = stream.declared.source.replay, None
    if replay is not None:
        first, last = stream.declared.time.binning.bin_of([replay.from_us, replay.to_us])
        of_bins = int(last - first)
    state = await reader.public_state(stream.name)
    rows = await reader.rows(stream.name, state.visible_seq - 1, 1) if state and state.visible_seq else []
    if not rows:
        return StreamProgress(stream.name, 0, of_bins)
    return StreamProgress.of_row(json.loads(rows[-1][1]), of_bins, replay.to_us if replay else None)
