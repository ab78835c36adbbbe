"""Checks of ``stream-app doctor`` on ports: whether they can be served, and who serves them if not."""

from __future__ import annotations

import errno
import os
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stream_app.config import Settings
from stream_app.shell.supervision import family
from stream_app.wiring.checks import Finding

_REMEDIES = {
    errno.EACCES: "ports below 1024 need rights; choose one from 1024 on",
    errno.EADDRNOTAVAIL: "this machine has no such address; correct the host",
}


def port_findings(settings: Settings) -> Iterator[Finding]:
    """Yield whether each port can be served, or is served by this configuration's own service."""
    yield _port(settings.file, "api.port", settings.api.host, settings.api.port, "/healthz", '"status"')
    if (ingest := settings.ingest) is not None:
        yield _port(settings.file, "ingest.port", ingest.host, ingest.port, "/healthz", '"status"')
    others = {"api": settings.api.operator, "alerts": settings.alerts.operator}
    others["ingest"] = None if ingest is None else ingest.operator
    for section, other in others.items():
        if other is not None:
            what = f"{section}.operator_port"
            yield _port(settings.file, what, other.host, other.port, "/healthz", "alive")
    if settings.operator is None:
        yield Finding(
            "operator.port",
            "note",
            "closed: nobody can scrape lag and late records; set operator.port to open it",
        )
        return
    host, port, token = settings.operator.host, settings.operator.port, settings.operator.token
    yield _port(
        settings.file,
        "operator.port",
        host,
        port,
        "/metrics",
        "stream_app_",
        token,
    )


def _port(
    file: Path, what: str, host: str, port: int, path: str, sign: str, token: str | None = None
) -> Finding:
    """Return whether a port is free or already served by this service. Args: file, of the configuration."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        socket.create_server((host, port), family=family(host)).close()
    except OSError as failure:
        reason = os.strerror(failure.errno or 0)
        if failure.errno != errno.EADDRINUSE:
            remedy = _REMEDIES.get(failure.errno or 0, "free it or choose another")
            return Finding(what, "fail", f"{address} cannot be served ({reason}); {remedy}")
        return _in_use(file, what, address, holder_of(port), _answers(f"http://{address}{path}", sign, token))
    return Finding(what, "ok", f"{address} is free")


def _in_use(file: Path, what: str, address: str, holder: Holder | None, answers: bool) -> Finding:
    """Return a finding about a port that somebody serves. Args: answers, whether as this service would."""
    if holder is not None and holder.ours and holder.config != file.resolve():
        return Finding(
            what, "fail", f"{address} is in use by another {holder}; stop it or choose another port"
        )
    if answers:
        own = f" of this configuration (pid {holder.pid})" if holder and holder.ours else ""
        return Finding(what, "ok", f"{address} is served by a running service{own}")
    who = holder or "a program that this user may not see (ask as its owner or as root)"
    return Finding(what, "fail", f"{address} is in use by {who}; free it or choose another")


def _answers(url: str, sign: str, token: str | None) -> bool:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=2) as answer:
            return sign in answer.read(1 << 16).decode(errors="replace")
    except (OSError, ValueError):
        return False


_LISTENING = "0A"
_DEFAULT_CONFIG = "stream-app.yaml"
_CONFIGURED = ("run", "worker", "api", "alerts", "ingest")
_NAMES = ("stream-app", "stream_app")
_MOST_PARENTS = 3  # from a child of ``stream-app run`` to the command itself


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that listens on a port."""

    pid: int
    program: str  # its name, or the command of a stream-app
    ours: bool = False  # whether it is a stream-app or a process of one
    config: Path | None = None  # the configuration that this stream-app runs, if it takes one

    def __str__(self) -> str:
        of = "" if self.config is None else f" of {self.config}"
        return f"{self.program}{of} (pid {self.pid})"


def holder_of(port: int, proc: Path = Path("/proc")) -> Holder | None:
    """Return who listens on a port; None if the system or this user's rights do not allow to see it."""
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
