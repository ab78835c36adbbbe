"""Run the whole service in one command: a store, a worker, an API and alerts, supervised together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from dataclasses import dataclass, replace
from typing import Any, Never

from stream_app.addresses import once_free
from stream_app.config import AlertSettings, ApiSettings, Settings, StreamSettings
from stream_app.config.access import check_operator, is_loopback
from stream_app.core.instants import format_instant
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader
from stream_app.shell.processes import COMPLETE, NOTHING_COUNTED, REFUSED, run_child, until_stopped
from stream_app.shell.progress import Report, StreamProgress
from stream_app.shell.refused import refused_lines
from stream_app.wiring.event_logs import check_files
from stream_app.wiring.public import open_reader
from stream_app.wiring.redis_server import redis_server

_LOOK_EVERY_S = 0.25
_PREDECESSOR_S = 3.0  # report an occupied port soon; the API itself waits longer


@dataclass(frozen=True, slots=True)
class Service:
    """When the service ends by itself, and whether it serves readers. It always ends on Ctrl-C.

    Args:
        seconds: end after this long; 0 for never.
        when_complete: end as soon as every replay has released its last bin.
        serves: whether the API runs; if not, no port is used.
        port_key: the configuration key or option that errors name for the API's port.
        tells_refused: whether to say at the end how many records were refused. SECRET.
    """

    seconds: float = 0
    when_complete: bool = False
    serves: bool = True
    port_key: str = "api.port"
    tells_refused: bool = False


async def run_service(settings: Settings, report: Report, service: Service) -> int:
    """Run the service's processes with separate Redis users; return the exit status.

    Returns: 0 after Ctrl-C, the requested end, or a completed replay; 2 after an operator's error.
    Raises: OperatorError if it cannot start.
    """
    check_files(settings.streams)
    check_operator(settings.operator)
    if service.serves:
        await _check_port(settings.api, service.port_key)
    status = COMPLETE

    async def work() -> None:
        nonlocal status
        async with redis_server(settings) as connected, open_reader(connected) as reader:
            try:
                await _say_what_happens(settings, reader, report, service)
            except OSError as failure:
                raise OperatorError(f"redis.api_url: {failure}") from None
            status = await _watch(connected, reader, report, service)

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


def _roles(settings: Settings, service: Service) -> dict[str, Settings]:
    """Return the children to run, each with the settings that it may see.

    The API and alerts get no access to the store's secret half, to metrics or to events.
    """
    public = replace(settings.redis, url=None, accept=None)
    kafka = settings.kafka if settings.alerts.topic is not None else None  # except to notify a topic
    alerts_only = replace(settings, redis=public, kafka=kafka, operator=None, ingest=None)
    api_redis = replace(public, alerts_url=None)
    api_only = replace(alerts_only, redis=api_redis, kafka=None, alerts=AlertSettings())
    roles = {"worker": settings}
    if service.serves:
        roles["api"] = api_only
    if settings.alerts.rules:
        roles["alerts"] = alerts_only
    if settings.ingest is not None:
        no_redis = replace(api_redis, api_url=None)
        roles["ingest"] = replace(api_only, redis=no_redis, noise_key_file=None, ingest=settings.ingest)
    return roles


async def _watch(settings: Settings, reader: PublicReader, report: Report, service: Service) -> int:
    """Run the children and show progress until a child refuses to run or the requested work is done."""
    children = {
        asyncio.ensure_future(run_child(role, its_settings, report.say)): role
        for role, its_settings in _roles(settings, service).items()
    }
    progress = asyncio.ensure_future(_follow(settings, reader, report))
    running: set[asyncio.Future[Any]] = {progress, *children}
    try:
        while True:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if progress in done:
                progress.result()
            for child, role in children.items():
                if child not in done:
                    continue
                ended = child.result()
                if ended not in (COMPLETE, NOTHING_COUNTED) or role in ("api", "ingest"):
                    return ended
                if role == "worker":
                    await _show_end(settings, reader, report, service)
                    if service.when_complete:
                        return COMPLETE if ended == COMPLETE else REFUSED
                    report.say(f"the replay is complete; {_address(settings.api)} stays up until Ctrl-C")
    finally:
        for task in (progress, *children):
            task.cancel()
        await asyncio.gather(progress, *children, return_exceptions=True)


async def _show_end(settings: Settings, reader: PublicReader, report: Report, service: Service) -> None:
    """Show what complete replays have released, and how many records they have refused."""
    await _show(settings, reader, report)
    if service.tells_refused:
        for line in await refused_lines(settings):
            report.say(line)


def _address(api: ApiSettings) -> str:
    """Return the URL of the page."""
    return f"http{'s' if api.tls else ''}://{_netloc(api.host, api.port)}/"


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _say_what_happens(
    settings: Settings, reader: PublicReader, report: Report, service: Service
) -> None:
    """Print who is served, and how this start continues from earlier state."""
    if service.serves:
        report.say(f"page and API: {_address(settings.api)}    (Ctrl-C ends it)")
    if service.serves and settings.api.keys is None and settings.api.proxy_header is None:
        whose = "everybody on this machine" if is_loopback(settings.api.host) else "EVERYBODY WHO REACHES IT"
        report.say(f"no API key is required: {whose} may read the released values")
    if settings.ingest is not None:
        ingest = settings.ingest
        scheme = "http" if ingest.tls is None else "https"
        for name in settings.spools:
            report.say(f"events: POST {scheme}://{_netloc(ingest.host, ingest.port)}/v1/ingest/{name}")
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
    """Return where counting begins, so that nobody waits for old events, which are refused."""
    if stream.declared.source.replay is not None:
        return "starting"
    first_us = stream.declared.time.first_us
    if first_us is not None:
        return f"counting begins at {format_instant(first_us)}, earlier events are refused"
    return "counting begins with the bin of the first start, earlier events are refused (time.first)"


async def _follow(settings: Settings, reader: PublicReader, report: Report) -> Never:
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
