"""Commands that look change no byte of the store and of the state directory; none stores a wrong time."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from redis import Redis

from stream_app.config import load
from stream_app.shell.commands import main
from stream_app.sinks.witness_file import witnessed_rows
from stream_app.state.embedded import EmbeddedRedis, find_server
from stream_app.state.keys import CLOCK_MARK
from stream_app.vault import key_ring
from stream_app.wiring.workers import run_worker
from tests.stream_app.wiring.test_retired import text, write_events

pytestmark = pytest.mark.redis

KEYS = "secrets: {key_file: keys}"
LIVE = """
  live:
    source: {file: live.ndjson}
    time: {field: at, format: iso8601, bin: 1s, grace: 0s, epoch: 1h}
    privacy: {epsilon: 1, unit: {user: name, max_events: 3}}
"""
LOOKS = [
    ["check-config"],
    ["doctor"],
    ["plan"],
    ["privacy"],
    ["statement", "clicks"],
    ["export", "export.ndjson"],
]
Store = dict[object, object]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as server:
        yield server


async def _counted(config: Path) -> None:
    """Run a worker until its replay is complete and the live stream has released."""
    worker = asyncio.create_task(run_worker(load(config)))
    rows = config.parent / "state" / "witness"
    while not all(rows.is_dir() and witnessed_rows(rows, name)[3:] for name in ("clicks", "live")):
        await asyncio.sleep(0.05)
        assert not worker.done(), worker.exception()
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


def counted(folder: Path, url: str) -> Path:
    """Return the configuration of a service that has counted."""
    write_events(folder)
    (folder / "live.ndjson").write_bytes((folder / "events.ndjson").read_bytes())
    config = folder / "app.yaml"
    key_ring.create(folder / "keys", None)
    written = text(url, {"clicks": "privacy: {epsilon: 1}"}, KEYS)
    if url.startswith("embedded"):
        written = written.replace(f', api_url: "{url}", alerts_url: "{url}"', "")
    config.write_text(written + LIVE)
    asyncio.run(_counted(config))
    return config


def store_of(server: EmbeddedRedis) -> Store:
    with Redis.from_url(server.operator_url) as redis:
        # Redis moves the fields of a hash to a larger table by itself, and their order changes.
        hashes = {key: redis.hgetall(key) for key in redis.scan_iter(_type="hash")}
        return {key: hashes[key] if key in hashes else redis.dump(key) for key in redis.scan_iter()}


def tree_of(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    """Return each file and directory: its mode, the time of its last change, and its bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        found[path] = facts.st_mode, facts.st_mtime_ns, path.read_bytes() if path.is_file() else b""
    return found


def said_by(config: Path, *words: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, [*words, "--config", str(config)])
    return found.exit_code, found.output


def test_commands_that_look_store_nothing(
    tmp_path: Path, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = counted(tmp_path / "service", server.worker_url)
    monkeypatch.chdir(tmp_path)
    with Redis.from_url(server.operator_url) as redis:
        redis.delete(CLOCK_MARK)  # the time was noted by the worker: a command would note it anew
        cli, socket = find_server().parent / "redis-cli", redis.connection_pool.connection_kwargs
        words = [cli, "-s", socket["path"], "--user", "operator", "--no-auth-warning", "--pass"]
        copy = [*words, socket["password"], "--rdb", str(tmp_path / "copy.rdb")]
        subprocess.run(copy, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before, files = store_of(server), tree_of(config.parent / "state")
    assert len(before) > 20
    for words in [*LOOKS, ["check-backup", "copy.rdb"], ["rotate-key", "begin"]]:
        status, said = said_by(config, *words)
        assert status == 0, said
        assert store_of(server) == before, words
        assert tree_of(config.parent / "state") == files, words

    # While the clock of Redis is an hour ahead, no command stores its time.
    behind = SimpleNamespace(time_ns=lambda: time.time_ns() - 3_600 * 10**9)
    monkeypatch.setattr("stream_app.loops.clocks.time", behind)
    for words in (["rotate-key", "finish"], ["retire", "clicks"]):
        status, said = said_by(config, *words)
        assert (status, "is 3,600 s ahead of this worker's" in said) == (2, True), said
        assert store_of(server) == before, words
    status, said = said_by(config, "check-config")
    assert (status, "not checked: the store cannot be asked (clocks: " in said) == (0, True), said
    status, said = said_by(config, "doctor")
    assert (status, "redis clock: the clock of redis is 3,600 s ahead" in said) == (2, True), said
    assert (store_of(server), tree_of(config.parent / "state")) == (before, files)

    # Once it is right again they do their work, with a stream that is history, too.
    monkeypatch.setattr("stream_app.loops.clocks.time", time)
    for words in (["retire", "clicks"], ["rotate-key", "finish"]):
        status, said = said_by(config, *words)
        assert status == 0, said


def test_an_embedded_store_that_does_not_run_is_read_from_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = counted(tmp_path / "service", "embedded:./state/redis")
    monkeypatch.chdir(tmp_path)
    files = tree_of(config.parent / "state")
    for words in LOOKS:
        status, said = said_by(config, *words)
        assert (status, "not checked: the store" in said) == (0, False), said
        assert tree_of(config.parent / "state") == files, words
    config.write_text(config.read_text().replace("max_events: 3", "max_events: 3, max_keys: 1"))
    refused = said_by(config, "check-config")
    assert refused[0] == 2, refused
