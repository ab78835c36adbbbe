"""``python -m tests.tutorial.first_minutes``: install from nothing, run README and first lesson, time them.

Takes a fresh copy of the last commit, runs ``make demo``, installs the copy as docs/tutorial/index.md says,
and takes the first lesson as written. Then it runs the demo of the built wheel with the real pipx and uvx.
Downloads come from the caches of pip and uv if they are warm. Writes benchmarks/results/first_minutes.json
with ``--write``; a word such as ``demo`` runs only the steps whose name has it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from deploy.ports import free_port
from tests.ending import end_all_with_this_run

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
    _until_answered(run, COUNT.format(port=8088, stream="departures"))


def lesson(copy: Path) -> None:
    """Take the first lesson with the installed program."""
    subprocess.run([copy / "counts" / "bin" / "python", "-m", "tests.tutorial", "file"], cwd=copy, check=True)


def tools(copy: Path) -> None:
    """Install pipx and uv, and build the wheel."""
    subprocess.run([sys.executable, "-m", "venv", "tools"], cwd=copy, check=True)
    subprocess.run(["tools/bin/pip", "install", "--quiet", "pipx", "uv"], cwd=copy, check=True)
    subprocess.run(
        ["tools/bin/uv", "build", "--quiet", "--wheel", "--out-dir", "wheel"], cwd=copy, check=True
    )


def of_wheel(*program: str) -> Callable[[Path], None]:
    """Return a step that runs the demo of the wheel in an empty folder, until it answers its first count.

    Args: program, which installs what it is given and runs it.
    """

    def step(copy: Path) -> None:
        (wheel,) = (copy / "wheel").glob("*.whl")
        port = free_port()
        packages, (tool, *options) = f"private-counts[demo] @ file://{wheel}", program
        command = [f"{copy}/tools/bin/{tool}", *options, packages, "stream-app", "demo", "--port", str(port)]
        with tempfile.TemporaryDirectory() as empty:
            environment = os.environ | {"PIPX_HOME": f"{copy}/pipx"}
            run = subprocess.Popen(command, cwd=empty, env=environment, start_new_session=True)
            _until_answered(run, COUNT.format(port=port, stream="departures"))

    return step


def _until_answered(run: subprocess.Popen[bytes], address: str) -> None:
    """Wait for a service's first answer, then type Ctrl-C."""
    try:
        until_answered(address)
    finally:
        os.killpg(run.pid, signal.SIGINT)
        run.wait()


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


def main(write: bool, words: list[str]) -> None:
    """Measure, print, and write the result file if asked. Args: words, of the names of steps; none: all."""
    steps: dict[str, Callable[[Path], None]] = {
        "make demo, from nothing to the first answer": demo,
        "install as the tutorial says": installed,
        "the first lesson: own file counted and asked": lesson,
        "install pipx and uv, build the wheel": tools,
        "pipx run, in an empty folder, to the first answer": of_wheel("pipx", "run", "--spec"),
        "uvx, in an empty folder, to the first answer": of_wheel("uvx", "--from"),
    }
    seconds = measured({name: steps[name] for name in steps if not words or any(map(name.count, words))})
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
    end_all_with_this_run()
    main("--write" in sys.argv[1:], [word for word in sys.argv[1:] if word != "--write"])
