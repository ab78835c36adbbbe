"""Runs a process of the service for the time of a measurement."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

END_S = 120.0


@contextmanager
def running(
    folder: Path, command: str = "worker", configuration: str = "app.yaml"
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one command of the service for the block; it logs to worker.log, or worker-0.log for app-0.yaml."""
    arguments = [sys.executable, "-m", "stream_app", command, "--config", configuration]
    suffix = Path(configuration).stem.removeprefix("app")
    with (folder / f"{command}{suffix}.log").open("ab") as log:
        child = subprocess.Popen(arguments, cwd=folder, stdout=log, stderr=log)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(END_S)
