"""Common parts of commands: one-line errors, and options for the configuration and the service."""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stream_app.config import Settings, load, values
from stream_app.config.second_measurement import check_measurements
from stream_app.ports import OperatorError
from stream_app.shell.ending import exit_status

API_KEY = "STREAM_APP_API_KEY"


def refusals_in_one_line(command: Callable[..., int | None]) -> Callable[..., None]:
    """Wrap a command so that errors the operator must correct become one line and status 2."""

    @functools.wraps(command)
    def guarded(*arguments: Any, **options: Any) -> None:
        sys.exit(exit_status(lambda: command(*arguments, **options)))

    return guarded


class Finite(click.FloatRange):
    """A finite number within bounds; refuses nan, which no bound excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Raises: click.BadParameter, which names the option."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def config_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option that names the configuration."""
    return click.option(
        "--config",
        "-c",
        type=click.Path(path_type=Path),
        default=Path("stream-app.yaml"),
        show_default=True,
        help="The configuration file; docs/configuration.md explains every key.",
    )(command)


def service_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a running service."""
    url = click.option("--url", default="http://127.0.0.1:8088", show_default=True, help="The service.")
    key = click.option("--api-key", envvar=API_KEY, help=f"The API key; better in {API_KEY}.")
    return url(key(command))


def read_pace(speed: str) -> float | None:
    """Read ``--speed`` as a configuration's ``speed`` is read. Raises: OperatorError.

    >>> read_pace("60"), read_pace("1d/s"), read_pace("max")
    (60.0, 86400.0, None)
    """
    try:
        return values.speed(float(speed) if speed.replace(".", "", 1).isdigit() else speed)
    except ValueError as refusal:
        raise OperatorError(f'--speed "{speed}": {refusal}') from None


def load_to_begin(config: Path) -> Settings:
    """Read a configuration, and refuse now what the first start of its streams would refuse.

    Raises: ConfigError.
    """
    settings = load(config)
    check_measurements(settings.streams, time.time_ns() // 1_000)
    return settings
