"""Events over HTTP are counted exactly once, whichever process is killed while they arrive."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

import httpx
import pytest

from deploy.ports import free_port
from stream_app.config.key_file import add_key
from tests.e2e.service import Service, get

pytestmark = [pytest.mark.redis, pytest.mark.slow]

CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
api: {{port: {port}}}
ingest: {{port: {ingest_port}, keys: writers.ndjson}}
publish_every: 250ms
streams:
  clicks:
    source: {{http: clicks}}
    time: {{field: at, format: ms, bin: 1s, grace: 1s, epoch: 1h, max_ahead: 60s}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""


class Sender(threading.Thread):
    """Sends batches, each again and again until it is confirmed, as long as ``enough`` is not set."""

    def __init__(self, number: int, port: int, key: str, batches: int, enough: threading.Event) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.repeated = 0
        self._random = random.Random(number)
        self._number, self._key, self._batches, self._enough = number, key, batches, enough
        self._url = f"http://127.0.0.1:{port}/v1/ingest/clicks"

    def run(self) -> None:
        """Send everything. Args, of the thread: batches, the least number."""
        with httpx.Client(verify=False, timeout=5) as client:
            for batch in count():
                if batch >= self._batches and self._enough.is_set():
                    return
                records = self._random.randint(1, 20)
                line = json.dumps({"at": int(time.time() * 1000), "pad": "x" * 50}) + "\n"
                self._until_confirmed(client, f"{self._number}-{batch}", line * records)
                self.sent += records
                time.sleep(self._random.random() * 0.03)

    def _until_confirmed(self, client: httpx.Client, name: str, body: str) -> None:
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": name}
        while True:
            try:
                answer = client.post(self._url, content=body, headers=headers)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                assert answer.json()["records"] == body.count("\n")
                self.repeated += answer.json()["duplicate"]
                return
            assert answer.status_code in (429, 503), answer.text
            time.sleep(0.05)


def _count(port: int) -> float:
    stream = get(port, "/v1/streams/clicks")
    if stream["released_until"] is None:
        return 0
    return float(get(port, "/v1/streams/clicks/count")["value"])


@pytest.mark.timeout(600)
def test_each_event_counts_once_whichever_process_is_killed(tmp_path: Path) -> None:
    port, ingest_port = free_port(), free_port()
    (tmp_path / "app.yaml").write_text(CONFIGURATION.format(port=port, ingest_port=ingest_port))
    key = add_key(tmp_path / "writers.ndjson", "web", ["clicks"])
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("bins closed")
        enough = threading.Event()
        senders = [Sender(number, ingest_port, key, 80, enough) for number in range(4)]
        for sender in senders:
            sender.start()
        kills = 0
        while any(sender.is_alive() for sender in senders):
            time.sleep(0.7)
            role = ("ingest", "worker")[kills % 3 == 2]
            if kills < 5 and service.kill_child(f"stream_app.shell.child {role}"):
                kills += 1
            if kills >= 3:
                enough.set()
        sent = sum(sender.sent for sender in senders)
        service.until_true(lambda: _count(port) >= sent, "all is counted")
        time.sleep(1.5)
        assert _count(port) == sent
        assert service.interrupt() == 0
    records = b"".join(path.read_bytes() for path in sorted((tmp_path / "spool/clicks").glob("*.ndjson")))
    assert records.count(b"\n") == sent
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "spool").rglob("*")} == {0}


def test_lines_of_standard_input_are_counted(tmp_path: Path) -> None:
    port, ingest_port = free_port(), free_port()
    text = CONFIGURATION.format(port=port, ingest_port=ingest_port).replace(", keys: writers.ndjson", "")
    (tmp_path / "app.yaml").write_text(text)
    lines = (json.dumps({"at": int(time.time() * 1000)}) + "\n") * 1000
    command = [sys.executable, "-m", "stream_app", "ingest", "--config", "app.yaml", "--stdin", "clicks"]
    ended = _run(command, tmp_path, lines[:-1])
    assert ended.stdout == "1,000 lines are stored\n"
    [records] = (tmp_path / "spool/clicks").glob("*.ndjson")
    assert records.read_text() == lines
    refused = _run([*command[:-1], "other"], tmp_path, "")
    assert refused.returncode == 2
    said = "stream-app: --stdin other: no stream has this source.http; use one of clicks\n"
    assert refused.stderr == said


def _run(command: list[str], folder: Path, lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, input=lines, capture_output=True, text=True, check=False)
