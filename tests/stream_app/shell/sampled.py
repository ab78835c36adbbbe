"""A configuration over a file of events, and what ``doctor`` and ``plan`` say of it."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from stream_app.config import load
from stream_app.shell.checks.everything import examine
from stream_app.shell.commands import main
from stream_app.wiring.checks import Finding

STREAM = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
{top}
streams:
  clicks:
    source: {{file: {file}{source}}}
    time: {{field: at, {time}}}
    {more}
"""
TIME = "format: ms, bin: 10s, grace: 5s, epoch: 1d"
PLAIN = "privacy: {epsilon: 1}"


def configured(
    folder: Path,
    events: Iterable[dict[str, Any] | str],
    more: str = PLAIN,
    *,
    time: str = TIME,
    source: str = "",
    file: str = "clicks.ndjson",
    top: str = "",
) -> Path:
    """Write events and a configuration; return the path of the latter. Args: events, or lines as they are."""
    lines = (event if isinstance(event, str) else json.dumps(event) for event in events)
    (folder / file).write_text("".join(f"{line}\n" for line in lines))
    config = folder / "app.yaml"
    config.write_text(STREAM.format(file=file, source=source, time=time, more=more, top=top))
    return config


def examined(config: Path) -> dict[str, list[Finding]]:
    """Return what ``doctor`` finds about each key of the stream."""
    found = defaultdict[str, list[Finding]](list)
    for one in asyncio.run(examine(load(config, {}))):
        found[one.what.removeprefix("streams.clicks.")].append(one)
    return found


def planned(config: Path) -> str:
    """Return what ``plan`` prints."""
    done = CliRunner(env={"COLUMNS": "300"}).invoke(main, ["plan", "--config", str(config)])
    assert done.exit_code == 0, done.output
    return done.output
