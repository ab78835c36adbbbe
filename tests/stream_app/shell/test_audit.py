"""``stream-app audit`` as a command: its lines, its report, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.blocks.pages import block
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.redis

CONFIG = """
redis: {url: "embedded:redis"}
streams:
  s:
    source: {file: events.ndjson, replay: {from: "2024-01-01T00:00:00Z", to: "2024-01-01T06:00:00Z"}}
    time: {field: at, format: s, bin: 1h, grace: 5m, epoch: 6h}
    privacy: {epsilon: 1}
"""


def stream_app(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stream_app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "events.ndjson").write_text(
        "".join(f'{{"at": {1_704_067_200 + 60 * n}}}\n' for n in range(300))
    )
    file = tmp_path / "app.yaml"
    file.write_text(CONFIG)
    return file


def test_audit_of_a_deployment_says_what_it_found_and_writes_a_report(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command of docs/audit.md; few bins make it short.
    asked = block("docs/audit.md: stream-app audit --config app.yaml --report audit").text.split()[1:]
    asked += ["--bins", "3"]
    monkeypatch.chdir(config.parent)
    report = config.parent / "audit"
    never_started = stream_app(asked)
    assert never_started.returncode == 0, never_started.stdout
    assert "--    stored, s: Stored releases are checked\n      it was never started" in never_started.stdout

    ran = stream_app(["worker", "-c", str(config)])
    assert ran.returncode == 0, ran.stdout
    ran = stream_app(asked)
    assert ran.returncode == 0, ran.stdout
    assert (
        "ok    stored, s: What readers see is in the witness, byte for byte\n      6 visible rows"
        in ran.stdout
    )
    found = json.loads((report / "audit.json").read_text())
    assert found["failed"] == 0
    assert {check["part"] for check in found["checks"]} == {"stored", "grey box", "black box"}
    assert "| s | No bin was released twice" in (report / "audit.md").read_text()

    witness = config.parent / "state" / "witness" / "s.ndjson"
    first, *others = witness.read_bytes().splitlines(keepends=True)
    witness.write_bytes(b"".join([first.replace(b'"estimate":[', b'"estimate":[1'), *others]))
    ran = stream_app(asked)
    assert ran.returncode == 2
    assert "FAIL  stored, s: What readers see is in the witness, byte for byte" in ran.stdout
    assert "row 1 differs from the witness" in ran.stdout
