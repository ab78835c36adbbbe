"""Retention with a real store: API, export, import, rebuild and audit agree about what stays."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from stream_app.api.app import create_app
from stream_app.audit.collecting import collect
from stream_app.audit.stored import Stored, check_stored
from stream_app.config import load
from stream_app.core.instants import parse_instant
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from tests.stream_app.api.client import SHARED
from tests.stream_app.wiring.test_rebuilding import rows_of
from tests.stream_app.wiring.test_retired import STREAMS as ALL
from tests.stream_app.wiring.test_retired import answers, command, count_a_day

pytestmark = pytest.mark.redis

STREAMS = {name: ALL[name] for name in ("clicks", "keys", "people")}
NOON_US = parse_instant("2024-01-01T12:00:00Z")
NOON = "start=2024-01-01T12:00:00Z"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedRedis) -> Path:
    """Return the configuration of a service that counted a day in four epochs."""
    return count_a_day(tmp_path_factory.mktemp("counted") / "service", server.worker_url, STREAMS)


async def trim(server: EmbeddedRedis, before_us: int = NOON_US) -> list[int]:
    store = RedisStore(server.worker_url)
    try:
        return [await store.trim(name, before_us) for name in STREAMS]
    finally:
        await store.close()


async def ask(server: EmbeddedRedis, path: str) -> httpx.Response:
    reader = RedisReader(server.api_url)
    app = create_app(reader, apart=SHARED)
    await app.state.replicas.refresh()
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        found = await client.get(f"/v1/streams/{path}")
    await reader.close()
    return found


def faults(stored: Stored) -> list[str]:
    return [check.found for check in check_stored(stored) if check.passed is False]


def test_everything_agrees_about_what_stays(counted: Path, server: EmbeddedRedis, tmp_path: Path) -> None:
    before = {name: answers(server, name) for name in STREAMS}
    rows = {name: rows_of(server, name) for name in STREAMS}
    later = {name: asyncio.run(ask(server, f"{name}/count?{NOON}")).json() for name in STREAMS}
    tags = {name: asyncio.run(ask(server, f"{name}/count")).headers["etag"] for name in STREAMS}
    assert asyncio.run(trim(server)) == [2] * len(STREAMS)
    assert asyncio.run(trim(server)) == [0] * len(STREAMS)
    for name in STREAMS:
        assert asyncio.run(ask(server, f"{name}/count")).headers["etag"] != tags[name]
        after = answers(server, name)
        ledger = before[name]["/privacy"].pop("ledger")
        for entry in ledger:  # why these ended left with their records
            removed = (entry["stream"], entry["start"] < "2024-01-01T12:00:00Z") == (name, True)
            entry["end_reason"] = None if removed else entry["end_reason"]
        assert after["/privacy"].pop("ledger") == ledger, "what was spent stays"
        assert after["/privacy"] == before[name]["/privacy"]
        assert after[""]["start"] == after[""]["kept_from"] == "2024-01-01T12:00:00Z"
        assert "kept_from" not in before[name][""]
        assert asyncio.run(ask(server, f"{name}/count?{NOON}")).json() == later[name]
        assert after["/count"] == later[name], "without a start, the range begins with what is kept"
        refused = asyncio.run(ask(server, f"{name}/count?start=2024-01-01T06:00:00Z"))
        assert refused.status_code == 400
        assert "is before 2024-01-01T12:00:00Z, since when releases are kept" in refused.text
        assert rows_of(server, name) == rows[name][12:]
    said = "the store has the newest 12 bins of its witness; retention removed the others"
    assert command("rebuild", "--config", counted).splitlines() == [f"{name}: {said}" for name in STREAMS]
    # An export holds what is kept.
    command("export", tmp_path / "kept.ndjson", "--config", counted)
    lines = [json.loads(line) for line in (tmp_path / "kept.ndjson").read_bytes().splitlines()]
    assert [line["rows"] for line in lines if "rows" in line] == [12] * len(STREAMS)


def test_the_audit_checks_the_anchor_and_the_removed_rows(counted: Path, server: EmbeddedRedis) -> None:
    asyncio.run(trim(server))
    for stored in asyncio.run(collect(load(counted))):
        assert faults(stored) == []
        other = replace(stored, trimmed=replace(stored.trimmed, hash="e" * 64))
        assert "row 12 of the witness is not the one that retention removed" in faults(other)
        kept_only = replace(stored, witness=[row for row in stored.witness if row.seq > 12])
        assert faults(kept_only) == [], "a witness that was lost, too, begins later"
        assert "row 13 does not follow row 12" in faults(replace(kept_only, trimmed=other.trimmed))
        of_kept = replace(stored, ledger=[entry for entry in stored.ledger if entry.epoch >= 2])
        missing = [f"epoch {epoch}, which left the store, is not in the ledger" for epoch in (0, 1)]
        assert faults(of_kept) == ["; ".join(missing)]
        cheaper = replace(stored, ledger=[replace(entry, epsilon="1/99") for entry in stored.ledger])
        assert any("epoch 0 is in the ledger with epsilon 1/99" in fault for fault in faults(cheaper))
        cut_off = replace(stored, rows=stored.rows[1:])
        assert any("row 13 has the number 14" in fault for fault in faults(cut_off))
        # A removed bin that is released again is found in the witness.
        again = json.dumps(json.loads(stored.rows[-1][1]) | {"bin": json.loads(stored.witness[0].row)["bin"]})
        doubled = replace(stored, rows=[*stored.rows[:-1], (24, again.encode())])
        assert any("was released 2 times" in fault for fault in faults(doubled))


def test_a_lost_store_gets_everything_back(counted: Path, server: EmbeddedRedis) -> None:
    from tests.stream_app.wiring.test_retired import admin

    asyncio.run(trim(server))
    kept = {name: rows_of(server, name) for name in STREAMS}
    admin(server).flushall()
    command("rebuild", "--config", counted)
    for name in STREAMS:
        assert len(rows_of(server, name)) == 24
        assert rows_of(server, name)[12:] == kept[name]
        assert "kept_from" not in answers(server, name)[""]
    assert asyncio.run(trim(server)) == [2] * len(STREAMS)
    assert {name: rows_of(server, name) for name in STREAMS} == kept
