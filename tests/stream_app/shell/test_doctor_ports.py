"""``stream-app doctor`` names the program that listens on a port, and whether it is this service."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.ports import free_port
from stream_app.config import load
from stream_app.monitoring.listener import serving
from stream_app.monitoring.metrics import Metrics
from stream_app.shell.checks.ports import holder_of, port_findings
from stream_app.wiring.checks import Finding
from tests.stream_app.shell.sampled import configured

pytestmark = pytest.mark.slow

LISTENS = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[-1])))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    connection.recv(1000)
    connection.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\n{"status": "ok"}')
    connection.close()
"""
OWN = "is served by a running service of this configuration (pid {pid})"
# As ``stream-app run``: the process that listens is a child.
STARTS_A_CHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {LISTENS!r}, sys.argv[-1]], stdout=subprocess.PIPE)
print(child.stdout.readline().decode().strip(), child.pid, flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


@contextmanager
def running(command: Sequence[str], cwd: Path) -> Iterator[int]:
    """Run a program that listens; yield the id of the process that does."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=cwd, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        ready, *child = process.stdout.readline().split()
        assert ready == "ready"
        try:
            yield int(child[0]) if child else process.pid
        finally:
            assert process.stdin is not None
            process.stdin.close()
            if not child:
                process.kill()


def found_at(folder: Path, port: int, key: str = "api.port", top: str = "") -> Finding:
    """Return the finding about a port."""
    config = configured(folder, [], top=f"api: {{port: {port}}}\n{top}")
    return next(one for one in port_findings(load(config, {})) if one.what == key)


def test_a_closed_port_of_the_operator_is_a_note_and_its_own_service_is_ok(tmp_path: Path) -> None:
    found = found_at(tmp_path, free_port(), "operator.port")
    assert (found.state, found.said.endswith("set operator.port to open it")) == ("note", True)
    metrics, port = Metrics(), free_port()
    metrics.lag.labels("file:clicks.ndjson", "0").set(1)

    async def beside_it() -> Finding:
        async with serving(metrics, "127.0.0.1", port):
            operator = f"operator: {{port: {port}}}"
            return await asyncio.to_thread(found_at, tmp_path, free_port(), "operator.port", operator)

    found = asyncio.run(beside_it())
    assert (found.state, "running service" in found.said) == ("ok", True)


def test_another_program_is_named_with_its_pid(tmp_path: Path) -> None:
    port = free_port()
    with running(["-c", LISTENS.replace("status", "other"), str(port)], tmp_path) as pid:
        found = found_at(tmp_path, port)
    assert found.state == "fail"
    assert f"is in use by {Path(sys.executable).name} (pid {pid}); free it or choose another" in found.said
    assert found_at(tmp_path, port).state == "ok"
    assert holder_of(port) is None


@pytest.mark.parametrize(
    ("options", "state", "said"),
    [
        (["run", "--config", "app.yaml"], "ok", OWN),
        (["-v", "api", "--config=app.yaml"], "ok", OWN),
        (["run", "-c", "other.yaml"], "fail", "another stream-app run of {folder}/other.yaml (pid {pid})"),
        (["run"], "fail", "in use by another stream-app run of {folder}/stream-app.yaml (pid {pid})"),
        (["demo", "--port"], "fail", "in use by another stream-app demo (pid {pid}); stop it"),
    ],
)
def test_a_service_is_ok_if_it_runs_this_configuration_only(
    tmp_path: Path, options: list[str], state: str, said: str
) -> None:
    port = free_port()
    (tmp_path / "stream-app").write_text(STARTS_A_CHILD)
    with running(["stream-app", *options, str(port)], tmp_path) as pid:
        found = found_at(tmp_path, port)
    assert found.state == state
    assert said.format(pid=pid, folder=tmp_path) in found.said


def test_a_process_of_another_user_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    line = "0: 0100007F:1F98 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4711 1"
    (tmp_path / "net" / "tcp").write_text(f"sl local_address ...\n{line}\n")
    (tmp_path / "1").mkdir()  # its open files cannot be read
    assert holder_of(0x1F98, tmp_path) is None
    assert holder_of(1, tmp_path) is None
