"""The file of API keys: a line each, with the hash of the key and the streams that it opens."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Never

from stream_app.api.admission.access import ApiKey, digest_of
from stream_app.config import values
from stream_app.ports import OperatorError

EVERY_STREAM = "*"
LOOK_EVERY_S = 1.0

log = logging.getLogger(__name__)


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Return the keys of a file, as a service starts with them. Raises: OperatorError, one line."""
    try:
        keys, refusals = _read(path)
    except FileNotFoundError:
        raise OperatorError(f"api.keys: {path} does not exist; make it with stream-app api-key") from None
    if refusals:
        raise refusals[0]
    if not keys:
        raise OperatorError(f"api.keys: {path} holds no key; add one with stream-app api-key")
    return keys


async def follow_keys(path: Path, take: Callable[[tuple[ApiKey, ...]], None]) -> Never:
    """Hand over the keys of a file, now and whenever it changes.

    What is not in it opens nothing: the last line may be taken out, and so may the file. A line that is no
    key is told and left out. Only a file that is there and cannot be read leaves all as it was.
    Cost: a look at the file every second.
    """
    seen: object = object()  # no mark: the file may have changed since the service read it at its start
    while True:
        mark = _mark(path)
        if mark == seen:
            await asyncio.sleep(LOOK_EVERY_S)
            continue
        seen = mark
        try:
            keys, refusals = _read(path)
        except FileNotFoundError:
            keys, refusals = (), []
        except OperatorError as refusal:
            log.error("%s; the keys that were read before still hold", refusal)
            continue
        take(keys)
        for one in refusals:
            log.error("%s; the other keys hold", one)
        if keys:
            log.info("api.keys: read again")
        else:
            log.warning("api.keys: %s holds no key: nobody is let in; stream-app api-key adds one", path)


def _read(path: Path) -> tuple[tuple[ApiKey, ...], list[OperatorError]]:
    """Return the keys of a file, and what is wrong with its other lines.

    Raises: OperatorError where it cannot be read, FileNotFoundError.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as failure:
        reason = getattr(failure, "strerror", None) or "it is not UTF-8 text"
        raise OperatorError(f"api.keys: {path} cannot be read: {reason}; correct that") from None
    keys, refusals = list[ApiKey](), list[OperatorError]()
    for number, line in enumerate(lines, start=1):
        try:
            keys += [_key(path, number, line)] if line.strip() else []
        except OperatorError as refusal:
            refusals.append(refusal)
    return tuple(keys), refusals


def _mark(path: Path) -> tuple[int, ...] | None:
    """Return what changes with the content of a file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _key(path: Path, number: int, line: str) -> ApiKey:
    try:
        row = json.loads(line)
        streams = row["streams"]
        known = None if streams == EVERY_STREAM else frozenset(map(values.name, streams))
        if (known is not None and not isinstance(streams, list)) or len(bytes.fromhex(row["sha256"])) != 32:
            raise ValueError
        return ApiKey(values.name(row["name"]), row["sha256"].lower(), known)
    except (ValueError, KeyError, TypeError):
        raise OperatorError(f"api.keys: {path}:{number} is not a key; take the line out") from None


def add_key(path: Path, name: str, streams: Sequence[str]) -> str:
    """Add a key to a file that only its owner may read; return its text, which is kept nowhere.

    Args: streams that it opens; none for all.
    """
    for word in (name, *streams):
        try:
            values.name(word)
        except ValueError as refusal:
            raise OperatorError(f"api-key: {word!r} {refusal}") from None
    if path.exists() and any(key.name == name for key in _read(path)[0]):
        raise OperatorError(
            f"api-key: {path} has a key called {name}; take its line out, or choose another name"
        )
    key = secrets.token_urlsafe(32)
    row = {"name": name, "sha256": digest_of(key), "streams": list(streams) or EVERY_STREAM}
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:
        file.write(json.dumps(row) + "\n")
    return key
