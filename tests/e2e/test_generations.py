"""The real service, started again with other bins and keys: the stream goes on as its next generation."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from deploy.ports import free_port
from stream_app.core.instants import format_instant, parse_instant
from stream_app.shell.commands import main
from tests.e2e.service import Service
from tests.e2e.test_successor import Writer
from tests.e2e.topic_workers import Cell, running_cell
from tests.patience import PATIENCE_S, eventually

CONFIG = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 4s, first: "{first}"}}
    privacy: {{epsilon: 1000000000, not_private: true}}
"""
SAID = "time.bin 500ms instead of 1s"


@pytest.mark.redis
def test_other_bins_begin_under_the_same_name_and_no_event_is_lost(tmp_path: Path) -> None:
    first_s, file = int(time.time()) - 2, tmp_path / "app.yaml"
    text = CONFIG.format(port=free_port(), first=format_instant(first_s * 10**6))
    writer = Writer(tmp_path / "clicks.ndjson")
    writer.file.touch()
    writer.start()

    def rows(name: str) -> list[dict[str, Any]]:
        witness = tmp_path / "state" / "witness" / f"{name}.ndjson"
        lines = witness.read_text().splitlines() if witness.exists() else []
        return [json.loads(line.partition("\t")[0]) for line in lines]

    file.write_text(text)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("released until")
        assert service.interrupt() == 0
    file.write_text(text.replace("bin: 1s", "bin: 500ms"))
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until(SAID)
        said = service.output.split(SAID)[0].rpartition("clicks: from ")[2]
        edge_us = parse_instant(said.split(" on, as generation 2")[0])
        assert (edge_us // 1_000_000 - first_s) % 4 == 0
        eventually(lambda: len(rows("clicks%402")) > 6, "the next generation has released")
        writer.ends.set()
        writer.join()
        assert service.interrupt() == 0
    _all_generations_come_back(tmp_path)
    old, new = rows("clicks"), rows("clicks%402")
    assert (old[-1]["bin"] + 1) * 1_000_000 == new[0]["bin"] * 500_000 == edge_us
    until_ms = (new[-1]["bin"] + 1) * 500
    before = [at for at in writer.times_ms if first_s * 1000 <= at < edge_us // 1000]
    after = [at for at in writer.times_ms if edge_us // 1000 <= at < until_ms]
    assert (sum(leaves(old)), sum(leaves(new))) == (len(before), len(after))


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_over_a_topic_take_the_next_generation_one_after_the_other(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    with running_cell(tmp_path, bootstrap_servers) as cell:
        file, worker = tmp_path / "app.yaml", ("stream_app", "worker", "--config", "app.yaml")
        file.write_text(file.read_text().replace("epoch: 1h", "epoch: 15s"))
        workers = [cell.start(*worker) for _ in range(2)]
        cell.send(10)
        eventually(lambda: total(cell, "clicks") == 30, "all events are released")
        file.write_text(file.read_text().replace("bin: 1s", "bin: 500ms"))
        for number in range(2):
            workers[number].send_signal(signal.SIGTERM)
            assert workers[number].wait(PATIENCE_S) == 0, cell.said()
            workers[number] = cell.start(*worker)
        eventually(lambda: total(cell, "clicks@2") is not None, "the next generation has released")
        cell.send(10)
        eventually(lambda: total(cell, "clicks@2") == 30, "it has the events of all partitions")
        eventually(lambda: total(cell, "approximate@2") is not None, "the other one, too")
        assert total(cell, "clicks") == 30
        assert f"it writes to topic {cell.topic.name}.private.2" in cell.said()
        assert all(one.poll() is None for one in workers), cell.said()
        for one in workers:
            one.send_signal(signal.SIGTERM)
        assert [one.wait(PATIENCE_S) for one in workers] == [0, 0]
        # Redis and state.dir are lost: the topics have both generations, and their settings.
        file.write_text(file.read_text().replace("bin: 500ms", "bin: 1s"))
        rmtree(tmp_path / "state")
        Redis.from_url(cell.redis.operator_url).flushall()
        found = CliRunner().invoke(main, ["rebuild", "--config", str(file)])
        assert found.exit_code == 0, found.output
        assert [line.split(":")[0] for line in found.output.splitlines()] == [
            *("clicks", "clicks@2", "approximate", "approximate@2")
        ]
        assert found.output.count("were put back from its witness") == 4


def total(cell: Cell, stream: str) -> int | None:
    """Return the count of all bins of a stream without noise; None: it has released none."""
    rows = asyncio.run(cell._rows(stream))
    return sum(row["nodes"][0][2][0] if row["nodes"] else 0 for row in rows) if rows else None


def _all_generations_come_back(directory: Path) -> None:
    """Delete the store; check that the commands find both generations."""

    def run(*words: str) -> str:
        found = CliRunner().invoke(main, [*words, "--config", str(directory / "app.yaml")])
        assert found.exit_code == 0, found.output
        return found.output

    assert {line.split(":")[0] for line in run("rebuild").splitlines()} == {"clicks@2", "clicks"}
    rmtree(directory / "redis")
    lines = run("rebuild").splitlines()
    assert [line.split(":")[0] for line in lines] == ["clicks", "clicks@2"]
    assert all("were put back from its witness" in line for line in lines)
    run("export", str(directory / "all.ndjson"), "--stream", "clicks")
    assert '"clicks@2"' in (directory / "all.ndjson").read_text()


def leaves(rows: list[dict[str, Any]]) -> list[int]:
    """Return the count of each bin; there is no noise."""
    return [row["nodes"][0][2][0] for row in rows]
