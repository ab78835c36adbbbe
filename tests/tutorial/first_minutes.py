"""``python -m tests.tutorial.first_minutes``: install from nothing, run README and first lesson, time them.

Takes a fresh copy of the last commit, installs it as docs/tutorial/index.md says, then runs ``make demo``
and the first lesson as written. Downloads come from pip's cache if it is warm. Writes
benchmarks/results/first_minutes.json with ``--write``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 900.0
COUNT = "http://127.0.0.1:{port}/v1/streams/{stream}/count"
Seconds = dict[str, float]


def installed(copy: Path) -> None:
    """Install a copy as the page says."""
    subprocess.run([sys.executable, "-m", "venv", "counts"], cwd=copy, check=True)
    subprocess.run(["counts/bin/pip", "install", "--quiet", ".[embedded,kafka]"], cwd=copy, check=True)


def until_answered(address: str) -> None:
    """Wait until a service answers a count. Raises: SystemExit when the patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                if json.load(answer)["interval"]:
                    return
        except (urllib.error.URLError, OSError, KeyError):
            time.sleep(0.2)
    raise SystemExit(f"{address} did not answer")


def demo(copy: Path) -> None:
    """Run ``make demo`` until it answers its first count, then end it."""
    run = subprocess.Popen(["make", "demo"], cwd=copy, start_new_session=True)
    try:
        until_answered(COUNT.format(port=8088, stream="departures"))
    finally:
        os.killpg(run.pid, 2)
        run.wait()


def lesson(copy: Path) -> None:
    """Take the first lesson with the installed program."""
    subprocess.run([copy / "counts" / "bin" / "python", "-m", "tests.tutorial", "file"], cwd=copy, check=True)


def measured(steps: dict[str, Callable[[Path], None]]) -> Seconds:
    """Return how long each step takes in a fresh copy of the last commit."""
    with tempfile.TemporaryDirectory(prefix="first-minutes-") as folder:
        copy = Path(folder) / "private-counts"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{REPOSITORY}", copy], check=True)
        seconds: Seconds = {}
        for name, step in steps.items():
            began = time.monotonic()
            step(copy)
            seconds[name] = round(time.monotonic() - began, 1)
            print(f"{name}: {seconds[name]} s", flush=True)
        return seconds


def main(write: bool) -> None:
    """Measure, print, and write the result file if asked."""
    seconds = measured(
        {
            "make demo, from nothing to the first answer": demo,
            "install as the tutorial says": installed,
            "the first lesson: own file counted and asked": lesson,
        }
    )
    found = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": sys.version.split()[0],
        "processors": os.cpu_count(),
        "seconds": seconds,
    }
    if write:
        place = REPOSITORY / "benchmarks" / "results" / "first_minutes.json"
        place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main("--write" in sys.argv[1:])
