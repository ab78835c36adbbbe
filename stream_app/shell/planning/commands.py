"""The commands that say what a configuration will do: ``plan``, ``privacy`` and ``statement``."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from dphist.planning.report import print_whole
from stream_app.shell.options import API_KEY, STREAM, Finite, config_option, load_to_begin
from stream_app.shell.planning.caps import caps_table, released_caps
from stream_app.shell.planning.comparing import chosen_streams, epsilons_for
from stream_app.shell.planning.promises import page, promises
from stream_app.shell.planning.shown import print_plan
from stream_app.shell.present_step import working
from stream_app.shell.terminal import echo_wrapped


@click.command()
@config_option
@click.option("--stream", type=STREAM, help="This stream only.")
@click.option("--compare", is_flag=True, help="Add other ways to count, and both modes of the promise.")
@click.option(
    "--target-rmse",
    type=Finite(min=0, min_open=True),
    help="Show the smallest epsilon that reaches this error instead.",
)
@click.option(
    "--caps",
    metavar="FILE|URL",
    help="Show what caps on a user's events would cost, by this file of events or this running service.",
)
def plan(
    config: Path,
    stream: str | None,
    compare: bool,
    target_rmse: float | None,
    caps: str | None,
) -> None:
    """Show the errors of answers before anything is counted.

    The plans of the streams follow.

    \b
    Examples:
      stream-app plan --config examples/flights.yaml
      stream-app plan --config examples/flights.yaml --compare
      stream-app plan --config examples/flights.yaml --target-rmse 20
      stream-app plan --config app.yaml --stream visits --caps sample.ndjson
      stream-app plan --config app.yaml --stream visits --caps http://127.0.0.1:8088
    """
    streams = chosen_streams(load_to_begin(config), stream)
    if caps is not None:
        with working("reading the events of the sample"):
            if caps.startswith(("http://", "https://")):
                shown = [released_caps(one.name, caps, os.environ.get(API_KEY)) for one in streams]
            else:
                shown = [caps_table(one, Path(caps)) for one in streams]
        for table in shown:
            print_whole(table)
    elif target_rmse is not None:
        with working("searching for the smallest epsilon"):
            lines = list(epsilons_for(streams, target_rmse))
        for line in lines:
            echo_wrapped(line)
    else:
        print_plan(streams, compare=compare)


@click.command()
@config_option
def privacy(config: Path) -> None:
    """State in words what a configuration promises, and its cost.

    It says to whom, and the cost per source.

    \b
    Example:
      stream-app privacy --config examples/flights.yaml
    """
    settings = load_to_begin(config)
    with working("planning every stream"):
        lines = list(promises(settings, time.time_ns() // 1_000))
    for line in lines:
        click.echo(line)


@click.command()
@config_option
@click.argument("stream", type=STREAM)
def statement(config: Path, stream: str) -> None:
    """Print one page about a stream, for lawyers and readers.

    The page is Markdown. It says what the stream promises, and to whom.

    \b
    Example:
      stream-app statement departures --config examples/flights.yaml
    """
    (chosen,) = chosen_streams(load_to_begin(config), stream)
    with working("planning the stream"):
        lines = list(page(chosen, time.time_ns() // 1_000))
    for line in lines:
        click.echo(line)
