"""Options that several commands share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml
from click.shell_completion import CompletionItem

from stream_app.config import Settings, load, values
from stream_app.config.plain_yaml import Loader
from stream_app.config.second_measurement import check_measurements, over
from stream_app.ports import OperatorError

C = TypeVar("C", bound=Callable[..., int | None])

CONFIG = Path("stream-app.yaml")
API_KEY = "STREAM_APP_API_KEY"
BROKER = "127.0.0.1:9092"


class Finite(click.FloatRange):
    """A finite number within bounds; refuses nan, which no bound excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Raises: click.BadParameter, which names the option."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class StreamName(click.types.StringParamType):
    """The name of a stream. A shell completes it from the configuration that the command line names."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the streams that begin with what is typed; none if the configuration cannot be read."""
        try:
            text = Path(ctx.params.get("config") or CONFIG).read_text(encoding="utf-8")
            names = list(map(str, yaml.load(text, Loader)["streams"]))
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


STREAM = StreamName()


def config_option(command: C) -> C:
    """Add the option that names the configuration."""
    return click.option(
        "--config",
        "-c",
        type=click.Path(path_type=Path),
        default=CONFIG,
        show_default=True,
        help="The configuration file; docs/configuration.md explains every key.",
    )(command)


def bootstrap_option(command: C) -> C:
    """Add the option that names the brokers of a cluster."""
    return click.option(
        "--bootstrap-servers",
        "-b",
        envvar=["STREAM_APP_KAFKA_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS"],
        help="host:port of a broker or several, separated by commas; by default those of the configuration, "
        f"else {BROKER}.  [env: KAFKA_BOOTSTRAP_SERVERS]",
    )(command)


def service_options(command: C) -> C:
    """Add the options that name a running service."""
    url = click.option("--url", default="http://127.0.0.1:8088", show_default=True, help="The service.")
    key = click.option("--api-key", envvar=API_KEY, help=f"The API key; better in {API_KEY}.")
    return url(key(command))


def read_pace(option: str, pace: str) -> float | None:
    """Read a pace as a configuration's ``speed`` is read: log seconds per second, None for "max".

    >>> read_pace("--speed", "60"), read_pace("--speed", "1d/s"), read_pace("--speed", "max")
    (60.0, 86400.0, None)
    """
    try:
        return values.speed(float(pace) if pace.replace(".", "", 1).isdigit() else pace)
    except ValueError as refusal:
        raise OperatorError(f'{option} "{pace}": {refusal}') from None


def live_pace(option: str, pace: str) -> float:
    """Read the pace at which past events happen now, in log seconds per second; "max" is refused."""
    read = read_pace(option, pace)
    if read is None:
        raise OperatorError(f'{option} "max": is no pace for live events; write a factor such as 60, or 3h/s')
    return read


def load_to_begin(config: Path) -> Settings:
    """Read a configuration, and refuse it now if the first start of its streams would."""
    settings, now_us = load(config), time.time_ns() // 1_000
    check_measurements(settings.streams, now_us, begun=over(settings.streams, now_us))
    return settings
