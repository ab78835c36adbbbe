"""The releases behind the demo page: one deployment of the real service for each epsilon and unit.

All count the same events, those that ``stream-app demo`` replays. Each has its own state, secrets and ledger,
so its privacy statement is that of a service that is alone with the events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stream_app.config import load_text
from stream_app.core.answers.labels import AllLabels, Labels
from stream_app.ports.reader import PublicReader
from stream_app.wiring.public import open_reader
from stream_app.wiring.redis_server import redis_server
from stream_app.wiring.workers import run_worker

START = datetime(2013, 1, 1, 5, tzinfo=UTC)  # midnight in New York
DAYS = 365
ZONE = "America/New_York"
EPSILONS = ("0.1", "0.3", "1", "3")  # of a whole deployment: each of its two streams has half
MOST_IN_A_DAY = 6  # departures of one aircraft; a recount checks that neither cap leaves any out
MOST_IN_A_YEAR = 600
LEAST_DELAY, MOST_DELAY = -30, 120  # minutes; delays beyond count as these
UNITS = {
    "departure": "event",
    "day": f"{{user: tailnum, max_events: {MOST_IN_A_DAY}, per: 1d}}",
    "year": f"{{user: tailnum, max_events: {MOST_IN_A_YEAR}}}",
}
LABELS = AllLabels({"departures": Labels("Departures", ZONE), "delays": Labels("Delays", ZONE)})


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a reader of the page can choose. Args: epsilon, of both streams together; unit, a key of UNITS."""

    epsilon: str
    unit: str

    @property
    def name(self) -> str:
        """Return a name for files and for the page."""
        return f"{self.unit}-{self.epsilon}"

    def configuration(self, events: Path, days: int) -> str:
        """Return the configuration of the service. Args: days, how much of the year is replayed."""
        until = START + timedelta(days=days)
        shared = f"""
    source: {{file: "{events}", replay: {{from: {_instant(START)}, to: {_instant(until)}, speed: max}}}}
    privacy: {{epsilon: {float(self.epsilon) / 2:g}, unit: {UNITS[self.unit]}, accept: "measured again"}}
    time: {{field: scheduled, format: iso8601, bin: 1h, epoch: 366d}}
    late: drop"""
        return f"""
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
streams:
  departures: {shared}
  delays: {shared}
    value: {{field: delay_minutes, min: {LEAST_DELAY}, max: {MOST_DELAY}, buckets: 30}}
"""


DEPLOYMENTS = tuple(Deployment(epsilon, unit) for unit in UNITS for epsilon in EPSILONS)


@asynccontextmanager
async def released(
    deployment: Deployment, events: Path, folder: Path, days: int = DAYS
) -> AsyncIterator[PublicReader]:
    """Replay the events through the service, with real noise; then yield a reader of what was released.

    Args: events, the file of ``stream_app.shell.flights``; folder, for the state. Both are absolute paths.
    """
    settings = load_text(deployment.configuration(events, days), folder / "stream-app.yaml")
    async with redis_server(settings) as connected:
        await run_worker(connected)
        async with open_reader(connected) as reader:
            yield reader


def _instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
