"""All that a deployment says to readers and operators, to be searched for what must stay secret."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.chaos.found_terms import FOUND
from tests.chaos.processes import Deployment
from tests.patience import PATIENCE_S
from tests.simulator.checks import Broken
from tests.stream_app.surfaces import every_path

EXPORT = "released.ndjson"  # in the deployment's folder
COMMANDS = (
    *(["check-config"], ["doctor"], ["privacy"], ["plan", "--stream", FOUND]),
    *(["statement", FOUND], ["export", EXPORT]),
)


def everything_said(deployment: Deployment) -> Iterator[bytes]:
    """Yield answers, pages, metrics and what commands print; an export goes into a file. Raises: Broken."""
    base = f"http://127.0.0.1:{deployment.port}"
    with httpx.Client(base_url=base, timeout=PATIENCE_S, verify=False) as client:
        paths = [*every_path(client.get("/openapi.json").json(), FOUND, "term-")]
        answers = [client.get(path) for path in paths]
        answers += [client.get(f"http://127.0.0.1:{port}/metrics") for port in deployment.operator_ports]
    if sum(one.status_code == 200 for one in answers) < len(answers) // 2:
        raise Broken(f"the API refuses: {[(str(one.url), one.status_code) for one in answers]}")
    yield from (one.content for one in answers)
    worker = deployment.workers[0]
    for command in COMMANDS:
        yield _printed([*command, "--config", worker.command[-1]], deployment.folder)


def _printed(command: list[str], folder: Path) -> bytes:
    """Return what a command prints. Its status may be that of a finding."""
    whole = [sys.executable, "-m", "stream_app", *command]
    done = subprocess.run(whole, cwd=folder, capture_output=True, timeout=PATIENCE_S, check=False)
    if done.returncode not in (0, 2):
        raise Broken(f"{command} ended with status {done.returncode}: {done.stderr[-500:]!r}")
    return done.stdout + done.stderr
