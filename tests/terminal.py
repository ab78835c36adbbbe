"""A real terminal for a program under test: a pseudo-terminal, its keys, and what the program wrote to it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S, eventually

CTRL_C, ENTER = "\x03", "\r"


class Terminal:
    """A program in a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process, self.master, self.written = process, master, b""
        self.seen = 0  # characters that were there when a key was typed last
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        while True:
            try:
                select.select([self.master], [], [])
                read = os.read(self.master, 1 << 16)
            except OSError:  # the program has ended
                return
            if not read:
                return
            self.written += read

    @property
    def text(self) -> str:
        """What the program has written, with its control sequences."""
        return self.written.decode(errors="replace").replace("\r\n", "\n")

    def await_text(self, text: str) -> None:
        """Wait until the program has written a text since the last key."""
        eventually(lambda: text in self.text[self.seen :], lambda: f"no {text!r} in:\n{self.text}")

    def type(self, keys: str) -> None:
        """Type keys."""
        self.seen = len(self.text)
        os.write(self.master, keys.encode())

    def answer(self, question: str, answer: str = "") -> None:
        """Wait for a question, then type the answer and Enter."""
        self.await_text(question)
        self.type(answer + ENTER)

    def status(self) -> int:
        """Wait for the program's end; return its exit status."""
        status = self.process.wait(PATIENCE_S)
        self.reader.join(1.0)
        return status


@contextmanager
def in_terminal(
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    columns: int = 100,
    lines: int = 40,
) -> Iterator[Terminal]:
    """Run a program in a terminal; end it with the block."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        # A job in the background, as CI may be, ignores Ctrl-C, and so would its children.
        ["env", "--default-signal=INT", "setsid", "--ctty", *map(str, command)],
        cwd=folder,
        env=os.environ | {"TERM": "xterm-256color"} | dict(environment or {}),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
