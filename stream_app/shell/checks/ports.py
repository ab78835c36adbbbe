"""Checks of ``stream-app doctor`` on ports: whether they can be served, and who serves them if not."""

from __future__ import annotations

import errno
import os
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from stream_app.config import Settings
from stream_app.shell.checks.holder import Holder, holder_of
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
