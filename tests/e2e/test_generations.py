"""Workers over a topic, started again with other bins: its streams go on as their next generation."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from stream_app.core.segments.names import generation
from stream_app.shell.commands import main
from stream_app.state.keys import StreamKeys
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
        assert all(one.poll() is None for one in workers), cell.said()
        for one in workers:
            one.send_signal(signal.SIGTERM)
        assert [one.wait(PATIENCE_S) for one in workers] == [0, 0]
        # Redis and state.dir are lost. No bin gets noise again.
        names = "clicks", "clicks@2", "approximate", "approximate@2"
        before = {name: rows(cell, name) for name in names}
        lose(cell)
        only = cell.start(*worker)
        eventually(lambda: len(rows(cell, "clicks@2")) > len(before["clicks@2"]), cell.said)
        only.send_signal(signal.SIGTERM)
        assert only.wait(PATIENCE_S) == 0, cell.said()
        assert {name: rows(cell, name)[: len(before[name])] for name in names} == before
        # They are lost once more: the topic has both generations, and their settings.
        file.write_text(file.read_text().replace("bin: 500ms", "bin: 1s"))
        lose(cell)
        found = CliRunner().invoke(main, ["rebuild", "--config", str(file)])
        assert found.exit_code == 0, found.output
        assert [line.split(":")[0] for line in found.output.splitlines()] == [*names]
        assert found.output.count("were put back from its witness") == 4


def lose(cell: Cell) -> None:
    """Delete all that Redis and ``state.dir`` hold."""
    rmtree(cell.folder / "state")
    Redis.from_url(cell.redis.operator_url).flushall()


def rows(cell: Cell, stream: str) -> list[dict[str, Any]]:
    return asyncio.run(cell._rows(stream))


PRIVACY = "privacy: {epsilon: 1.0e9, not"
# What begins each segment: what the file says, and what it says then.
EPSILON_THEN_GRACE = [{PRIVACY: "privacy: {epsilon: 2.0e9, not"}, {"grace: 1s": "grace: 3s"}]
KEYS_AND_BINS = [{PRIVACY: f"keys: {{field: page, list: [a, b]}}\n    {PRIVACY}", "bin: 1s": "bin: 500ms"}]


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "changes",
    [pytest.param(EPSILON_THEN_GRACE, id="epsilon-grace"), pytest.param(KEYS_AND_BINS, id="keys-bins")],
)
def test_kills_during_changes_of_settings_lose_and_double_no_event(
    tmp_path: Path, bootstrap_servers: str, changes: list[dict[str, str]]
) -> None:
    """Two workers under load; each is killed while the next segment begins. Late events are in it."""
    with running_cell(tmp_path, bootstrap_servers) as cell:
        file, worker = tmp_path / "app.yaml", ("stream_app", "worker", "--config", "app.yaml")
        file.write_text(file.read_text().replace("epoch: 1h", "epoch: 15s"))
        workers = [cell.start(*worker) for _ in range(2)]
        load = Load(cell)
        load.start()
        eventually(lambda: total(cell, "clicks"), "the first events are released")
        names = ["clicks"]
        for change in changes:
            names.append(name := generation("clicks", len(names) + 1))
            for before, after in change.items():
                file.write_text(file.read_text().replace(before, after))
            for one in range(2):
                workers[one].kill()
                workers[one].wait()
                workers[one] = cell.start(*worker)
            eventually(lambda name=name: begun(cell, name), f"{name} is in the store")  # type: ignore[misc]
            workers[0].kill()
            workers[0] = cell.start(*worker)
            eventually(lambda name=name: total(cell, name) is not None, f"{name} has released")  # type: ignore[misc]
            workers[1].kill()
            workers[1] = cell.start(*worker)
        load.ends.set()
        load.join()

        def all_counted() -> bool:
            return sum(total(cell, name) or 0 for name in names) >= cell.sent

        eventually(all_counted, "all events are released")
        time.sleep(3)  # whatever counted twice would come now
        assert sum(total(cell, name) or 0 for name in names) == cell.sent
        assert all((total(cell, name) or 0) > 0 for name in names)
        assert all(one.poll() is None for one in workers), cell.said()


class Load(threading.Thread):
    """Sends events to every partition; they are up to three seconds old, so some are late at an edge."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(daemon=True)
        self.cell, self.ends = cell, threading.Event()

    def run(self) -> None:
        """Send until ``ends`` is set."""
        number = 0
        while not self.ends.wait(0.1):
            self.cell.send(3, age_us=number % 7 * 500_000)
            number += 1


def begun(cell: Cell, stream: str) -> bool:
    """Return whether the store knows a stream."""
    with Redis.from_url(cell.redis.operator_url) as redis:
        return bool(redis.exists(StreamKeys(stream).state))


def total(cell: Cell, stream: str) -> int | None:
    """Return the count of all bins of a stream without noise; None: it has released none."""
    counts = {row["epoch"]: row["estimate"][0] for row in asyncio.run(cell._rows(stream))}
    return round(sum(counts.values())) if counts else None
