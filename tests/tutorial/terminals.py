"""Terminals in an empty folder with its own network, in which the commands of a page are typed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.tutorial.lesson import FIRST_TERMINAL, FOLDER, LESSONS, Typed, Written, is_as_written, steps

REPOSITORY = Path(__file__).parents[2]
STOP_S = 30.0
# What the reader starts in the checkout; here its files must stay in the folder.
IN_THE_CHECKOUT = {
    "make kafka": f"cd {REPOSITORY} && python -m deploy.kafka.broker $LESSONS/kafka",
    "make demo": "stream-app demo --state $LESSONS/demo",
}


class Failed(Exception):
    """A command ended with a status other than 0, or printed something else than its page says."""


class Terminals:
    """Types commands. Those of the first terminal end; each other terminal runs one command at a time."""

    def __init__(self, folder: Path, patience_s: float = PATIENCE_S) -> None:
        self.folder, self.patience_s = folder, patience_s
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "LESSONS": str(folder), "COLUMNS": "120"}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def take(self, step: Written | Typed) -> None:
        """Do what a reader does. Raises: Failed."""
        if isinstance(step, Written):
            (self.folder / step.name).write_text(step.text, encoding="utf-8")
        elif step.terminal == FIRST_TERMINAL:
            self._type(step)
        else:
            self._start(step)

    def _type(self, step: Typed) -> None:
        """Type a command again until it succeeds: a reader waits for a page to fill as well."""
        deadline = time.monotonic() + self.patience_s
        while True:
            done = self._run(step.command)
            if done.returncode == 0 and is_as_written(done.stdout, step.printed):
                return
            self._refuse_ended()
            if time.monotonic() > deadline:
                wanted = "\n".join(step.printed)
                raise Failed(
                    f"$ {step.command}\nstatus {done.returncode}, printed:\n{done.stdout}{done.stderr}\n"
                    f"the page says:\n{wanted}\n{self.logs()}"
                )
            time.sleep(0.5)

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command; one that takes longer than the patience has failed."""
        try:
            return subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = [
                part.decode() if isinstance(part, bytes) else part or ""
                for part in (late.stdout, late.stderr)
            ]
            return subprocess.CompletedProcess(command, -1, *said)

    def _start(self, step: Typed) -> None:
        self._stop(step.terminal)
        log = (self.folder / f"{step.terminal}.log").open("ab")
        command = IN_THE_CHECKOUT.get(step.command, step.command)
        self.running[step.terminal] = subprocess.Popen(
            ["bash", "-c", f"exec {command}" if command == step.command else command],
            cwd=self.folder,
            env=self.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()

    def _refuse_ended(self) -> None:
        ended = {name: run.returncode for name, run in self.running.items() if run.poll() not in (None, 0)}
        if ended:
            raise Failed(f"ended by themselves: {ended}\n{self.logs()}")

    def _stop(self, terminal: str) -> None:
        """Type Ctrl-C."""
        run = self.running.pop(terminal, None)
        if run is None:
            return
        for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if run.poll() is not None:
                return
            os.killpg(run.pid, how)
            try:
                run.wait(STOP_S)
            except subprocess.TimeoutExpired:
                continue

    def close(self) -> None:
        """End what still runs, the last one first."""
        for terminal in reversed(list(self.running)):
            self._stop(terminal)

    def logs(self) -> str:
        """Return what the other terminals printed last."""
        logs = sorted(self.folder.glob("*terminal.log"))
        return "\n".join(f"{log.stem}:\n{log.read_text()[-4000:]}" for log in logs)


@contextmanager
def terminals() -> Iterator[Terminals]:
    """Open terminals in a new folder, and end everything in them."""
    with tempfile.TemporaryDirectory(prefix="lessons-") as folder:
        opened = Terminals(Path(folder))
        try:
            yield opened
        finally:
            opened.close()


def learn(lesson: str) -> dict[str, float]:
    """Take all steps of a lesson, after those of the lesson that it goes on with. Return seconds per step."""
    taken: dict[str, float] = {}
    with terminals() as opened:
        for name in filter(None, (LESSONS[lesson], lesson)):
            for step in steps(FOLDER / f"{name}.md"):
                began = time.monotonic()
                opened.take(step)
                what = step.name if isinstance(step, Written) else step.command
                taken[f"{name}: {what}"] = round(time.monotonic() - began, 1)
    return taken
