"""``stream-app replay FILE``: a configuration made of options, for one file and one epoch."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from stream_app.config import Settings, file_identity, load_text
from stream_app.config.values import duration_us, format_duration
from stream_app.core.instants import parse_instant
from stream_app.ports import OperatorError
from stream_app.shell.progress import open_report
from stream_app.shell.supervision import Ending, run_service


def run_replay(file: Path, serve: bool, **options: Any) -> int:
    """Replay one file; return the exit status. Options are those of the command line."""
    settings = replay_settings(file, **options)
    report = open_report()
    try:
        return asyncio.run(run_service(settings, report, Ending(when_complete=not serve)))
    finally:
        report.close()


def replay_settings(
    file: Path,
    *,
    field: str,
    time_format: str,
    file_format: str,
    start: str,
    end: str,
    bin_length: str,
    epsilon: str,
    name: str,
    state: str,
    speed: str,
    port: int,
) -> Settings:
    """Return the settings that the options stand for: they are read and refused as a file's would be.

    >>> options = {"field": "at", "time_format": "s", "file_format": "ndjson", "bin_length": "1h", "port": 80}
    >>> options |= {"epsilon": "1", "name": "replay", "state": "state", "speed": "max"}
    >>> settings = replay_settings(Path("events.ndjson"), start="0", end="7200", **options)
    >>> settings.streams[0].time.epoch_bins
    2
    """
    try:
        epoch_us = parse_instant(end) - parse_instant(start)
        duration_us(bin_length)
    except ValueError as refusal:
        raise OperatorError(f"replay: {refusal}") from None
    if epoch_us <= 0:
        raise OperatorError(f"replay: --to {end} must be later than --from {start}")
    document = {
        "redis": {"url": f"embedded:{state}/redis"},
        "state": {"dir": state},
        "api": {"port": port},
        "streams": {
            name: {
                "source": {
                    "file": str(file),
                    "format": file_format,
                    "replay": {"from": start, "to": end, "speed": speed},
                },
                "time": {
                    "field": field,
                    "format": time_format,
                    "bin": bin_length,
                    "epoch": format_duration(epoch_us),
                },
                "privacy": {"epsilon": epsilon},
            }
        },
    }
    settings = load_text(json.dumps(document), Path("options"), {})
    (stream,) = settings.streams
    # The ledger lies in the state directory, so a file has one name there, wherever the command was given.
    identity = file_identity(file, Path(state))
    source = replace(stream.source, identity=identity)
    return replace(settings, streams=(replace(stream, source=source),))
