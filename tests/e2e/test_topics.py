"""Workers that share topics count each event once, also if workers or Redis end or workers join."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest
from redis import Redis

from stream_app.state.keys import StreamKeys
from tests.e2e.topic_workers import REPOSITORY, Cell
from tests.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]


GONE = "it no longer holds the records that come next; they were deleted before they were counted, or it was"


def test_workers_come_and_go_and_every_event_counts_once(cell: Cell) -> None:
    one = cell.start("stream_app", "worker", "--config", "app.yaml")
    cell.send(100)
    cell.rows(300)
    two = cell.start("faust", "-A", "stream_app.worker", "worker")
    cell.send(100)
    cell.rows(600)
    # The first worker closes bins and owns partitions. It is killed, and Redis is restarted.
    one.send_signal(signal.SIGKILL)
    cell.send(100)
    cell.kill_redis()
    cell.redis.restart()
    cell.send(50)
    rows = cell.rows(cell.sent)
    two.send_signal(signal.SIGHUP)  # supervisors send it to reload
    assert two.poll() is None, cell.said()
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1)), "a bin twice, or none"
    assert {row["epoch"] for row in rows} == {0}
    assert rows[-1]["estimate"] == [cell.sent]
    nodes: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        for level, index, values in row["nodes"]:
            assert nodes.setdefault((level, index), values) == values
    approximate = cell.rows(cell.sent, "approximate")
    assert [row["seq"] for row in approximate] == list(range(1, len(approximate) + 1))
    assert {row["epoch"] for row in approximate} == {0}
    assert approximate[-1]["estimate"] == [pytest.approx(cell.sent, abs=0.01)]
    assert "SIGHUP: files of API keys" in cell.said()
    assert two.poll() is None, cell.said()
    two.send_signal(signal.SIGTERM)
    two.wait(PATIENCE_S)
    _follow(cell, [sys.executable, str(REPOSITORY / "examples/releases_consumer.py")], f": {cell.sent} (")
    _follow(cell, [sys.executable, "-m", "faust", "-A", "examples.releases_agent", "worker"], " 0 events")


def test_after_kill_9_a_worker_waits_for_redis_goes_on_and_waits_for_no_group_but_that_of_events(
    cell: Cell,
) -> None:
    first = cell.start("stream_app", "worker", "--config", "app.yaml")
    cell.send(10)
    cell.rows(30)
    first.kill()
    first.wait()
    cell.kill_redis()
    second = cell.start("stream_app", "worker", "--config", "app.yaml")
    cell.send(10)
    eventually(lambda: "start it or correct the URL; trying again" in cell.said(), cell.said)
    assert second.poll() is None, cell.said()
    cell.redis.restart()
    cell.rows(60)
    # The broker gives up the dead member of the group that reads events after ten seconds; that of a group of
    # Faust took more than 60 s.
    groups, topic = asyncio.run(cell.topic.groups()), cell.topic.name
    assert [group for group in groups if topic in group] == [f"{topic}.{topic}"]
    second.terminate()
    assert second.wait(PATIENCE_S) == 0, cell.said()
    assert "Traceback" not in cell.said()


@pytest.mark.parametrize(
    ("cell", "ends"),
    [("classic", signal.SIGTERM), ("consumer", signal.SIGTERM), ("consumer", signal.SIGKILL)],
    indirect=["cell"],
)
def test_a_worker_that_is_taken_away_hands_over_at_once_and_no_bin_is_lost(
    cell: Cell, ends: signal.Signals
) -> None:
    """SIGTERM drains a worker: it leaves its partitions and leases to the other one, with status 0.

    By the new protocol of groups a killed worker has its partitions again when it begins again.
    """
    workers = [cell.start("stream_app", "worker", "--config", "app.yaml") for _ in range(2)]
    cell.send(30)
    cell.rows(90)
    visible: list[tuple[float, int]] = []
    ended = threading.Event()

    def watch() -> None:
        with Redis.from_url(cell.redis.operator_url) as redis:
            while not ended.wait(0.02):
                seq = int(redis.get(StreamKeys("clicks").visible) or 0)
                if not visible or visible[-1][1] != seq:
                    visible.append((time.monotonic(), seq))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    for number in range(2):  # whichever of both closes the stream, it is taken away once
        for _ in range(10):
            cell.send(20)
            time.sleep(0.3)
        asked = time.monotonic()
        workers[number].send_signal(ends)
        assert workers[number].wait(PATIENCE_S) == (0 if ends == signal.SIGTERM else -ends), cell.said()
        print(f"a worker ended after {time.monotonic() - asked:.1f} s")
        workers[number] = cell.start("stream_app", "worker", "--config", "app.yaml")
        cell.send(30)
        cell.rows(cell.sent)
    ended.set()
    watching.join()
    gaps = [after[0] - before[0] for before, after in pairwise(visible)]
    print(f"longest time between releases of 1 s: {max(gaps):.1f} s; usual: {statistics.median(gaps):.1f} s")
    rows = cell.rows(cell.sent)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1)), "a bin twice, or none"
    assert {row["epoch"] for row in rows} == {0}
    assert rows[-1]["estimate"] == [cell.sent]
    assert "Traceback" not in cell.said()
    assert "rebalancing" not in cell.said()


def test_lost_records_a_missing_topic_and_one_created_anew_are_refused_in_one_line(cell: Cell) -> None:
    worker = cell.start("stream_app", "worker", "--config", "app.yaml")
    cell.send(10)
    cell.rows(30)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 0, cell.said()
    logged = [json.loads(line) for line in (cell.folder / "worker-0.log").read_text().splitlines()]
    # On a busy machine, how far a start is.
    told = [line["event"] for line in logged if not line["event"].startswith("start: ")]
    assert len(told) == 2, told
    assert told[0].startswith("clicks, approximate: no earlier run is known. A new stream needs nothing.")
    assert "a worker on another machine would stop these streams" in told[1]
    cell.send(100)
    asyncio.run(cell.topic.delete_before(50))
    said = _refused(cell)
    assert said.startswith(f"stream-app: topic {cell.topic.name}: {GONE}")
    assert "Traceback" not in cell.said()
    asyncio.run(cell.topic.delete())
    said = _refused(cell)
    assert said.startswith(f"stream-app: topic {cell.topic.name}: ")
    assert said.endswith(" has none; create it")
    asyncio.run(cell.topic.create_again(3))
    said = _refused(cell)
    assert said.startswith("stream-app: stream clicks: source.topic_id was ")
    assert said.endswith(
        " now; put it back, or give the new stream another name, with successor_of to continue this one"
    )


def _refused(cell: Cell) -> str:
    """Start a worker that must be refused; return the last line of its log."""
    worker = cell.start("stream_app", "worker", "--config", "app.yaml")
    assert worker.wait(PATIENCE_S) == 2
    lines = (cell.folder / f"worker-{len(cell.workers) - 1}.log").read_text().splitlines()
    return lines[-1]


def _follow(cell: Cell, command: list[str], expected: str) -> None:
    """Run an example program over the releases topic until it prints the expected text."""
    topic = f"{cell.topic.name}.private"
    reader = cell.folder / "example.log"
    arguments = [cell.topic.servers, topic] if command[-1].endswith(".py") else []
    with reader.open("wb") as log:
        example = subprocess.Popen(
            [*command, *arguments],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "RELEASES_BROKER": f"kafka://{cell.topic.servers}",
                "RELEASES_TOPIC": topic,
                "PYTHONPATH": str(REPOSITORY),
                "FAUST_DATADIR": str(cell.folder / "faust"),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    cell.workers.append(example)
    eventually(lambda: expected in reader.read_text() or example.poll() is not None, reader.read_text)
    assert example.poll() is None, reader.read_text()
    example.kill()
    example.wait()
