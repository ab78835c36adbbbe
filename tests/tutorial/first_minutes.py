"""``python -m tests.tutorial.first_minutes``: install from nothing, run README and first lesson, time them.

Takes a fresh copy of the last commit, runs ``make demo``, installs the copy as docs/tutorial/index.md says,
and takes the first lesson as written. Then it runs the demo of the built wheels with the real pipx and uvx.
Downloads come from the caches of pip and uv if they are warm. Writes benchmarks/results/first_minutes.json
with ``--write``; a word such as ``demo`` runs only the steps whose name has it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
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
INSTALL = REPOSITORY / "docs" / "tutorial" / "index.md"
PATIENCE_S = 900.0
COUNT = "http://127.0.0.1:{port}/v1/streams/{stream}/count"
PACKAGE = "private-counts[demo]"
Seconds = dict[str, float]


def installed(copy: Path) -> None:
    """Install a copy as the page says."""
    subprocess.run([sys.executable, "-m", "venv", "counts"], cwd=copy, check=True)
    (line,) = re.findall(r"^\$ (counts/bin/pip install .*)$", INSTALL.read_text(), re.MULTILINE)
    subprocess.run(shlex.split(line), cwd=copy, check=True)


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
    """Install pipx and uv, and build the wheels of the service and of the library."""
    subprocess.run([sys.executable, "-m", "venv", "tools"], cwd=copy, check=True)
    subprocess.run(["tools/bin/pip", "install", "--quiet", "pipx", "uv"], cwd=copy, check=True)
    for project in (".", "dphist"):
        build = ["tools/bin/uv", "build", "--quiet", "--wheel", "--out-dir", "wheels", project]
        subprocess.run(build, cwd=copy, check=True)


def of_wheels(*program: str) -> Callable[[Path], None]:
    """Return a step that runs the demo of the wheels in an empty folder, until it answers its first count.

    Args: program, which installs what it is given and runs it, with {wheels} for their folder.
    """

    def step(copy: Path) -> None:
        port, (tool, *options) = free_port(), (word.format(wheels=copy / "wheels") for word in program)
        command = [f"{copy}/tools/bin/{tool}", *options, "stream-app", "demo", "--port", str(port)]
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
        "install pipx and uv, build the wheels": tools,
        "pipx run, in an empty folder, to the first answer": of_wheels(
            "pipx", "run", "--pip-args=--find-links {wheels}", "--spec", PACKAGE
        ),
        "uvx, in an empty folder, to the first answer": of_wheels(
            "uvx", "--find-links", "{wheels}", "--from", PACKAGE
        ),
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
