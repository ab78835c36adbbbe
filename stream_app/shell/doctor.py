"""``stream-app doctor``: look at what a configuration needs, one finding each, changing nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stream_app.config import Settings, StreamSettings
from stream_app.ports import OperatorError
from stream_app.shell.supervision import check_port
from stream_app.state.embedded import find_server
from stream_app.state.safety import check_safety


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    good: bool
    said: str


async def examine(settings: Settings) -> list[Finding]:
    """Return a finding for each file, directory and address of a configuration, and for its Redis."""
    findings = [_source(stream) for stream in settings.streams]
    findings += _directories(settings)
    findings.append(_port(settings))
    findings.append(await _redis(settings))
    return findings


def _source(stream: StreamSettings) -> Finding:
    file, what = stream.source.file, f"streams.{stream.name}.source.file"
    if not file.is_file():
        return Finding(what, False, f"{file} is not there; create it or correct the path")
    if not os.access(file, os.R_OK):
        return Finding(what, False, f"{file} cannot be read; let this user read it")
    return Finding(what, True, f"{file} can be read")


def _directories(settings: Settings) -> Iterator[Finding]:
    places = {"state.dir": settings.state_dir}
    if settings.redis.embedded is not None:
        places["redis.url"] = settings.redis.embedded
    for what, directory in places.items():
        nearest = _nearest(directory)
        if not os.access(nearest, os.W_OK):
            yield Finding(what, False, f"{nearest} cannot be written; choose another directory")
        else:
            yield Finding(what, True, f"{directory} can be written")


def _nearest(directory: Path) -> Path:
    while not directory.exists():
        directory = directory.parent
    return directory


def _port(settings: Settings) -> Finding:
    try:
        check_port(settings.api)
    except OperatorError as refusal:
        return Finding("api.port", False, str(refusal))
    return Finding("api.port", True, f"{settings.api.host}:{settings.api.port} is free")


async def _redis(settings: Settings) -> Finding:
    try:
        if settings.redis.url is None:
            return Finding("redis.url", True, f"embedded: {find_server()}")
        await check_safety(settings.redis.url, settings.redis.accept)
    except OperatorError as refusal:
        return Finding("redis.url", False, str(refusal))
    return Finding("redis.url", True, "keeps what it acknowledges")
