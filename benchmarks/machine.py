"""What results say about where they were measured, and what processes have used."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commit() -> str:
    """Return the short hash of the checkout; with "+" if files of the service differ from it."""
    said = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", "stream_app", "dphist"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() + ("+" if changed.stdout.strip() else "")


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
