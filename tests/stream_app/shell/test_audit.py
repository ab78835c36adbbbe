"""``stream-app audit`` as a command: its lines, its report, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stream_app.audit import examination
from stream_app.audit.neighbours import GreyBox
from stream_app.shell.commands import main
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


def audit_stored(config: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Run the command without its rehearsals, which read nothing stored: the whole command runs them once."""
    with monkeypatch.context() as part:
        part.setattr(examination, "rehearsed", lambda *_: iter(()))
        return CliRunner().invoke(main, ["audit", "--config", str(config)])


def test_audit_of_a_deployment_says_what_it_found_and_writes_a_report(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_started = audit_stored(config, monkeypatch)
    assert never_started.exit_code == 0, never_started.output
    assert "--    stored, s: Stored releases are checked\n      it was never started" in never_started.output

    monkeypatch.chdir(config.parent)
    ran = stream_app(["worker", "-c", str(config)])
    assert ran.returncode == 0, ran.stdout
    # The command of docs/audit.md; few bins make it short.
    asked = block("docs/audit.md: stream-app audit --config app.yaml --report audit").text.split()[1:]
    ran = stream_app([*asked, "--bins", "3"])
    assert ran.returncode == 0, ran.stdout
    assert (
        "ok    stored, s: What readers see is in the witness, byte for byte\n      6 visible rows"
        in ran.stdout
    )
    report = config.parent / "audit"
    found = json.loads((report / "audit.json").read_text())
    assert found["failed"] == 0
    assert {check["part"] for check in found["checks"]} == {"stored", "grey box", "black box"}
    assert "| No bin was released twice" in (report / "audit.md").read_text()

    witness = config.parent / "state" / "witness" / "s.ndjson"
    first, *others = witness.read_bytes().splitlines(keepends=True)
    witness.write_bytes(b"".join([first.replace(b'"estimate":[', b'"estimate":[1'), *others]))
    changed = audit_stored(config, monkeypatch)
    assert changed.exit_code == 2
    assert "FAIL  stored, s: What readers see is in the witness, byte for byte" in changed.output
    assert "row 1 differs from the witness" in changed.output


def test_outputs_of_a_stream_that_is_not_private_are_not_counted(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run of its neighbour would ever look like it, however many there are."""
    config.write_text(CONFIG.replace("epsilon: 1}", "epsilon: 1000000000, not_private: true}"))
    monkeypatch.setattr(GreyBox, "losses", lambda _self: iter(()))
    said = CliRunner().invoke(main, ["audit", "--config", str(config)])
    assert said.exit_code == 0, said.output
    assert "--    black box, s: " in said.output
    assert "it says not_private: true" in said.output
