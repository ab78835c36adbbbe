"""The commands of docs/how-to/rotate.md on a worker that runs; kill -9 of the command and of the worker."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from stream_app.shell.commands import main
from stream_app.state.embedded import EmbeddedRedis
from stream_app.vault import key_ring
from stream_app.vault.key_ring import KeyRing
from stream_app.vault.shared_key import SharedKey
from tests.blocks.pages import block
from tests.e2e.service import Service
from tests.patience import PATIENCE_S, eventually

COMMANDS = "docs/how-to/rotate.md: stream-app rotate-key begin"
CONFIG = """
redis: {{url: "{url}"}}
secrets: {{key_file: noise.key}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 1h}}
    privacy: {{epsilon: 1, unit: {{user: who, max_events: 3}}}}
"""
NOISE = "dp:{clicks}:sec:noise"


@pytest.mark.redis
def test_a_key_is_rotated_while_a_worker_runs(tmp_path: Path) -> None:
    file, witness = tmp_path / "noise.key", tmp_path / "state" / "witness" / "clicks.ndjson"
    file.touch(0o600)
    file.write_bytes(base64.b64encode(bytes(range(32))) + b"\n")
    user_key = asyncio.run(SharedKey.read(file).user_key())

    def rows() -> list[dict[str, Any]]:
        return [json.loads(line) for line in witness.read_text().splitlines()] if witness.exists() else []

    def releases() -> None:
        with (tmp_path / "clicks.ndjson").open("a") as log:
            log.write(json.dumps({"at": int(time.time()), "who": "ann"}) + "\n")
        before = len(rows())
        eventually(lambda: len(rows()) > before, "a bin is released")

    with EmbeddedRedis(tmp_path / "redis") as server, Redis.from_url(server.worker_url, protocol=2) as redis:
        (tmp_path / "stream-app.yaml").write_text(CONFIG.format(url=server.worker_url))
        with Service(["worker"], tmp_path) as worker:
            releases()
            pages = len(redis.hkeys(NOISE)) - 1
            old = KeyRing.read(file).marks[0]
            assert redis.hget(NOISE, "key") == old
            said = run_page(tmp_path).splitlines()
            assert f"{pages} pages were encrypted again, and 1 old key(s) taken out" in said[-1]
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
            assert worker.interrupt() == 0
        kept = file.read_bytes()
        file.write_bytes(base64.b64encode(bytes(32)) + b"\n")
        lost = CliRunner().invoke(main, ["rotate-key", "lost", "--config", str(tmp_path / "stream-app.yaml")])
        assert lost.output.startswith("clicks: noise under a lost key is given up"), lost.output
        assert redis.hget(NOISE, "key") == KeyRing.read(file).marks[0]
        file.write_bytes(kept)
    assert KeyRing.read(file).marks == (noted,)
    assert asyncio.run(SharedKey.read(file).user_key()) == user_key  # no user counts anew
    assert {row["epoch"] for row in rows()} == {0}
    assert [row["seq"] for row in rows()] == list(range(1, len(rows()) + 1))


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
