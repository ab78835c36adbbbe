"""``stream-app replay FILE``: a configuration built from options, for one file and one epoch."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from stream_app.config import ConfigError, Settings, file_identity, load_text
from stream_app.config.streams import MOST_BINS
from stream_app.config.values import format_duration, positive_duration_us
from stream_app.core.instants import format_instant, parse_instant
from stream_app.core.ledger import ACCEPTED
from stream_app.ports import OperatorError
from stream_app.shell.checks.everything import contents
from stream_app.shell.options import read_pace
from stream_app.shell.present_step import working
from stream_app.shell.processes import COMPLETE
from stream_app.shell.progress import Report, open_report
from stream_app.shell.supervision import Service, run_service
from stream_app.wiring.event_logs import why_unreadable
from stream_app.wiring.starting import SET_LEDGER

# Configuration keys and the options that set them, for error messages.
_OPTIONS = {
    "source.file": "FILE",
    "source.format": "--format",
    "source.replay": "--from and --to",
    "source.replay.from": "--from",
    "source.replay.to": "--to",
    "time.field": "--field",
    "time.format": "--time-format",
    "time.bin": "--bin",
    "time.epoch": "--to",
    "time.first": "--from",
    "privacy.epsilon": "--epsilon",
    "api.port": "--port",
    "state.dir": "--state",
}
_KEYS = "|".join(sorted(map(re.escape, _OPTIONS), key=len, reverse=True))
_KEY = re.compile(rf"(?<![\w./-])(?:{_KEYS})(?![\w/-]|\.\w)")
_AGAIN = "count the file again with another --state DIR, which costs its epsilon once more"
# Remedies that a configuration has and the command line has not, and what to do instead.
_REMEDIES = {
    "put that back, or give the new stream another name": f"put that back, or {_AGAIN}",
    "put it back, or give the new stream another name": f"put it back, or {_AGAIN}",
    f'; write accept: "{ACCEPTED}" to accept that': f"; serve that with its options and --serve, or {_AGAIN}",
    "privacy.accept is missing: ": "FILE: ",
    "name its zone in time.zone": "write its offset, or name its zone in time.zone of a configuration",
    f" {SET_LEDGER}": "",
}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--field", required=True, help="Field with the event's time; dots name nested fields.")
@click.option("--time-format", default="iso8601", show_default=True, help="s, ms, us, ns or iso8601.")
@click.option("--format", "file_format", help="ndjson or csv.  [default: what the name of FILE says]")
@click.option("--from", "start", required=True, help="Start of the first bin, RFC 3339.")
@click.option("--to", "end", required=True, help="End of the last bin, RFC 3339.")
@click.option("--bin", "bin_length", default="1h", show_default=True, help="Length of a bin.")
@click.option("--epsilon", default="1", show_default=True, help="The privacy budget for each event.")
@click.option("--name", default="replay", show_default=True, help="The stream's name.")
@click.option("--state", default="state/replay", show_default=True, help="Directory for the state.")
@click.option(
    "--speed", default="max", show_default=True, help="max, a factor, or log time per second: 9d/s."
)
@click.option("--port", default=8088, show_default=True, help="With --serve: port of the page.")
@click.option("--serve", is_flag=True, help="Stay and serve when the replay is complete.")
def replay(file: Path, serve: bool, **options: Any) -> int:
    """Replay FILE once, as one epoch.

    It releases the counts and leaves, or serves them with --serve.

    FILE may be compressed (.gz, .bz2, .xz, .zst), and may be a list such as 'clicks-*.csv.gz': its files in
    the order of their names.

    \b
    Examples:
      stream-app replay events.ndjson --field at --bin 1d \\
        --from 2024-01-01T00:00:00Z --to 2025-01-01T00:00:00Z --epsilon 1
      stream-app replay 'clicks-*.csv.gz' --field at --bin 1h \\
        --from 2024-01-01T00:00:00Z --to 2025-01-01T00:00:00Z --serve
    """
    settings = replay_settings(file, **options)
    if why := why_unreadable(file):
        raise OperatorError(f"FILE: {why}")
    try:
        return _replay(settings, file, serve, options)
    except OperatorError as refusal:
        raise OperatorError(_of_options(str(refusal), options["name"])) from None


def _replay(settings: Settings, file: Path, serve: bool, options: Mapping[str, Any]) -> int:
    with working(f"reading a sample of {file.name}"):
        warning = _check_times(settings)
    service = Service(when_complete=not serve, serves=serve, port_key="--port", tells_refused=True)
    with open_report() as opened:
        report = _InOptions(opened, options["name"])
        if warning is not None:
            report.say(f"warning: {warning}")
        status = asyncio.run(run_service(settings, report, service))
        if status == COMPLETE and not serve:
            report.say(
                f"what was released stays in {options['state']}; --serve beside the same options serves it"
            )
        return status


def _check_times(settings: Settings) -> str | None:
    """Refuse a file that these options cannot read; return a warning if a sample has nothing to count."""
    (stream,) = settings.streams
    finding = next((one for one in contents(stream) if one.state == "fail" or one.exact), None)
    if finding is None:
        return None
    said = f"{finding.what}: {finding.said}"
    if finding.state == "fail":
        raise OperatorError(said)
    return said


class _InOptions:
    """A report whose lines name the command's options in place of keys of a configuration."""

    def __init__(self, report: Report, stream: str) -> None:
        self._report, self._stream = report, stream
        self.show = report.show

    def say(self, line: str) -> None:
        """Print a message."""
        self._report.say(_of_options(line, self._stream))


def replay_settings(
    file: Path,
    *,
    field: str,
    time_format: str,
    file_format: str | None,
    start: str,
    end: str,
    bin_length: str,
    epsilon: str,
    name: str,
    state: str,
    speed: str,
    port: int,
) -> Settings:
    """Return the settings of these options, checked like those of a configuration file.

    >>> options = {"field": "at", "time_format": "s", "file_format": None, "bin_length": "1h", "port": 80}
    >>> options |= {"epsilon": "1", "name": "replay", "state": "state", "speed": "max"}
    >>> settings = replay_settings(Path("events.ndjson"), start="0", end="7200", **options)
    >>> settings.streams[0].declared.time.epoch_bins
    2
    """
    bin_us = _read("--bin", bin_length, positive_duration_us)
    start_us, end_us = _edge("--from", start, bin_us), _edge("--to", end, bin_us)
    if end_us <= start_us:
        raise OperatorError(f"--to {end} must be later than --from {start}; move one of them")
    if (bins := (end_us - start_us) // bin_us) > MOST_BINS:
        raise OperatorError(
            f"--bin {bin_length}: makes {bins:,} bins, more than {MOST_BINS:,}; take longer bins"
        )
    document = {
        "redis": {"url": f"embedded:{state}/redis"},
        "state": {"dir": state},
        "api": {"port": port},
        "streams": {
            name: {
                "source": {
                    "file": str(file),
                    **({} if file_format is None else {"format": file_format}),
                    "replay": {"from": start, "to": end, "speed": read_pace("--speed", speed) or "max"},
                },
                "time": {
                    "field": field,
                    "format": time_format,
                    "bin": bin_length,
                    "epoch": format_duration(end_us - start_us),
                },
                "privacy": {"epsilon": epsilon},
            }
        },
    }
    try:
        settings = load_text(json.dumps(document), Path("options"), {})
    except ConfigError as refusal:
        raise OperatorError(_of_options(str(refusal), name)) from None
    (stream,) = settings.streams
    # The ledger is in the state directory, so a file's name is relative to it, not to the working directory.
    log = structs.replace(
        stream.declared.source, name=file_identity(file, Path(state), stream.declared.source.format)
    )
    declared = structs.replace(stream.declared, source=log)
    logs = replace(settings.logs, directory=Path(state))
    return replace(settings, streams=(replace(stream, declared=declared),), logs=logs)


def _read(option: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except ValueError as refusal:
        raise OperatorError(f"{option} {text}: {refusal}") from None


def _edge(option: str, text: str, bin_us: int) -> int:
    """Read an instant between two bins. Raises: OperatorError."""
    at_us = _read(option, text, parse_instant)
    if past_us := at_us % bin_us:
        near = f"{format_instant(at_us - past_us)} or {format_instant(at_us - past_us + bin_us)}"
        raise OperatorError(f"{option} {text} is inside a bin of {format_duration(bin_us)}; write {near}")
    return at_us


def _of_options(said: str, name: str) -> str:
    """Return a line with option names in place of configuration keys. Args: name, of the stream.

    >>> _of_options('options:1: streams.replay.source.format "xml": must be one of ndjson, csv', "replay")
    '--format "xml": must be one of ndjson, csv'
    >>> _of_options("replay: 2 refused as bad_time; correct time.field or time.format", "replay")
    'replay: 2 refused as bad_time; correct --field or --time-format'
    """
    said = re.sub(r"\boptions(:\d+)?: ", "", said)
    said = re.sub(rf"^streams\.{re.escape(name)} ", f'--name "{name}" ', said)
    said = said.replace(f"streams.{name}.", "")
    for remedy, instead in _REMEDIES.items():
        said = said.replace(remedy, instead)
    said = _KEY.sub(lambda key: _OPTIONS[key[0]], said)
    # The command line has no option not_private, so the hint is removed.
    return said.partition(", or say not_private")[0]
