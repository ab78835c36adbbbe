"""Who listens on a port of this machine, as Linux tells in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LISTENING = "0A"
_DEFAULT_CONFIG = "stream-app.yaml"
_CONFIGURED = ("run", "worker", "api", "alerts", "ingest")
_NAMES = ("stream-app", "stream_app")
_MOST_PARENTS = 3  # from a child of ``stream-app run`` to the command itself


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that listens on a port.

    Args: program, its name, or the command of a stream-app; ours, whether it is a stream-app or a process of
        one; config, the configuration that this stream-app runs, if it takes one.
    """

    pid: int
    program: str
    ours: bool = False
    config: Path | None = None

    def __str__(self) -> str:
        of = "" if self.config is None else f" of {self.config}"
        return f"{self.program}{of} (pid {self.pid})"


def holder_of(port: int, proc: Path = Path("/proc")) -> Holder | None:
    """Return who listens on a port; None if the system or this user's rights do not tell."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if sockets:
        for process in proc.glob("[0-9]*"):
            if not sockets.isdisjoint(_open_files(process)):
                return _described(process, proc)
    return None


def _described(process: Path, proc: Path) -> Holder:
    """Return a process in words: the command of stream-app that it or a parent runs, or its name."""
    pid, current = int(process.name), process
    for _ in range(_MOST_PARENTS):
        words = _command(current)
        place = next((i for i, word in enumerate(words[:3]) if os.path.basename(word) in _NAMES), None)
        if place is not None:
            return _service(pid, current, words[place + 1 :])
        if (parent := _parent(current)) is None:
            break
        current = proc / parent
    words = _command(process)
    return Holder(pid, os.path.basename(words[0]) if words else "a program")


def _service(pid: int, process: Path, options: Sequence[str]) -> Holder:
    command = next((word for word in options if not word.startswith("-")), "")
    config = None
    if command in _CONFIGURED:
        with suppress(OSError):
            config = (Path(os.readlink(process / "cwd")) / _config_option(options)).resolve()
    return Holder(pid, f"stream-app {command}".strip(), True, config)


def _inodes(port: int, proc: Path) -> Iterator[str]:
    """Yield the inodes of sockets that listen on a port."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _open_files(process: Path) -> Iterator[str]:
    with suppress(OSError):  # the process has ended, or belongs to another user
        for file in (process / "fd").iterdir():
            with suppress(OSError):
                yield os.readlink(file)


def _command(process: Path) -> Sequence[str]:
    try:
        return [
            word for word in (process / "cmdline").read_bytes().decode(errors="replace").split("\0") if word
        ]
    except OSError:
        return []


def _config_option(words: Sequence[str]) -> str:
    """Return the value of the option that names the configuration.

    >>> _config_option(["run", "-c", "a.yaml"]), _config_option(["api", "--config=b.yaml"])
    ('a.yaml', 'b.yaml')
    """
    for place, word in enumerate(words):
        if word in ("-c", "--config") and place + 1 < len(words):
            return words[place + 1]
        if word.startswith("--config="):
            return word.partition("=")[2]
    return _DEFAULT_CONFIG


def _parent(process: Path) -> str | None:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[1]
    except (OSError, IndexError):
        return None
