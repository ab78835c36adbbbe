"""Processes end cleanly: after their work, by a refusal, a stop, or a signal. A child sees what it needs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from docs.site import reference
from stream_app import config
from stream_app.config import load_text
from stream_app.durable import NoRoomError
from stream_app.monitoring.logs import LOG_FORMAT
from stream_app.ports import OperatorError
from stream_app.shell import options
from stream_app.shell.commands import main
from stream_app.shell.processes import (
    COMPLETE,
    MEANINGS,
    child_environment,
    exit_status,
    run_child,
    until_stopped,
)
from stream_app.shell.replay import replay_settings
from stream_app.shell.supervision import Service, roles_of
from tests.patience import PATIENCE_S
from tests.stream_app.shell.test_replay import OPTIONS


async def endless(cleaned: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)  # cleaning up may itself wait
        cleaned.append("up")


def test_finished_work_is_distinguished_from_stopped_work():
    cleaned: list[str] = []
    stop = asyncio.Event()
    stop.set()

    async def both() -> tuple[bool, bool]:
        return await until_stopped(asyncio.sleep(0)), await until_stopped(endless(cleaned), stop)

    assert asyncio.run(both()) == (True, False)
    assert cleaned == ["up"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_work_after_it_has_cleaned_up(number, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # SIGHUP: the terminal was closed
    cleaned: list[str] = []

    async def interrupted() -> bool:
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), number)
        return await until_stopped(endless(cleaned))

    assert asyncio.run(interrupted()) is False
    assert cleaned == ["up"]


def test_sighup_ends_no_service_and_says_what_is_read_again(caplog):
    async def hung_up_twice() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)

    assert asyncio.run(until_stopped(hung_up_twice())) is True
    assert [line.split(":")[0] for line in caplog.messages] == ["SIGHUP", "SIGHUP"]


HANGS_UP_WHILE_IT_LOADS = """
import os, signal, sys, types
hang_up = lambda: os.kill(os.getpid(), signal.SIGHUP)
sys.modules["stream_app.shell.commands"] = types.SimpleNamespace(main=hang_up)
from stream_app.__main__ import main
main()
"""


def test_sighup_while_a_command_loads_ends_it_only_at_a_terminal() -> None:
    command = [sys.executable, "-c", HANGS_UP_WHILE_IT_LOADS]
    service = subprocess.run(command, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    assert (service.returncode, service.stderr) == (0, b"")
    ours, theirs = os.openpty()
    try:
        at_terminal = subprocess.run(command, stderr=theirs, timeout=PATIENCE_S, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert at_terminal.returncode == -signal.SIGHUP


def test_sighup_while_a_process_ends_is_ignored_as_before_the_work() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asyncio.run(until_stopped(asyncio.sleep(0)))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_refusal_of_the_work_is_raised():
    async def refuse() -> None:
        raise OperatorError("one line")

    with pytest.raises(OperatorError, match="one line"):
        asyncio.run(until_stopped(refuse()))


def test_failure_while_stopping_is_raised():
    async def fails_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OperatorError("could not clean up")

    async def stopped() -> None:
        stop = asyncio.Event()
        stop.set()
        await until_stopped(fails_when_cancelled(), stop)

    with pytest.raises(OperatorError, match="could not clean up"):
        asyncio.run(stopped())


DEAF = """
import asyncio
from stream_app.shell.processes import until_stopped

async def deaf():
    while True:
        try:
            print("works", flush=True)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print("does not hear", flush=True)

asyncio.run(until_stopped(deaf(), within_s=0.2))
"""


@pytest.mark.slow
def test_process_exits_even_if_its_work_does_not_end():
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"works\n"
        process.terminate()
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert b"does not hear" in out
    assert b"nothing is lost" in err


def test_cancelling_from_outside_ends_the_work_too():
    cleaned: list[str] = []

    async def timed() -> None:
        async with asyncio.timeout(0.01):
            await until_stopped(endless(cleaned))

    with pytest.raises(TimeoutError):
        asyncio.run(timed())
    assert cleaned == ["up"]


def test_environment_of_a_child_holds_no_password(tmp_path, monkeypatch):
    shows_its_environment = tmp_path / "child"
    shows_its_environment.write_text("#!/bin/sh\nenv >&2\n")
    shows_its_environment.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(shows_its_environment))
    monkeypatch.setenv("STREAM_APP_REDIS_URL", "redis://worker:hunter2@localhost:6379/0")
    monkeypatch.setenv("STREAM_APP_REDIS_API_URL", "redis://api:hunter2@localhost:6379/0")
    said: list[str] = []
    settings = replay_settings(Path("events.csv"), **OPTIONS)
    assert asyncio.run(run_child("api", settings, said.append)) == COMPLETE
    assert f"PATH={os.environ['PATH']}" in said
    assert "hunter2" not in "".join(said)


def test_work_that_a_library_cancels_has_failed():
    async def cancelled_by_a_library() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="without a request"):
        asyncio.run(until_stopped(cancelled_by_a_library()))


HELD = """
import asyncio, sys, threading
from stream_app.ports import OperatorError
from stream_app.shell.processes import exit_status, until_stopped

async def refuse():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)  # a thread that never returns
    raise OperatorError("what, where, remedy")

sys.exit(exit_status(lambda: asyncio.run(until_stopped(refuse(), within_s=0.2))))
"""


@pytest.mark.slow
def test_refusal_is_logged_even_if_a_library_holds_the_process():
    ended = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == "stream-app: what, where, remedy"


@pytest.mark.parametrize(
    ("module", "remedy"),
    [("hiredis", "hiredis is not installed, and this needs it; install"), ("aiokafka.errors", "[kafka]")],
)
def test_a_missing_package_gets_one_line_with_a_remedy(
    module: str, remedy: str, capsys: pytest.CaptureFixture[str]
):
    def work() -> int:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert exit_status(work) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert remedy in line


def test_a_missing_module_of_the_program_itself_is_no_fault_of_the_operator():
    def work() -> int:
        raise ModuleNotFoundError("No module named 'stream_app.gone'", name="stream_app.gone")

    with pytest.raises(ModuleNotFoundError):
        exit_status(work)


def test_a_long_line_of_a_child_is_shown_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    child = tmp_path / "child"
    child.write_text("#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x >&2\necho >&2\nprintf after >&2\n")
    child.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(child))
    said: list[str] = []
    assert (
        asyncio.run(run_child("worker", replay_settings(Path("events.csv"), **OPTIONS), said.append))
        == COMPLETE
    )
    assert said == ["x" * 200_000, "after"]


@pytest.mark.parametrize(("terminal", "format"), [(True, "console"), (False, "json")])
def test_children_log_in_the_format_of_the_output_that_their_parent_prints_them_to(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, format: str
) -> None:
    """At a terminal, an operator who sends standard error to a file read JSON among the lines of ``run``."""
    for stream, is_terminal in ((sys.stdout, terminal), (sys.stderr, not terminal)):
        monkeypatch.setattr(stream, "isatty", lambda is_terminal=is_terminal: is_terminal)
    monkeypatch.delenv(LOG_FORMAT, raising=False)
    assert child_environment()[LOG_FORMAT] == format


def test_children_get_no_setting_in_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child gets its own settings only, through its standard input: some of the others are passwords."""
    variables = {
        value
        for module in (config.access, config.kafka, config.storage, options)
        for value in vars(module).values()
        if isinstance(value, str) and value.startswith("STREAM_APP_")
    }
    assert "STREAM_APP_OPERATOR_TOKEN" in variables
    # The names of Kafka's are composed, with a cluster's name if it has one.
    variables |= {"STREAM_APP_KAFKA_OAUTH_CLIENT_SECRET", "STREAM_APP_KAFKA_EU_SASL_PASSWORD"}
    for name in variables:
        monkeypatch.setenv(name, "hunter2")
    assert "hunter2" not in child_environment().values()


def test_every_status_of_a_command_is_explained_in_the_reference_and_in_the_help():
    def end(failure: BaseException | None) -> int:
        def work() -> None:
            if failure is not None:
                raise failure

        return exit_status(work)

    ends = {end(None), end(OperatorError("wrong")), end(KeyboardInterrupt()), end(NoRoomError(28, "full"))}
    assert ends == set(MEANINGS)
    page, shown = reference.commands(), CliRunner().invoke(main, ["--help"]).output
    for status, text in MEANINGS.items():
        assert f"| {status} | {text} |" in page
        assert f"{status:<3}  {text}" in shown


CONFIG = """
kafka:
  bootstrap_servers: "here:9092"
  security.protocol: sasl_ssl
  sasl.username: counting
  sasl.password: secret-here
  clusters:
    abroad: {{bootstrap_servers: "there:9092", security.protocol: sasl_ssl, sasl.username: alerting, sasl.password: secret-abroad}}
redis: {{url: "redis://:secret-redis@127.0.0.1:1", alerts_url: "redis://:secret-alerts@127.0.0.1:1", api_url: "redis://127.0.0.1:1"}}
streams:
  clicks:
    source: {{topic: clicks}}
    time: {{field: at, format: ms, bin: 5m, grace: 30s, epoch: 1d}}
    privacy: {{epsilon: 1.0}}
alerts:
  rules: {{many: {{when: "sum(clicks, 1h) > 5"}}}}
  {topic}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("topic", "seen"),
    [("topic: a, cluster: abroad", {"abroad"}), ("topic: a", {""}), ("webhooks: []", set())],
)
def test_the_process_that_sends_alerts_is_told_of_its_cluster_only(topic: str, seen: set[str]) -> None:
    text = CONFIG.format(topic="\n  ".join(topic.split(", ")))
    settings = load_text(text, Path("/app/app.yaml"), {})
    roles = roles_of(settings, Service())
    kafka = roles["alerts"].kafka
    assert set(kafka.clusters if kafka is not None else ()) == seen
    assert roles["api"].kafka is None
    assert roles["worker"] is settings


def test_each_process_is_told_of_its_own_user_of_the_store_only() -> None:
    text = CONFIG.format(topic="webhooks: []").replace("source: {topic: clicks}", "source: {http: web}")
    settings = load_text(text, Path("/app/app.yaml"), {})
    roles = roles_of(settings, Service())
    urls = {role: (told.redis.url, told.redis.alerts_url, told.redis.api_url) for role, told in roles.items()}
    worker, alerts, api = settings.redis.url, settings.redis.alerts_url, settings.redis.api_url
    assert urls == {
        "worker": (worker, alerts, api),
        "alerts": (None, alerts, api),
        "api": (None, None, api),
        "ingest": (None, None, None),
    }
