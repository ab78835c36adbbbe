"""The file of API keys: one line per key, with its hash and the streams that it may read."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Never

from stream_app.config import values
from stream_app.ports import OperatorError
from stream_app.ports.access import ApiKey, digest_of

EVERY_STREAM = "*"
LOOK_EVERY_S = 1.0

log = logging.getLogger(__name__)


def read_keys(path: Path, setting: str = "api.keys") -> tuple[ApiKey, ...]:
    """Return the keys of a file when a service starts. Raises: OperatorError for a bad line or no key.

    Args: setting, the configuration key that names the file, for messages.
    """
    try:
        keys, refusals = _read(path, setting)
    except FileNotFoundError:
        raise OperatorError(f"{setting}: {path} does not exist; make it with stream-app api-key") from None
    if refusals:
        raise refusals[0]
    if not keys:
        raise OperatorError(f"{setting}: {path} holds no key; add one with stream-app api-key")
    return keys


async def follow_keys(
    path: Path, take: Callable[[tuple[ApiKey, ...]], None], setting: str = "api.keys"
) -> Never:
    """Pass the keys of a file to ``take``, now and whenever the file changes; check the file every second.

    Guarantee: a key that is not in the file grants no access, even if the file is empty or deleted. A bad
        line is logged and skipped. Only if the file exists but cannot be read, the previous keys stay valid.
    """
    seen: object = object()  # equals no mark: the file may have changed since the service started
    while True:
        mark = _mark(path)
        if mark == seen:
            await asyncio.sleep(LOOK_EVERY_S)
            continue
        seen = mark
        try:
            keys, refusals = _read(path, setting)
        except FileNotFoundError:
            keys, refusals = (), []
        except OperatorError as refusal:
            log.error("%s; the keys that were read before still hold", refusal)
            continue
        take(keys)
        for one in refusals:
            log.error("%s; the other keys hold", one)
        if keys:
            log.info("%s: read again", setting)
        else:
            log.warning("%s: %s holds no key: nobody is let in; stream-app api-key adds one", setting, path)


def _read(path: Path, setting: str = "api.keys") -> tuple[tuple[ApiKey, ...], list[OperatorError]]:
    """Return the keys of a file, and an error for each bad line.

    Raises: OperatorError if it cannot be read, FileNotFoundError if it does not exist.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as failure:
        reason = getattr(failure, "strerror", None) or "it is not UTF-8 text"
        raise OperatorError(f"{setting}: {path} cannot be read: {reason}; correct that") from None
    keys, refusals = list[ApiKey](), list[OperatorError]()
    for number, line in enumerate(lines, start=1):
        try:
            keys += [_key(path, number, line, setting)] if line.strip() else []
        except OperatorError as refusal:
            refusals.append(refusal)
    return tuple(keys), refusals


def _mark(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes with the file's content and rights; None without a file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_ctime_ns, stat.st_size  # a copy may keep the time of modification


def _key(path: Path, number: int, line: str, setting: str) -> ApiKey:
    try:
        row = json.loads(line)
        boards = row.get("boards")
        if boards is not None and (not isinstance(boards, list) or not boards or "streams" in row):
            raise ValueError
        streams = [] if boards else row["streams"]
        known = None if streams == EVERY_STREAM else frozenset(map(values.name, streams))
        if (known is not None and not isinstance(streams, list)) or len(bytes.fromhex(row["sha256"])) != 32:
            raise ValueError
        opened = None if boards is None else frozenset(map(values.name, boards))
        return ApiKey(values.name(row["name"]), row["sha256"].lower(), known, opened)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OperatorError(f"{setting}: {path}:{number} is not a key; take the line out") from None


def add_key(path: Path, name: str, streams: Sequence[str], boards: Sequence[str] = ()) -> str:
    """Add a key to a file that only its owner may read; return its text, which is stored nowhere.

    Args: streams that it may read; empty for all. boards: make a key of these boards instead.
    """
    if streams and boards:
        raise OperatorError("api-key: a key opens streams or boards; leave out --stream or --board")
    for word in (name, *streams, *boards):
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
    if boards:
        row = {"name": name, "sha256": digest_of(key), "boards": list(boards)}
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:
        file.write(json.dumps(row) + "\n")
    return key
