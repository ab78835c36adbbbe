"""The commands of docs/how-to/backup.md: a store is copied under load, destroyed, and restored."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from redis import Redis

from stream_app.shell.commands import main
from stream_app.sinks.witness_file import witnessed_rows
from stream_app.state.embedded import find_server
from stream_app.state.keys import StreamKeys
from tests.deployment.test_redis import DeployedRedis, deployed
from tests.e2e.service import Service

pytestmark = [pytest.mark.redis, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "backup.md"
DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIGURATION = """
redis: {{url: "{url}"}}
publish_every: 250ms
streams:
  visits:
    source: {{file: visits.ndjson}}
    time: &seconds {{field: at, format: ms, bin: 1s, grace: 3s, epoch: 1h, max_ahead: 60s}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
  noisy:
    source: {{file: visits.ndjson}}
    time: *seconds
    privacy: {{epsilon: 0.5, accept: measured again}}
  kept:
    source: {{file: visits.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 3s, epoch: 2s, max_ahead: 60s}}
    privacy: {{epsilon: 0.5, accept: measured again}}
    releases: {{keep: 2s}}
"""
STREAMS = ("visits", "noisy")


def command(name: str) -> str:
    """Return a block of commands of the page."""
    found = re.search(rf"^( *)```sh {name}\n(.*?)^ *```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(2)


def run(name: str, folder: Path, redis: DeployedRedis) -> str:
    """Run a block of commands with this service and the programs of the bundled server; return the output."""
    programs = (find_server().parent, Path(sys.executable).parent, os.environ["PATH"])
    path = os.pathsep.join(map(str, programs))
    values = {"REDIS_OPERATOR_URL": redis.url("operator"), "REDIS_DATA": str(redis.folder / "data")}
    environment = {**os.environ, "PATH": path, **values}
    words = ["sh", "-ec", command(name)]
    ended = subprocess.run(words, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return ended.stdout


@contextmanager
def sending(file: Path, sent: Counter[int]) -> Iterator[None]:
    """Append events dated now during the block, and count them by second."""
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.05):
            at = int(time.time() * 1000)
            with file.open("ab") as log:
                log.write(b'{"at": %d}\n' % at * 5)
            sent[at // 1000] += 5

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def visible_rows(redis: DeployedRedis, stream: str) -> dict[int, bytes]:
    keys = StreamKeys(stream)
    with Redis.from_url(redis.url("operator"), protocol=2) as client:
        last: Any = client.get(keys.visible)
        found: Any = client.xrange(keys.chain, max=f"{int(last)}-0") if last else []
    return {int(id.split(b"-")[0]): fields[b"row"] for id, fields in found}


def test_a_restored_backup_and_a_rebuilt_store_release_no_bin_twice(tmp_path: Path) -> None:
    sent, rows = Counter[int](), dict[str, dict[int, bytes]]()
    (tmp_path / "visits.ndjson").touch()
    with deployed(tmp_path, find_server()) as redis, sending(tmp_path / "visits.ndjson", sent):
        (tmp_path / "stream-app.yaml").write_text(CONFIGURATION.format(url=redis.worker_url))
        with worker(tmp_path) as first:
            first.until_true(lambda: len(visible_rows(redis, "noisy")) >= 2, "it releases")
            run("backup", tmp_path, redis)
            the_copy_is_checked(tmp_path, run("check", tmp_path, redis))
            copied = len(visible_rows(redis, "noisy"))
            first.until_true(lambda: len(visible_rows(redis, "noisy")) >= copied + 2, "it goes on")
            rows = seen(redis, rows)
        lose(redis)
        shutil.copy(tmp_path / "backup.rdb", redis.folder / "data")
        run("restore", tmp_path, redis)
        redis.start()
        rows = goes_on(tmp_path, redis, rows, "the store was set back: epoch 0 has ended")
        lose(redis)
        redis.start()
        with Service(["rebuild", "--config", "stream-app.yaml"], tmp_path) as rebuilding:
            assert rebuilding.wait() == 0, rebuilding.output
        rows = seen(redis, rows)  # all of them are back, before any worker runs
        rows = goes_on(tmp_path, redis, rows, "the store was lost: epoch 1 has ended")
        old_epochs_left(redis)
    for stream in STREAMS:
        told = [json.loads(row) for _, row in sorted(rows[stream].items())]
        assert {after["bin"] - one["bin"] for one, after in pairwise(told)} == {1}, (
            "no bin twice, none missing"
        )
        assert {row["epoch"] for row in told} == {0, 1, 2}
    counted, running, epoch = dict[int, int](), 0, 0
    for row in (json.loads(row) for _, row in sorted(rows["visits"].items())):
        running, epoch = (running if row["epoch"] == epoch else 0), row["epoch"]
        counted[row["bin"]] = round(row["estimate"][0]) - running
        running = round(row["estimate"][0])
    assert counted == {bin: sent[bin] for bin in counted}


def the_copy_is_checked(folder: Path, said: str) -> None:
    """Check what the page's command said of a copy while the service runs; bad copies are refused."""
    told = said.splitlines()
    assert [line.split(":")[0] for line in told[:-1]] == [*STREAMS, "kept"]
    line = re.compile(r"\w+: [\d,]+ bins until 20\S+Z; its witness has (no later one|[1-9])")
    assert all(map(line.match, told[:-1])), said
    assert told[-1] == "backup.rdb: 24 checks, 0 failed"
    the_containers_check_it(folder, told[-1])
    copied = (folder / "backup.rdb").read_bytes()
    (folder / "damaged.rdb").write_bytes(copied[: len(copied) // 2])
    (folder / "other.rdb").write_bytes(b"{}")
    refusals = {"damaged": "redis-server cannot load it", "other": "it is no copy of a Redis"}
    for name, refusal in {**refusals, "absent": "No such file"}.items():
        status, said = checked(folder, f"{name}.rdb")
        assert (status, len(said.splitlines())) == (2, 1), said
        assert f"{name}.rdb: {refusal}" in said
    text = (folder / "stream-app.yaml").read_text()
    changeable = text.replace("epsilon: 0.5", "epsilon: 0.25").replace("grace: 3s", "grace: 4s")
    (folder / "changed.yaml").write_text(changeable)
    status, said = checked(folder, "backup.rdb", "changed.yaml")
    assert (status, said.splitlines()[-1]) == (0, told[-1]), "a start changes these settings"
    (folder / "changed.yaml").write_text(text.replace("field: at", "field: time"))
    status, said = checked(folder, "backup.rdb", "changed.yaml")
    assert status == 2
    assert "FAIL noisy: The configuration is the one with which the stream runs, or may follow it: " in said


def the_containers_check_it(folder: Path, told: str) -> None:
    """Run the commands of the compose file and of the page for Kubernetes, with their paths here."""
    (folder / "program").mkdir()
    shutil.copy(find_server(), folder / "program" / "redis-server")
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["check-backup"]
    [in_pod] = re.findall(
        r"^kubectl exec \S+ -- (stream-app check-backup .*)$", PAGE.read_text(), re.MULTILINE
    )
    pod, _policy = yaml.safe_load_all((DEPLOY / "kubernetes" / "check-backup.yaml").read_text())
    [container] = pod["spec"]["containers"]
    mounted = {volume.split(":")[1] for volume in service["volumes"]} | {"/backup"}
    for words, places in (
        ([*service["entrypoint"], *service["command"]], mounted),
        (in_pod.split(), {one["mountPath"] for one in container["volumeMounts"]}),
    ):
        paths = [Path(word) for word in words if word.startswith("/")]
        assert all(str(path) in places or str(path.parent) in places for path in paths), words
        here = {"/etc/private-counts": folder, "/program": folder / "program", "/backup": folder}
        own = [
            str(here[str(Path(word).parent)] / Path(word).name) if word[0] == "/" else word for word in words
        ]
        result = CliRunner().invoke(main, own[1:])
        assert result.exit_code == 0, result.output
        assert result.output.replace(f"{folder}/", "").splitlines()[-1] == told


def checked(folder: Path, file: str, config: str = "stream-app.yaml") -> tuple[int, str]:
    words = ["check-backup", str(folder / file), "--config", str(folder / config)]
    result = CliRunner().invoke(main, words)
    return result.exit_code, result.output.replace(f"{folder}/", "")


def worker(folder: Path) -> Service:
    return Service(["worker", "--config", "stream-app.yaml"], folder)


def old_epochs_left(redis: DeployedRedis) -> None:
    """Check the stream whose old epochs leave the store: each bin was released once, and few are left."""
    rows, witnessed = visible_rows(redis, "kept"), witnessed_rows(redis.folder / "state" / "witness", "kept")
    bins = [json.loads(row.row)["bin"] for row in witnessed]
    assert bins == list(range(bins[0], bins[0] + len(bins))), "no bin twice, none missing"
    assert {row.seq: row.row for row in witnessed}.items() >= rows.items()
    assert len(rows) < len(witnessed), "old epochs left again, also after both losses"


def lose(redis: DeployedRedis) -> None:
    """kill -9 the server, and delete its data."""
    redis.kill()
    shutil.rmtree(redis.folder / "data")
    (redis.folder / "data").mkdir()


def seen(redis: DeployedRedis, before: dict[str, dict[int, bytes]]) -> dict[str, dict[int, bytes]]:
    """Return all rows that readers see; check that those of before are the same, and in the witness."""
    now = {stream: visible_rows(redis, stream) for stream in STREAMS}
    for stream in STREAMS:
        witnessed = witnessed_rows(redis.folder / "state" / "witness", stream)
        assert now[stream].items() >= before.get(stream, {}).items(), "a row has another value, or is gone"
        assert {row.seq: row.row for row in witnessed}.items() >= now[stream].items()
    return now


def goes_on(
    folder: Path, redis: DeployedRedis, before: dict[str, dict[int, bytes]], said: str
) -> dict[str, dict[int, bytes]]:
    """Start a worker, and return what readers see once it has released more of every stream."""
    with worker(folder) as running:
        running.until_true(
            lambda: all(max(visible_rows(redis, one), default=0) >= max(before[one]) + 3 for one in STREAMS),
            "it releases again",
        )
        assert said in running.output
        return seen(redis, before)
