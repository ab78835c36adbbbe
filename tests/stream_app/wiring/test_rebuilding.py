"""A store is lost, and a command puts back what readers saw, from the witness; nothing gets noise again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_app.config import load
from stream_app.ports import NothingCountedError, OperatorError
from stream_app.shell.checks.stored import check_stored
from stream_app.shell.commands import main
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import StreamKeys
from stream_app.wiring.workers import run_worker
from tests.stream_app.wiring.test_retired import (
    STREAMS,
    admin,
    answers,
    command,
    contents,
    count_a_day,
    text,
)

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedRedis) -> Path:
    """Return the configuration of a service that has counted a day with every kind of stream."""
    return count_a_day(tmp_path_factory.mktemp("counted") / "service", server.worker_url, STREAMS)


def rows_of(server: EmbeddedRedis, stream: str) -> list[bytes]:
    found: Any = admin(server).xrange(StreamKeys(stream).chain)
    return [fields[b"row"] for _, fields in found]


def shown(server: EmbeddedRedis) -> list[object]:
    """Return what readers see: answers, rows, and the bytes of all tables."""
    rows, told = [rows_of(server, stream) for stream in STREAMS], [answers(server, one) for one in STREAMS]
    for answer in told:  # the witnesses are read one after another
        answer["/privacy"]["ledger"].sort(key=lambda entry: (entry["stream"], entry["epoch"]))
    return [told, rows, contents(server, "dp:*:pub:tile:*")]


def test_a_start_without_the_witness_is_refused_until_the_operator_says_that_redis_is_current(
    server: EmbeddedRedis, counted: Path
) -> None:
    files, before = counted.parent / "state" / "witness", shown(server)
    names = [f"{stream}.ndjson" for stream in STREAMS]
    kept = {name: (files / name).read_bytes() for name in names}
    for name in names:
        (files / name).unlink()
    said = (
        r"^stream \w+: Redis has rows up to the bin of 20.*Z, and state\.dir/witness has none.* new-witness$"
    )
    with pytest.raises(OperatorError, match=said):
        asyncio.run(run_worker(load(counted)))
    with pytest.raises(OperatorError, match=said):  # check-config and doctor say so as well
        asyncio.run(check_stored(load(counted)))
    assert "its witness has no rows" in command("rebuild", "--config", counted)

    lines = command("new-witness", "--config", counted).splitlines()
    assert [line.partition(" bins up to ")[0] for line in lines] == [f"{name}: 24" for name in STREAMS]
    assert {name: (files / name).read_bytes() for name in names} == kept
    said_again = command("new-witness", "--config", counted)
    assert said_again.count("nothing was written") == len(STREAMS)
    asyncio.run(check_stored(load(counted)))
    asyncio.run(run_worker(load(counted)))
    assert shown(server) == before


def test_a_lost_store_shows_again_what_readers_saw(counted: Path, server: EmbeddedRedis) -> None:
    before, rows = shown(server), {stream: rows_of(server, stream) for stream in STREAMS}
    redis = admin(server)
    assert command("rebuild", "--config", counted).splitlines() == [
        f"{name}: the store has all 24 bins of its witness" for name in STREAMS
    ]
    redis.flushall()
    said = command("rebuild", "--config", counted)
    put_back = "24 bins were put back from its witness; its worker goes on after them"
    assert said.splitlines() == [f"{name}: {put_back}" for name in STREAMS]
    assert shown(server) == before
    secret = {key for key in redis.scan_iter("dp:*:sec:*") if b"{clock}" not in key}
    assert not secret, "no state: a worker must take the stream for lost"
    stored = contents(server)
    command("rebuild", "--config", counted)
    assert contents(server) == stored
    # A worker then takes the streams for lost: it counts no record a second time and releases nothing again.
    with pytest.raises(NothingCountedError, match=r"^clicks: nothing was counted, .*before_first_bin"):
        asyncio.run(run_worker(load(counted)))
    assert {stream: rows_of(server, stream) for stream in STREAMS} == rows


def test_a_rebuilding_that_died_is_finished_by_the_next(
    counted: Path, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stream_app.state import connection, history

    real, calls = connection.script, [0]

    def failing(at: int) -> Any:
        def script(name: str) -> Any:
            calls[0] += 1
            if calls[0] == at:
                raise ConnectionError("the process died here")
            return real(name)

        return script

    only = counted.parent / "only.yaml"
    only.write_text(text(server.worker_url, {"keys": STREAMS["keys"]}))
    witnessed = (counted.parent / "state" / "witness" / "keys.ndjson").read_bytes()
    at, finished = 0, False
    while not finished:
        at, calls[0] = at + 1, 0
        admin(server).flushall()
        monkeypatch.setattr(history, "script", failing(at))
        finished = CliRunner().invoke(main, ["rebuild", "--config", str(only)]).exit_code == 0
        monkeypatch.setattr(history, "script", real)
        visible = admin(server).get(StreamKeys("keys").visible)
        assert visible == (b"24" if finished else None), "readers see all of it or nothing"
        if at == 2:  # a worker must not count a stream of which rows are missing
            with pytest.raises(OperatorError, match=r"it is rebuilt in part only \(stream-app rebuild puts"):
                asyncio.run(run_worker(load(only)))
        command("rebuild", "--config", only)
        assert rows_of(server, "keys") == [line.split(b"\t")[0] for line in witnessed.splitlines()]
    assert at == 3
