"""Faults that only the operator can mend: one line names fault and remedy, and nothing starts (status 2)."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.ports import free_port
from stream_app.shell.commands import main
from stream_app.state.embedded import find_server
from tests.e2e.flights import configuration
from tests.e2e.service import Service
from tests.patience import eventually

pytestmark = pytest.mark.redis


# The API starts beside the worker: before its refusal, after it, or not at all.
AN_API_STARTED = ("page and API", "departures: nothing", "total: nothing", "no API key", "refused records")


def refused(directory: Path, text: str, command: str = "run") -> str:
    """Return the one line with which a command refuses a configuration."""
    (directory / "app.yaml").write_text(text)
    with Service([command, "--config", "app.yaml"], directory) as service:
        status = service.wait()
    assert status == 2, service.output
    (line,) = (told for told in service.lines if not told.startswith(AN_API_STARTED))
    return line


@pytest.fixture
def text(tmp_path: Path) -> str:
    events = tmp_path / "flights.ndjson"
    events.write_text('{"scheduled":"2013-01-01T05:30:00Z"}\n')
    return configuration(events, free_port(), hours=48)


def refused_here(directory: Path, text: str, command: str = "run") -> str:
    """Do as ``refused`` does, in this process, for what is refused before anything starts.

    A new process takes seconds to import its packages.
    """
    (directory / "app.yaml").write_text(text)
    with contextlib.chdir(directory):
        asked = CliRunner().invoke(main, [command, "--config", "app.yaml"])
    assert asked.exit_code == 2, asked.output
    (line,) = asked.output.splitlines()
    return line


@pytest.mark.parametrize("command", ["run", "worker", "api", "check-config", "plan", "privacy", "doctor"])
def test_every_command_refuses_a_wrong_key(tmp_path, text, command):
    line = refused_here(tmp_path, text.replace("epsilon:", "epsilom:"), command)
    assert "privacy.epsilon is missing" in line


def test_a_share_per_node_is_refused_with_its_remedy(tmp_path, text):
    line = refused_here(tmp_path, text.replace("time:", "tree: {shares: node}\n    time:"))
    assert 'streams.departures.tree.shares "node": is no longer supported' in line
    assert line.endswith("take it out")


def test_a_second_measurement_before_the_first_one_begins(tmp_path, text):
    streams = [("departures", "epsilon: 1"), ("total", "epsilon: 1")]
    text = configuration(tmp_path / "flights.ndjson", free_port(), hours=48, streams=streams)
    (tmp_path / "app.yaml").write_text(text)
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until(
            "streams.total.privacy.accept is missing: file:flights.ndjson is already measured by dep"
        )
        service.until("departures: 48 of 48 bins closed")
        service.until("complete: departures; all other streams have stopped, see above; http://127.0.0.1:")
        assert service.interrupt() == 2
    assert not (tmp_path / "state" / "witness" / "total.ndjson").read_bytes()


def test_an_unreachable_redis(tmp_path, text):
    line = refused(tmp_path, text.replace("embedded:./redis", f"redis://:hunter2@127.0.0.1:{free_port()}/0"))
    assert "redis.url" in line
    assert "hunter2" not in line


@contextlib.contextmanager
def running_redis(folder: Path, port: int, *options: str) -> Iterator[None]:
    """Run a server that keeps nothing."""
    command = [str(find_server()), "--port", str(port), "--save", "", "--dir", str(folder), *options]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: listens(port), "the server listens")
        yield
    finally:
        server.kill()
        server.wait()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except OSError:
        return False
    return True


def test_a_redis_that_may_lose_acknowledged_writes_is_refused(tmp_path, text):
    port = free_port()
    with running_redis(tmp_path, port, "--appendonly", "no"):
        line = refused(tmp_path, text.replace("embedded:./redis", f"redis://127.0.0.1:{port}/0"))
    assert "redis.url" in line
    assert "appendonly" in line
    assert 'redis.accept: "may lose acknowledged writes"' in line


def test_an_event_file_that_is_not_there(tmp_path, text):
    events = tmp_path / "flights.ndjson"
    events.unlink()
    said = f"{events} is not there; create it or correct the path"
    assert refused_here(tmp_path, text) == f"stream-app: streams.departures.source.file: {said}"
    assert not (tmp_path / "redis").exists()


def test_a_port_in_use(tmp_path, text):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused_here(tmp_path, _with_port(text, port))
    assert line == (
        f"stream-app: api.port: 127.0.0.1:{port} cannot be served (Address already in use); "
        "free it or choose another with api.port"
    )
    assert not (tmp_path / "redis").exists()


def test_two_services_on_one_directory(tmp_path, text):
    (tmp_path / "app.yaml").write_text(text)
    with Service(["run", "--config", "app.yaml"], tmp_path) as first:
        first.until("page and API")
        line = refused_here(tmp_path, _with_port(text, free_port()))
        assert first.interrupt() == 0
    assert "is in use by another service" in line


def test_every_command_explains_itself_with_an_example():
    assert {"run", "worker", "api", "replay", "produce", "check-config", "privacy", "plan"} <= set(
        main.commands
    )
    for command in main.commands:
        page = CliRunner().invoke(main, [command, "--help"], prog_name="stream-app")
        assert page.exit_code == 0
        assert f"stream-app {command}" in page.output.partition("Example")[2]


def _with_port(text: str, port: int) -> str:
    start, _, rest = text.partition("port: ")
    return f"{start}port: {port}{rest[rest.index('}') :]}"


@pytest.mark.parametrize(
    ("command", "words"),
    [("api", "no stream is known yet"), ("alerts", "redis.alerts_url: redis: no answer")],
)
def test_readers_name_an_unreachable_redis_and_wait_for_it(tmp_path, text, command, words):
    port = free_port()
    rules = 'alerts: {rules: {busy: {when: "count(departures) > 5"}}}\n'
    away = text.replace("embedded:./redis", f"redis://:hunter2@127.0.0.1:{port}/0") + rules
    (tmp_path / "app.yaml").write_text(away)
    with Service([command, "--config", "app.yaml"], tmp_path) as service:
        service.until(f"redis.api_url: no use of 127.0.0.1:{port}")
        service.until("start it or correct the URL; nothing can be answered before")
        service.until(words)
        assert "hunter2" not in service.output
        assert "from memory" not in service.output
        with running_redis(tmp_path, port, "--requirepass", "hunter2"):
            service.until("works again")
            assert service.process.poll() is None
            assert service.interrupt() == 0


def test_the_api_refuses_a_redis_that_refuses_it(tmp_path, text):
    port = free_port()
    wrong = text.replace("embedded:./redis", f"redis://:wrong@127.0.0.1:{port}/0")
    with running_redis(tmp_path, port, "--requirepass", "hunter2"):
        line = refused(tmp_path, wrong, "api")
    assert f"redis.api_url: no use of 127.0.0.1:{port}" in line
    assert "hunter2" not in line
    assert ":wrong@" not in line
