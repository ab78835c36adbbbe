"""The Faust app that hosts the loops: ``faust -A stream_app.worker worker``, or ``stream-app worker``.

Faust gives the worker its life, its agents and its topics for what is rare: commands, and whoever wants to
react to releases. Events do not pass through it: a loop that owns its consumer counts them by the batch.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any, ClassVar

import faust
import msgspec
from aiokafka.errors import KafkaError
from faust.contrib.asgi import faust_app_running
from mode import Service

from stream_app.bootstrap import run_worker
from stream_app.config import ConfigError, KafkaSettings, Settings, load
from stream_app.durable import state_directory
from stream_app.event_logs import cluster_of
from stream_app.kafka_cluster import reach
from stream_app.monitoring.logs import dict_config
from stream_app.ports import OperatorError

CONFIG = "STREAM_APP_CONFIG"  # the configuration file, for Faust's own command line
AGAIN_S = 1.0

log = logging.getLogger(__name__)


class Command(msgspec.Struct, frozen=True):
    """What an operator may send to ``GROUP.commands``; ``{"set": "log_level", "to": "INFO"}``."""

    set: str
    to: str


class Counting(Service):
    """Counts and releases for as long as the app lives; ``ended`` holds how that went."""

    settings: ClassVar[Settings]
    faust_reports: ClassVar[bool]  # else whoever waits for ``ended`` does
    abstract: ClassVar[bool] = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @Service.task
    async def _count(self) -> None:
        try:
            await run_worker(self.settings)
        except OperatorError as refusal:
            self.ended.set_exception(refusal)
            if self.faust_reports:
                # The line is all that there is to say; Faust prints where it came from as well.
                log.error("%s", refusal)
                await self.crash(refusal)
        else:
            self.ended.set_result(None)


def make_app(settings: Settings, faust_reports: bool = True) -> faust.App:
    """Return an app that counts what the settings say.

    Args: faust_reports, whether a refusal ends the app; else it is in ``Counting.ended`` only.
    Raises: OperatorError where the settings name no cluster.
    """
    kafka = settings.kafka
    if kafka is None:
        raise OperatorError("kafka: is missing, and Faust needs a cluster; or stream-app run for files")
    state_directory("state.dir", settings.state_dir)
    app = faust.App(
        kafka.group,
        broker=[f"kafka://{server}" for server in kafka.bootstrap_servers.split(",")],
        broker_credentials=_credentials(kafka),
        topic_partitions=1,
        # Its pages and metrics would show how many events there are.
        web_enabled=False,
        web_tables_enabled=False,
        web_router_enabled=False,
        datadir=settings.state_dir / "faust",
        worker_redirect_stdouts=False,
        logging_config=dict_config("worker"),
    )
    # A Faust worker without a topic ends at once: this one listens to its operator.
    commands = app.topic(f"{kafka.group}.commands", value_type=bytes, value_serializer="raw", internal=True)
    app.agent(commands, name="commands")(_obey)
    members = {"settings": settings, "faust_reports": faust_reports, "abstract": False}
    app.service(type("Counting", (Counting,), members))
    return app


async def run(settings: Settings) -> None:
    """Run the app on this loop until cancelled. Raises: OperatorError, one line, where it cannot go on."""
    while True:
        try:
            ended = await _run_once(settings)
        except (OSError, KafkaError) as failure:
            log.warning("%s; trying again", failure)
        else:
            if ended.done():
                return ended.result()
            log.warning("faust ended; starting it again, nothing is lost or counted twice")
        await asyncio.sleep(AGAIN_S)


async def _run_once(settings: Settings) -> asyncio.Future[None]:
    """Run an app until it or its counting ends. Raises: OSError, KafkaError where it could not start."""
    app = make_app(settings, faust_reports=False)
    if settings.kafka is not None:
        # Faust would say only that it cannot connect, and leave its clients half started.
        await reach(cluster_of(settings.kafka))
    async with faust_app_running(app):
        ended = next(service for service in app._children if isinstance(service, Counting)).ended
        crashed = asyncio.ensure_future(app.wait_until_stopped())
        await asyncio.wait([ended, crashed], return_when=asyncio.FIRST_COMPLETED)
        crashed.cancel()
    return ended


async def _obey(commands: faust.StreamT[bytes]) -> None:
    async for sent in commands:
        try:
            command = msgspec.json.decode(sent, type=Command)
            if command.set != "log_level":
                raise ValueError("set: must be log_level")
            logging.getLogger("stream_app").setLevel(command.to)
        except ValueError as refusal:
            log.warning("command refused: %s", refusal)


def _credentials(kafka: KafkaSettings) -> Any:
    """Return how Faust's own consumers and producers say who they are."""
    security = kafka.security
    protocol = security.get("security.protocol", "plaintext")
    context = cluster_of(kafka).ssl_context()
    if protocol == "plaintext":
        return None
    if protocol == "ssl":
        return faust.SSLCredentials(context)
    return faust.SASLCredentials(
        username=security["sasl.username"],
        password=security["sasl.password"],
        ssl_context=context,
        mechanism=security.get("sasl.mechanism", "PLAIN"),
    )


def __getattr__(name: str) -> Any:
    """Make the app of ``STREAM_APP_CONFIG`` when Faust's command line asks for it."""
    if name != "app":
        raise AttributeError(name)
    path = os.environ.get(CONFIG)
    if path is None:
        raise ConfigError(f"environment: {CONFIG} is missing; name the configuration file in it")
    globals()["app"] = make_app(load(Path(path)))
    return globals()["app"]
