"""Workers over a topic, started again with other bins: its streams go on as their next generation."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from shutil import rmtree

import pytest
from click.testing import CliRunner
from redis import Redis

from stream_app.shell.commands import main
from tests.e2e.topic_workers import Cell, running_cell
from tests.patience import PATIENCE_S, eventually


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
