"""systemd's own program checks the shipped units, and how much a process could do that was taken over."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stream_app.shell.commands import main
from stream_app.shell.processes import REFUSED
from tests.patience import PATIENCE_S
from tests.services import required, systemd_analyze

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
STRICT_ENOUGH = 1.5  # systemd's exposure level: 0 is closed, 10 is open
PROGRAM = "/opt/private-counts/bin/stream-app"

pytestmark = pytest.mark.slow


def analyze(*words: str | Path) -> str:
    done = subprocess.run(
        [required(systemd_analyze, "systemd"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    return f"{done.stdout}{done.stderr}status {done.returncode}"


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """Return the units with a program that is there."""
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, sys.executable))
    return sorted(tmp_path.glob("*.service"))


def test_systemd_understands_every_line(installed: list[Path], tmp_path: Path) -> None:
    assert len(UNITS) == 4
    assert analyze("verify", *installed) == "status 0"
    wrong = tmp_path / "wrong.service"
    wrong.write_text(installed[0].read_text().replace("ProtectSystem=strict", "ProtectSystems=strict"))
    assert "'ProtectSystems'" in analyze("verify", wrong)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_closed(unit: Path) -> None:
    said = analyze("security", "--offline=yes", unit)
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert level is not None, said
    assert float(level.group(1)) <= STRICT_ENOUGH


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_a_command_that_exists_and_stops_for_the_operator_only(unit: Path) -> None:
    lines = dict(line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"\w+=", line))
    program, command, *options = lines["ExecStart"].split()
    assert program == PROGRAM
    assert command in main.commands
    assert options == ["--config", "/etc/private-counts/stream-app.yaml"]
    assert lines["Restart"] == "always"
    assert lines["RestartPreventExitStatus"] == str(REFUSED)


def test_readers_have_another_user_than_workers() -> None:
    text = {unit.stem.removeprefix("private-counts-"): unit.read_text() for unit in UNITS}
    assert {role for role, lines in text.items() if "\nUser=private-counts\n" in lines} == {
        "worker",
        "ingest",
    }
    assert {role for role, lines in text.items() if "\nDynamicUser=yes\n" in lines} == {"api", "alerts"}
    assert "worker.env" not in text["api"] + text["alerts"] + text["ingest"]
