"""The commands of docs/how-to/rotate.md on a worker that runs; kill -9 of the command and of the worker."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from stream_app.core.user_keys import mark_of_users
from stream_app.shell.commands import main
from stream_app.state.embedded import EmbeddedRedis
from stream_app.vault import key_ring
from stream_app.vault.key_ring import KeyRing
from tests.blocks.pages import block
from tests.e2e.service import Service
from tests.patience import PATIENCE_S, eventually

COMMANDS = "docs/how-to/rotate.md: stream-app rotate-key begin"
CONFIG = """
redis: {{url: "{url}"}}
{secrets}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 1h}}
    privacy: {{epsilon: 1, unit: {{user: who, max_events: 3}}}}
  people:
    source: {{file: people.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 3s}}
    tree: {{release: causal}}
    privacy: {{epsilon: 1000, not_private: true, unit: {{user: who, max_events: 2}}}}
"""
NOISE = "dp:{clicks}:sec:noise"


@pytest.mark.redis
def test_a_key_is_rotated_while_a_worker_runs(tmp_path: Path) -> None:
    file, witness = tmp_path / "noise.key", tmp_path / "state" / "witness" / "clicks.ndjson"

    def rows() -> list[dict[str, Any]]:
        return [json.loads(line) for line in witness.read_text().splitlines()] if witness.exists() else []

    def releases() -> None:
        with (tmp_path / "clicks.ndjson").open("a") as log:
            log.write(json.dumps({"at": int(time.time()), "who": "ann"}) + "\n")
        before = len(rows())
        eventually(lambda: len(rows()) > before, "a bin is released")

    def counts_newest() -> bool:
        mark = mark_of_users(KeyRing.read(file).users[-1])
        windows = redis.zrange("dp:{people}:sec:open_windows", 0, -1)
        return mark in [redis.hget(f"dp:{{people}}:sec:users:{int(one)}", "key mark") for one in windows]

    with (
        EmbeddedRedis(tmp_path / "redis") as server,
        Redis.from_url(server.worker_url, protocol=2) as redis,
        events_of_ann(tmp_path / "people.ndjson"),
    ):
        config, held = tmp_path / "stream-app.yaml", tmp_path / "state" / "noise_keys" / "users.key"
        config.write_text(CONFIG.format(url=server.worker_url, secrets=""))
        assert "run stream-app rotate-key move" in rotated("begin", config, 2)
        with Service(["worker"], tmp_path) as worker:
            releases()
            config.write_text(CONFIG.format(url=server.worker_url, secrets="secrets: {key_file: noise.key}"))
            assert "is in use by a worker; stop it" in rotated("move", config, 2)
            assert worker.interrupt() == 0, worker.output
        users = (bytes.fromhex(json.loads(held.read_text())["key"]),)
        assert "holds the key of users' hashes and a new key" in rotated("move", config, 0)
        assert not held.exists()
        assert "holds no keys to move" in rotated("move", config, 2)
        with Service(["worker"], tmp_path) as worker:
            releases()
            pages = len(redis.hkeys(NOISE)) - 1
            old = KeyRing.read(file).marks[0]
            assert redis.hget(NOISE, "key") == old
            said = run_page(tmp_path).splitlines()
            assert f"{pages} pages were encrypted again, and 1 old key(s) taken out" in said[-1]
            assert (
                "The old key of users' hashes stays in the file for cap windows that have begun: clicks"
                in said[-1]
            )
            [first] = KeyRing.read(file).marks
            assert redis.hget(NOISE, "key") == first != old
            releases()
            # The second rotation dies when it has noted the new key, and the worker dies too.
            key_ring.begin(file)
            noted = KeyRing.read(file).marks[0]
            with Service(["rotate-key", "finish"], tmp_path) as finish:
                eventually(lambda: redis.hget(NOISE, "key") == noted, "the new key is noted")
                finish.kill_everything()
            worker.kill_everything()
        with Service(["worker"], tmp_path) as worker:
            releases()
            with Service(["rotate-key", "finish"], tmp_path) as finish:
                assert finish.wait() == 0
            releases()
            eventually(counts_newest, "a cap window has the newest key of users' hashes")
            releases()
            assert worker.interrupt() == 0
        kept = file.read_bytes()
        file.write_bytes(base64.b64encode(bytes(32)) + b"\n")
        lost = CliRunner().invoke(main, ["rotate-key", "lost", "--config", str(tmp_path / "stream-app.yaml")])
        assert lost.output.startswith("clicks, people: noise under a lost key is given up"), lost.output
        assert redis.hget(NOISE, "key") == KeyRing.read(file).marks[0]
        file.write_bytes(kept)
    assert KeyRing.read(file).marks == (noted,)
    assert KeyRing.read(file).users[:1] == users  # for the hour that has begun
    check_caps(tmp_path / "state" / "witness" / "people.ndjson")
    assert {row["epoch"] for row in rows()} == {0}
    assert [row["seq"] for row in rows()] == list(range(1, len(rows()) + 1))


def rotated(step: str, config: Path, status: int) -> str:
    """Run a step, which ends with a status; return its one line."""
    result = CliRunner().invoke(main, ["rotate-key", step, "--config", str(config)])
    assert result.exit_code == status, result.output
    [line] = result.output.splitlines()
    return line


@contextmanager
def events_of_ann(file: Path) -> Iterator[None]:
    """Append an event of one user to a file, ten times a second."""
    over = Event()

    def write() -> None:
        while not over.wait(0.1):
            with file.open("a") as log:
                log.write(json.dumps({"at": int(time.time()), "who": "ann", "log": "people"}) + "\n")

    file.touch()
    writer = Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def check_caps(witness: Path) -> None:
    """Check that each cap window counts two events of the user, whichever key it has; noise is 0 here."""
    windows: Counter[int] = Counter()
    for line in witness.read_text().splitlines():
        row = json.loads(line)
        windows[row["epoch"]] += row["nodes"][0][2][0]
    first, *others, _ = (windows[epoch] for epoch in sorted(windows))
    assert first <= 2
    assert others == [2] * len(others)
    assert len(others) > 2


def run_page(folder: Path) -> str:
    """Run the commands of the page; return what they print."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", block(COMMANDS).text],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
