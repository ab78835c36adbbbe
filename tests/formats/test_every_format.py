"""This build reads the store of every format: states, noise drawn ahead, users, rows, tables, the ledger."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from redis import Redis

from stream_app.core.strategy import Strategy
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import USER_KEYS
from stream_app.wiring.exporting import _exported
from tests.formats.dumps import restore

pytestmark = pytest.mark.redis

HERE = Path(__file__).parent
FORMATS = range(1, USER_KEYS + 1)  # later ones are of witnesses only


@pytest.mark.parametrize("number", FORMATS)
def test_this_build_reads_a_store_of_every_format(number: int, tmp_path: Path) -> None:
    expected = json.loads((HERE / f"{number}.expected.json").read_text())
    with EmbeddedRedis(tmp_path) as server:
        restore(Redis.from_url(server.operator_url), (HERE / f"{number}.ndjson").read_text().splitlines())
        assert asyncio.run(read(server)) == expected


async def read(server: EmbeddedRedis) -> dict[str, object]:
    """Return what this build reads of each stream: a digest of its values, its state, its ledger's length."""
    reader, store = RedisReader(server.api_url), RedisStore(server.worker_url)
    found: dict[str, object] = {}
    try:
        await store.check_format()
        for name in await reader.streams():
            public, state = await reader.public_state(name), await store.load(name)
            exported = await _exported(reader, name)
            assert public is not None
            assert state is not None
            assert exported is not None
            strategy = Strategy.from_json(public.strategy)
            values = hashlib.sha256(repr(exported.rows).encode()).hexdigest()
            counter = hashlib.sha256(state.counter).hexdigest()
            ledger = len(await reader.ledger(strategy.source))
            history = None if public.history is None else repr(public.history)
            end: list[object] = [] if state.until_bin is None else [state.until_bin]
            end += [] if state.announced is None else [state.announced.decode()]
            if state.user_keys.marks:
                end.append(state.user_keys.text())
            found[name] = [
                strategy.hash,
                len(exported.rows),
                values,
                state.seq,
                counter,
                ledger,
                history,
                *end,
            ]
    finally:
        await reader.close()
        await store.close()
    return found
