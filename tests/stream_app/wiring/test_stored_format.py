"""A store, directory or ledger of a newer format is refused in one line, and nothing in it changes."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.ports import free_port
from stream_app.config import load
from stream_app.ports import OperatorError
from stream_app.shell.commands import main
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.keys import STORED_FORMAT, StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import FIRST, NEWEST, check_directory_format, check_format, mark_directory
from stream_app.wiring.public import run_alerts, run_api
from stream_app.wiring.storage import new_ledger
from stream_app.wiring.workers import run_worker
from tests.patience import PATIENCE_S, ended
from tests.stream_app.wiring.test_retired import admin

pytestmark = pytest.mark.redis

NEWER = NEWEST + 1
REFUSAL = f"it has stored format {NEWER}, and this build knows formats up to {NEWEST}"
TEXT = """
redis: {{url: "{url}", api_url: "{url}", alerts_url: "{url}"}}
api: {{port: {port}}}
ingest: {{dir: ./spools, port: {ingest_port}}}
publish_every: 250ms
ledger: {{file: ../elsewhere/ledger.ndjson}}
streams:
  clicks:
    source: {{file: events.ndjson, replay: {{from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}}}}
    time: {{field: at, format: iso8601, bin: 1h, epoch: 1d}}
    privacy: {{epsilon: 1}}
  posted:
    source: {{http: posted}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 1h}}
    privacy: {{epsilon: 1}}
"""


@pytest.fixture
def config(tmp_path: Path, server: EmbeddedRedis) -> Path:
    """Write a configuration over an empty store."""
    admin(server).flushall()
    directory = tmp_path / "service"
    directory.mkdir()
    (directory / "events.ndjson").write_text(json.dumps({"at": "2024-01-01T01:30:00Z"}) + "\n")
    file = directory / "app.yaml"
    file.write_text(TEXT.format(url=server.worker_url, port=free_port(), ingest_port=free_port()))
    asyncio.run(new_ledger(load(file)))
    return file


def contents(server: EmbeddedRedis) -> dict[object, object]:
    """Return everything in the store except its clock."""
    redis = admin(server)
    return {key: redis.dump(key) for key in redis.scan_iter("*") if b"{clock}" not in key}


def worker(config: Path) -> None:
    asyncio.run(run_worker(load(config)))


def api(config: Path) -> None:
    asyncio.run(run_api(load(config)))


def alerts(config: Path) -> None:
    asyncio.run(run_alerts(load(config)))


def ingest(config: Path) -> None:
    from stream_app.wiring.receiving import run_ingest

    asyncio.run(run_ingest(load(config)))


def command(*words: str) -> Callable[[Path], None]:
    def run(config: Path) -> None:
        result = CliRunner().invoke(main, [*words, "--config", str(config)])
        assert result.exit_code == 2, result.output
        raise OperatorError(result.stderr.splitlines()[-1])

    return run


@pytest.mark.parametrize(
    "start",
    [worker, api, alerts, command("check-config"), command("audit")],
    ids=["worker", "api", "alerts", "check-config", "audit"],
)
def test_a_newer_store_is_refused_by_all_who_use_it(
    config: Path, server: EmbeddedRedis, start: Callable[[Path], None]
) -> None:
    admin(server).set(STORED_FORMAT, NEWER)
    before = contents(server)
    with pytest.raises(OperatorError, match=REFUSAL) as refused:
        start(config)
    assert len(str(refused.value).splitlines()) == 1
    assert str(refused.value).removeprefix("stream-app: ").startswith("redis.")
    assert contents(server) == before


def test_doctor_names_a_newer_store(config: Path, server: EmbeddedRedis) -> None:
    admin(server).set(STORED_FORMAT, NEWER)
    result = CliRunner().invoke(main, ["doctor", "--config", str(config)], terminal_width=400)
    assert result.exit_code == 2
    assert REFUSAL.split(";")[0] in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("place", "start"),
    [("state", worker), ("state", command("check-config")), ("state/witness", worker)],
)
def test_a_newer_state_directory_is_refused(
    config: Path, server: EmbeddedRedis, place: str, start: Callable[[Path], None]
) -> None:
    directory = config.parent / place
    directory.mkdir(parents=True, mode=0o700)
    (directory / "format").write_text(f"{NEWER}\n")
    with pytest.raises(OperatorError, match=rf"state\.dir: .*{place}: {REFUSAL}"):
        start(config)
    assert not admin(server).keys("*clicks*")
    assert (directory / "format").read_text() == f"{NEWER}\n"


@pytest.mark.parametrize("start", [ingest, command("ingest", "--stdin", "posted")])
def test_a_newer_spool_is_refused(config: Path, start: Callable[[Path], None]) -> None:
    spool = load(config).spools["posted"]
    spool.mkdir(parents=True, mode=0o700)
    spool.parent.chmod(0o700)
    (spool / "format").write_text(f"{NEWER}\n")
    with pytest.raises(OperatorError, match=rf"ingest\.dir: .*posted: {REFUSAL}"):
        start(config)
    assert [file.name for file in spool.iterdir()] == ["format"]


def test_a_newer_ledger_is_refused(config: Path, server: EmbeddedRedis) -> None:
    ledger = config.parent.parent / "elsewhere" / "ledger.ndjson"
    ledger.write_text(f'{{"private_counts_ledger":{NEWER}}}\n')
    with pytest.raises(OperatorError, match=rf"ledger\.file: .*{REFUSAL}"):
        worker(config)
    assert not admin(server).keys("*clicks*")


def test_a_start_writes_the_format_that_is_needed(config: Path, server: EmbeddedRedis) -> None:
    config.write_text(config.read_text().split("  posted:")[0].replace("ingest:", "#"))
    worker(config)
    assert admin(server).get(STORED_FORMAT) == b"1"
    for place in ("state", "state/witness"):
        assert (config.parent / place / "format").read_text() == "1\n"
    # A store of before has no number, and is of format 1.
    admin(server).delete(STORED_FORMAT)
    (config.parent / "state" / "format").unlink()
    worker(config)
    assert admin(server).get(STORED_FORMAT) == b"1"


def test_a_format_never_falls(server: EmbeddedRedis) -> None:
    async def need(format: int) -> None:
        store = RedisStore(server.worker_url)
        try:
            await store.need_format(format)
        finally:
            await store.close()

    redis = admin(server)
    redis.flushall()
    for needed, held in ((FIRST, FIRST), (NEWEST, NEWEST), (FIRST, NEWEST)):
        asyncio.run(need(needed))
        assert redis.get(STORED_FORMAT) == b"%d" % held
    redis.set(STORED_FORMAT, NEWER)
    with pytest.raises(OperatorError, match=REFUSAL):
        asyncio.run(need(1))
    assert redis.get(STORED_FORMAT) == b"%d" % NEWER


def test_a_running_worker_ends_when_a_newer_build_uses_its_stream(
    config: Path, server: EmbeddedRedis
) -> None:
    config.write_text(
        config.read_text().replace("  clicks:", "  unused:").split("ledger:")[0]
        + """
streams:
  live:
    source: {file: events.ndjson}
    time: {field: at, format: iso8601, bin: 1s, grace: 0s, epoch: 1h}
    privacy: {epsilon: 1}
"""
    )
    text = config.read_text().replace("ingest:", "#")
    config.write_text(text)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            worker(config)
        except BaseException as failure:
            failures.append(failure)

    running = threading.Thread(target=run)
    running.start()
    try:
        redis, deadline = admin(server), time.monotonic() + PATIENCE_S
        while not redis.exists(StreamKeys("live").epochs):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        admin(server).hset(StreamKeys("live").epochs, "format", NEWER)
        running.join(PATIENCE_S)
    [failure] = failures
    assert isinstance(failure, OperatorError)
    assert str(failure).startswith(f"stream live: {REFUSAL}")


def test_readers_keep_what_they_have_when_a_newer_build_uses_a_stream(
    config: Path, server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    from stream_app.api.replicas import Replicas
    from stream_app.state.reader import RedisReader

    config.write_text(config.read_text().split("  posted:")[0].replace("ingest:", "#"))
    worker(config)

    async def read() -> int:
        reader = RedisReader(server.api_url)
        replicas = Replicas(reader)
        await replicas.refresh()
        admin(server).hset(StreamKeys("clicks").epochs, "format", NEWER)
        following = asyncio.create_task(replicas.keep_fresh())
        await replicas.looked.wait()
        await ended(following)
        await reader.close()
        return replicas.by_name["clicks"].seq

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(read()) == 24
    assert [line for line in caplog.messages if REFUSAL in line]


def test_several_processes_may_mark_a_directory(tmp_path: Path) -> None:
    marking = [threading.Thread(target=mark_directory, args=("state.dir", tmp_path)) for _ in range(16)]
    for one in marking:
        one.start()
    for one in marking:
        one.join()
    assert (tmp_path / "format").read_text() == "1\n"
    mark_directory("state.dir", tmp_path, NEWEST)
    mark_directory("state.dir", tmp_path, FIRST)
    assert (tmp_path / "format").read_text() == f"{NEWEST}\n"


def test_a_mark_that_a_crash_left_empty_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "format").touch()
    check_directory_format("state.dir", tmp_path)
    mark_directory("state.dir", tmp_path)
    assert (tmp_path / "format").read_text() == "1\n"


@pytest.mark.parametrize("stored", [b"x", b"1.5", b""])
def test_a_format_that_is_no_number_is_refused(stored: bytes) -> None:
    with pytest.raises(OperatorError, match=r"^here: its stored format is no number; restore it"):
        check_format("here", stored)
