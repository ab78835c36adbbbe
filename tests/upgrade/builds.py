"""Older builds of this repository, each in a folder with its own environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Build:
    """A build of the service. Args: code, the folder of its source; python, of its environment."""

    code: Path
    python: Path

    def start(self, folder: Path, command: str) -> subprocess.Popen[bytes]:
        """Start a command in a folder that has an app.yaml; its output is added to COMMAND.log there."""
        with (folder / f"{command}.log").open("ab") as log:
            return subprocess.Popen(
                self._words(command), cwd=folder, env=self._environment(), stdout=log, stderr=log
            )

    def ended(self, folder: Path, command: str) -> tuple[int, str]:
        """Run a command that must end by itself; return its status and the last line that it wrote."""
        done = subprocess.run(
            self._words(command),
            cwd=folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stderr.strip().rpartition("\n")[2]

    def refused(self, folder: Path, command: str) -> str:
        """Run a command that must end with status 2; return the line in which it says why."""
        status, line = self.ended(folder, command)
        assert status == 2, f"status {status}: {line}"
        return line

    def _words(self, command: str) -> list[str]:
        return [str(self.python), "-m", "stream_app", command, "--config", "app.yaml"]

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.code)}


def current() -> Build:
    """Return the build of this checkout."""
    return Build(REPOSITORY, REPOSITORY / ".venv" / "bin" / "python")


def checked_out(commit: str, folder: Path) -> Path:
    """Return the source of a commit in a folder."""
    if not (folder / ".git").exists():
        _run("git", "clone", "-q", "--no-checkout", str(REPOSITORY), str(folder))
        _run("git", "-C", str(folder), "checkout", "-q", commit)
    return folder


def with_environment(commit: str, folder: Path) -> Build:
    """Return the build of a commit with the packages that it has locked; the first call installs them."""
    code = checked_out(commit, folder)
    if not (code / ".venv" / ".installed").exists():
        print(f"installing the packages of {commit} into {code}", flush=True)
        _run("make", "-s", "-C", str(code), "setup")
    return Build(code, code / ".venv" / "bin" / "python")


def _run(*words: str) -> None:
    subprocess.run(words, check=True)
