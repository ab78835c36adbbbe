"""kill -9 at random moments of one replay: no event is lost or doubled, no node released twice."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest

from deploy.ports import free_port
from tests.e2e.flights import HOURS, configuration, instant, recount
from tests.e2e.service import Follower, Service, get
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(1500)]

KILLS = 25
STREAMS = (
    ("exact", "epsilon: 1.0e9, not_private: true"),
    ("private", 'epsilon: 1, accept: "measured again"'),
    ("approximate", 'epsilon: 1.0e9, delta: 1.0e-6, not_private: true, accept: "measured again"'),
)


def test_kills_lose_nothing_and_release_nothing_twice(tmp_path, flights):
    moments = random.Random(20_130_101)
    port = free_port()
    config = tmp_path / "app.yaml"
    # Slow enough that the replay of the year does not end before the last kill.
    config.write_text(configuration(flights, port, speed="4d/s", streams=STREAMS))
    service = Service(["run", "--config", "app.yaml"], tmp_path)
    followers = {name: Follower(port, name) for name, _ in STREAMS}
    try:
        for kill in range(KILLS):
            before = _witnessed_bytes(tmp_path)
            service.until_true(lambda at=before: _witnessed_bytes(tmp_path) > at, "more is released")
            time.sleep(moments.uniform(0, 0.4))
            victim = moments.choice(["everything", "child worker", "child api", "redis-server", "parent"])
            if victim == "everything":
                service.kill_everything()
            elif victim == "parent":
                service.process.kill()
            else:
                service.kill_child(victim)
            if victim in ("everything", "parent"):
                service.process.wait(PATIENCE_S)
                service.close()
                service = Service(["run", "--config", "app.yaml"], tmp_path)
            assert service.process.poll() is None, (kill, victim, service.output)
        assert len(_rows(tmp_path, "private")) < HOURS, "the year was over before the kills; lower the speed"
        service.close()
        config.write_text(configuration(flights, port, speed="max", streams=STREAMS))
        service = Service(["run", "--config", "app.yaml"], tmp_path)
        service.until("the replay is complete", 2 * PATIENCE_S)
        year = {"start": instant(0), "end": instant(HOURS)}
        bins = get(port, "/v1/streams/exact/series", kind="bin", **year)
        assert bins["value"] == recount(flights).tolist()
        bins = get(port, "/v1/streams/approximate/series", kind="bin", **year)
        assert bins["value"] == pytest.approx(recount(flights).tolist(), abs=0.01)
        for name, follower in followers.items():
            service.until_true(
                lambda seen=follower.seen: len(seen) == HOURS, f"{name} is followed to its end"
            )
            _check_one_value_a_node(tmp_path, name, follower)
        assert service.interrupt() == 0
    finally:
        for follower in followers.values():
            follower.close()
        service.close()


def _rows(directory: Path, name: str) -> list[bytes]:
    """Return the witness's complete rows. The last line of its file may not be complete yet."""
    lines = _witness(directory, name).read_bytes().splitlines(keepends=True)
    return [line for line in lines if line.endswith(b"\n")]


def _witnessed_bytes(directory: Path) -> int:
    file = _witness(directory, "private")
    return file.stat().st_size if file.exists() else 0


def _witness(directory: Path, name: str) -> Path:
    return directory / "state" / "witness" / f"{name}.ndjson"


def _check_one_value_a_node(directory: Path, name: str, follower: Follower) -> None:
    """Check that all rows that anybody ever saw form one chain, in which every node has one value."""
    assert follower.changed == []
    witnessed = {json.loads(row)["seq"]: row.rstrip(b"\n") for row in _rows(directory, name)}
    assert witnessed == follower.seen
    nodes: dict[tuple[int, int, int], list[int]] = {}
    for seq in range(1, HOURS + 1):
        row = json.loads(witnessed[seq])
        assert row["epoch"] == 0, "a kill is no reason to end an epoch"
        for level, index, values in row["nodes"]:
            assert nodes.setdefault((row["epoch"], level, index), values) == values
    if name == "approximate":  # its rows have no nodes: the running count is the released value
        return
    assert len([node for node in nodes if node[1] == max(level for _, level, _ in nodes)]) == HOURS
    # If noise were left out, the spread would be too small: at epsilon 1, values are typically not zero.
    if name == "private":
        assert np.std([values[0] for (_, level, _), values in nodes.items() if level > 1]) > 1
