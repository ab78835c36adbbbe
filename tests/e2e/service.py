"""The service as a person starts it: real processes, a real store and a real port."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.patience import PATIENCE_S, pause_s_after


class Service:
    """One ``stream-app`` command with its output and all its child processes.

    Args: module, the Python module that is run in place of ``stream_app``.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        environment: dict[str, str] | None = None,
        module: str = "stream_app",
    ) -> None:
        self.lines: list[str] = []
        self.folder = cwd
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def output(self) -> str:
        """Everything that the command has printed so far."""
        return "\n".join(self.lines)

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """Wait until the command has ended and its output is read; return the exit status."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s; it said:\n{self.output}") from None
        self.reading.join(60)
        return status

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def terminate(self) -> int:
        """Send SIGTERM, as a supervisor does; return the exit status."""
        self.process.terminate()
        return self.wait()

    def kill_everything(self) -> None:
        """kill -9 the command and all its children at once, like a power cut."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def kill_child(self, word: str) -> bool:
        """kill -9 the first child whose command line contains this word; return whether there was one."""
        return self._signalled(word, signal.SIGKILL) is not None

    def freeze_child(self, word: str, seconds: float) -> None:
        """Stop the first child whose command line contains this word, and let it continue later."""
        pid = self._signalled(word, signal.SIGSTOP)
        time.sleep(seconds)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _signalled(self, word: str, number: int) -> int | None:
        for pid in descendants(self.process.pid):
            if word in command_line(pid):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, number)
                    return pid
        return None

    def until(self, text: str, seconds: float = PATIENCE_S) -> None:
        """Wait until the command has printed a text."""
        self.until_true(lambda: text in self.output, f"it prints {text!r}", seconds)

    def until_true(self, condition: Any, what: str, seconds: float = PATIENCE_S) -> None:
        """Wait until a condition holds, whether or not the service is still running."""
        deadline = (asked := time.monotonic()) + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds} s until {what}; it said:\n{self.output}")
            time.sleep(pause_s_after(asked))
            asked = time.monotonic()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all processes that are left, and close the output."""
        if self.process.poll() is None:
            self.kill_everything()
        self.reading.join(60)
        if self.process.stdout is not None:
            self.process.stdout.close()


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on, from /proc."""
    children = [child for child, parent in _parents() if parent == pid]
    return [below for child in children for below in [child, *descendants(child)]]


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(entry.name), int(fields[1])


def command_line(pid: int) -> str:
    """Return a process's command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


# Every new client of httpx reads the certificates of all authorities, unless it verifies none: 30 ms.
def get(port: int, path: str, **parameters: Any) -> Any:
    """Return the JSON of a successful answer of the API."""
    response = httpx.get(
        f"http://127.0.0.1:{port}{path}", params=parameters, timeout=PATIENCE_S, verify=False
    )
    assert response.status_code == 200, (path, parameters, response.status_code, response.text)
    return response.json()


def answers(port: int, path: str) -> bool:
    """Return whether the API answers a path with status 200."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=30, verify=False).status_code == 200
    except httpx.HTTPError:
        return False


class Follower:
    """A client that keeps every release that the API ever sends. It reconnects with Last-Event-ID."""

    def __init__(self, port: int, stream: str) -> None:
        self.seen: dict[int, bytes] = {}
        self.changed: list[int] = []
        self.url = f"http://127.0.0.1:{port}/v1/streams/{stream}/events"
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        with httpx.Client(verify=False, timeout=5) as client:
            while not self.stop.is_set():
                # Each time from a little before the last row, so that a row that changed meanwhile is
                # noticed.
                after = max(max(self.seen, default=0) - 20, 0)
                try:
                    headers = {"Last-Event-ID": str(after)}
                    with client.stream("GET", self.url, headers=headers) as response:
                        for line in response.iter_lines():
                            if line.startswith("data: "):
                                self._note(line.removeprefix("data: ").encode())
                            if self.stop.is_set():
                                return
                except httpx.HTTPError:
                    time.sleep(0.05)

    def _note(self, row: bytes) -> None:
        fields = json.loads(row)
        if "seq" not in fields:
            return  # not a release, but a statement about the stream's privacy
        seq = int(fields["seq"])
        if self.seen.setdefault(seq, row) != row:
            self.changed.append(seq)

    def close(self) -> None:
        """Stop following."""
        self.stop.set()
        self.thread.join(PATIENCE_S)
