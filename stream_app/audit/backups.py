"""Checks a copy of a store: its contents, and whether a restore would keep the promise. It writes nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from redis import Redis
from redis.crc import key_slot

from stream_app.audit.collecting import collect_from
from stream_app.audit.report import Check
from stream_app.audit.stored import PART, Stored, check_stored
from stream_app.config import Settings
from stream_app.core.releases.release import RowLink
from stream_app.ports import NoiseKeys, OperatorError, Store
from stream_app.state.address import redis_address
from stream_app.state.keys import STREAM_NAMES, StreamKeys, ledger_key
from stream_app.state.loaded_copy import loaded_copy
from stream_app.state.redis_store import RedisStore
from stream_app.wiring.storage import holds_users_keys, noise_keys


def check_backup(settings: Settings, files: Sequence[Path], server: Path) -> tuple[list[str], list[Check]]:
    """Return a line about each configured stream in a copy, and every check of the stored data.

    Args: files, the copy, of a cluster one of each primary; server, the executable that loads it.
    """
    named = ", ".join(map(str, files))
    with loaded_copy(files, server) as url:
        found, of_keys = asyncio.run(read_copy(settings, url))
        url_of_store = settings.redis.url
        if len(files) > 1 or (url_of_store and redis_address(url_of_store).kind == "cluster"):
            _check_slots(named, url, found)
    if not found:
        raise OperatorError(
            f"{named}: it holds none of the configured streams; name the copy of this service's Redis"
        )
    stored = [check for one in found for check in check_stored(one)]
    return list(_told(settings, found)), stored + of_keys


def _check_slots(named: str, url: str, found: Sequence[Stored]) -> None:
    """Check that a copy of a cluster has the slots of the list of streams, each stream and its ledger."""
    with Redis.from_url(url, protocol=2) as client:
        names: set[bytes] = client.smembers(STREAM_NAMES)
        wanted = {StreamKeys(name.decode()).strategy: f"stream {name.decode()}" for name in sorted(names)}
        lacking = {key: what for key, what in wanted.items() if not client.exists(key)}
    if not names:
        lacking[STREAM_NAMES] = "the list of streams"
    for one in found:
        if not one.ledger:
            lacking[ledger_key(one.strategy.source)] = f"the ledger of stream {one.strategy.stream}"
    if lacking:
        slots = ", ".join(f"slot {key_slot(key.encode())} ({what})" for key, what in lacking.items())
        raise OperatorError(f"{named}: the copy lacks {slots}; name one file of each primary of the cluster")


async def read_copy(settings: Settings, url: str) -> tuple[list[Stored], list[Check]]:
    """Return the stored data, and the checks of the keys of each stream."""
    found = await collect_from(settings, url)
    keys, checks = noise_keys(settings), []
    capped = {one.name for one in settings.streams if one.declared.capped is not None}
    store = RedisStore(url)
    try:
        for one in found:
            name = one.strategy.stream
            checks.append(await check_of_noise_key(name, store, keys))
            if one.strategy.base in capped:
                has_keys = await holds_users_keys(settings, store, keys, name, _last_bin(one))
                checks.append(_check_of_users(name, passed=has_keys))
    finally:
        await store.close()
    return found, checks


async def check_of_noise_key(stream: str, store: Store, keys: NoiseKeys) -> Check:
    """Return whether this machine has the key of noise that a store names; else a stream's worker ends."""
    asked = "This machine has the key of noise that the copy names"
    try:
        await keys.mark(stream, await store.noise_key(stream))
    except OperatorError as refusal:
        return Check(PART, stream, asked, False, str(refusal))
    return Check(PART, stream, asked, True, "it is here")


def _last_bin(one: Stored) -> int:
    """Return the last bin that is released after a restore, which adds the rows of the witness."""
    rows = [*(row for _, row in one.rows[-1:]), *(row.row for row in one.witness)]
    return max((RowLink.of(row).bin for row in rows), default=-sys.maxsize)


def _check_of_users(stream: str, *, passed: bool) -> Check:
    asked = "This machine has the keys of users' hashes that open cap windows of the copy need"
    lacks = (
        "a key is missing, so after a restore the stream's worker ends with a line; before a restore, put "
        "the line users of then back into secrets.key_file, or the state.dir of then"
    )
    return Check(PART, stream, asked, passed, "each is here" if passed else lacks)


def _told(settings: Settings, found: Sequence[Stored]) -> Iterator[str]:
    held = {one.strategy.base for one in found}
    for stream in settings.streams:
        if stream.name not in held:
            yield f"{stream.name}: not in this copy; a restore takes what its witness has"
    for one in found:
        last, rows = (one.rows[-1] if one.rows else None), f"{len(one.rows):,} bins"
        until = f" until {json.loads(last[1])['end']}" if last is not None else ""
        later = len({row.seq for row in one.witness if row.seq > (last[0] if last else 0)})
        said = f"{later:,} later ones, which a restore adds" if later else "no later one"
        yield f"{one.strategy.stream}: {rows}{until}; its witness has {said}"
