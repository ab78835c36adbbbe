"""What benchmarks share: where they were measured, a process of the service, and what processes have used."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
END_S = 120.0


def commit() -> str:
    """Return the short hash of the checkout; with "+" if files of the service differ from it."""
    changed = _git("status", "--porcelain", "--", "stream_app", "dphist")
    return _git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def _git(*words: str) -> str:
    asked = ["git", *words]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> str:
    """Return the machine's processors and how busy it is with other work."""
    return f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def cpu_s(pid: int) -> float:
    """Return the processor time of a process so far, in nanoseconds' steps, of threads that ended too."""
    return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3): the scheduler's clock of the process


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Return the resident memory of a process; VmHWM: the most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def children(pid: int) -> dict[str, int]:
    """Return the processes of a running service, by role."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        found["redis" if "redis" in words[0] else words[-2]] = int(child)
    return found


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
