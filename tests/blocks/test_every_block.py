"""Every block of code in the documents runs as it is written, or this file says why it cannot."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner

from deploy.ports import free_port
from dphist.cli import main as dphist
from stream_app.config import load
from stream_app.shell.commands import main as stream_app
from tests.blocks.counted import BOARDS, counted
from tests.blocks.pages import DOCUMENTS, REPOSITORY, Block, block, blocks
from tests.e2e.service import Service
from tests.patience import PATIENCE_S, eventually
from tests.terminal import in_terminal
from tests.tutorial.lesson import LESSONS, Written, steps

pytestmark = [pytest.mark.slow, pytest.mark.redis]

# Programs that the tests do not have: blocks with only these commands cannot run.
NOT_HERE = {
    "docker": "needs Docker; tests/deployment/ checks the files and starts the same processes without it",
    "kubectl": "needs a cluster; tests/deployment/test_kubernetes.py checks the resources",
    "helm": "needs a cluster; tests/deployment/test_kubernetes.py renders the chart",
    "$redis": "is docker compose, in docs/how-to/rotate.md; tests/deployment/test_rotation.py does the same",
    "systemd-run": "needs a running systemd",
    "operator.env": "reads the password for the docker commands below it",
}
_SENDERS = "stream_app/receiving/test_senders.py"
_ENGINE = "stream_app/loops/test_engine_rows.py"
_LIBRARIES = "dphist/test_libraries.py"
_DAYS = "blocks/test_days.py"
# Blocks that another test runs as they are written. The test reads them from the page.
ELSEWHERE = {
    "docs/audit.md: stream-app audit --config app.yaml --report audit": "stream_app/shell/test_audit.py",
    'docs/configuration.md: redis: {url: "embedded:./state/redis"}': "stream_app/config/test_load.py",
    "docs/events.md: import json, time, urllib.error, urllib.request, uuid": _SENDERS,
    'docs/events.md: <script type="module">': _SENDERS,
    "docs/events.md: ingest:": "stream_app/receiving/test_page_scripts.py",
    "docs/explanation/libraries.md: counts = [120, 80, 95, 14, 3, 0, 7, 52]": _LIBRARIES,
    "docs/explanation/libraries.md: from fractions import Fraction": _LIBRARIES,
    "docs/explanation/libraries.md: import itertools": _LIBRARIES,
    "docs/explanation/libraries.md: from diffprivlib import BudgetAccountant, tools": _LIBRARIES,
    "docs/explanation/libraries.md: import pandas": _LIBRARIES,
    "docs/exports.md: stream-app export days --format parquet --config stream-app.yaml": _DAYS,
    "docs/exports.md: import duckdb": _DAYS,
    "docs/exports.md: name: counts": _DAYS,
    "docs/exports.md: counts:": _DAYS,
    "docs/exports.md: {{ config(materialized='table') }}": _DAYS,
    "docs/exports.md: from pyspark.sql import SparkSession": _DAYS,
    "docs/exports.md: import pandas": _DAYS,
    'docs/how-to/backup.md: redis-cli -u "$REDIS_OPERATOR_URL" --rdb backup.rdb': "deployment/test_backup.py",
    "docs/how-to/backup.md: stream-app check-backup backup.rdb --config stream-app.yaml": (
        "deployment/test_backup.py"
    ),
    "docs/how-to/backup.md: stream-app check-backup node-1.rdb node-2.rdb node-3.rdb "
    "--config stream-app.yaml": "e2e/test_redis_cluster.py",
    'docs/how-to/backup.md: cd "$REDIS_DATA"': "deployment/test_backup.py",
    "docs/how-to/change.md: streams:": "stream_app/config/test_successors.py",
    "docs/how-to/discover.md: keys:": "stream_app/config/test_keys.py",
    "docs/how-to/discover.md: streams:": "stream_app/config/test_keys.py",
    "docs/how-to/engine.md: streams:": _ENGINE,
    'docs/how-to/engine.md: {"origin": 0, "epoch": 0, "sequence": 1, "at": 1767225600000, "page": "/", '
    '"delta": 41}': _ENGINE,
    "docs/how-to/move.md: kafka:": "stream_app/config/test_successors.py",
    "docs/how-to/move.md: clusters = old, new": "e2e/mirror_maker.py",
    "docs/how-to/rotate.md: old=$(sed -n 's#^STREAM_APP_REDIS_URL=.*//worker:\\(.*\\)@.*#\\1#p' "
    "deploy/secrets/worker.env)": "deployment/test_rotation.py",
    "docs/how-to/rotate.md: stream-app rotate-key begin": "e2e/test_rotate_key.py",
    "docs/how-to/web-log.md: $ stream-app init access.log": "e2e/test_web_log.py",
    "docs/how-to/web-log.md: source:": "stream_app/config/test_web_logs.py",
    "docs/tutorial/file.md: # Written by stream-app init. docs/configuration.md explains every key.": (
        "stream_app/shell/test_five_minutes.py"
    ),
    "docs/tutorial/file.md: streams:": "stream_app/shell/test_five_minutes.py",
    "docs/tutorial/index.md: $ python3 -m venv counts": "tutorial/first_minutes.py",
    "docs/tutorial/index.md: $ mkdir lessons": "tutorial/first_minutes.py",
}
ASKING = ("stream-app query ", "dphist plan ")
HERE: dict[str, str] = {}
T = TypeVar("T", bound=Callable[..., None])


def runs(*names: str) -> Callable[[T], T]:
    """Note that a test runs blocks."""

    def note(test: T) -> T:
        HERE.update(dict.fromkeys(names, test.__name__))
        return test

    return note


def done(command: str, folder: Path, **environment: str) -> str:
    """Run what a reader types; return what it prints. Its programs are those of this environment.

    Commands that only ask run in this process: a new one takes a second to import its packages.
    """
    if command.startswith(ASKING):
        program, *words = shlex.split(command, comments=True)
        with contextlib.chdir(folder):
            asked = CliRunner().invoke({"stream-app": stream_app, "dphist": dphist}[program], words)
        assert asked.exit_code == 0, f"$ {command}\n{asked.output}"
        return asked.output
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, f"$ {command}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def answered(command: str, folder: Path) -> str:
    """Return what a question prints. One that a slow machine answers too late is asked again."""
    late: list[str] = []

    def asked() -> str:
        try:
            return done(command, folder)
        except AssertionError as failure:
            late.append(str(failure))
            return ""

    return eventually(asked, lambda: late[-1])


def program(command: str) -> str:
    """Return the program of a command that the tests do not have, or an empty text."""
    return next((name for name in NOT_HERE if name in re.split(r'[ /="]', command)), "")


def lines(one: Block) -> list[str]:
    """Return the commands of a block, each in one line."""
    return [line for line in one.text.replace("\\\n", "").splitlines() if line.strip()]


def of_a_lesson(one: Block) -> bool:
    """Return whether ``python -m tests.tutorial`` takes a block."""
    page = REPOSITORY / one.document
    if page.parent.name != "tutorial" or page.stem not in LESSONS:
        return False
    return one.language == "console" or any(
        isinstance(step, Written) and step.text == one.text for step in steps(page)
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_has_a_test_or_a_reason(document: str) -> None:
    lost = [
        one.name
        for one in blocks(document)
        if not of_a_lesson(one)
        and one.name not in HERE
        and one.name not in ELSEWHERE
        and not all(map(program, lines(one)))
        and "▶" not in one.text  # a drawing
    ]
    assert lost == [], "run these blocks in this file, or say in NOT_HERE or ELSEWHERE what holds them"


def test_every_listed_block_exists_and_its_test_names_its_page() -> None:
    for name, test in ELSEWHERE.items():
        page = block(name).document.rpartition("/")[2]
        assert page in (REPOSITORY / "tests" / test).read_text(encoding="utf-8"), name
    for name in HERE:
        assert block(name)


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(name="port", scope="module")
def _port(folder: Path) -> Iterator[int]:
    """The port of a service whose streams the pages name."""
    with counted(folder) as port:
        yield port


def asked(name: str, port: int) -> list[str]:
    """Return the commands of a block, which ask a service that listens on this port."""
    commands = block(name).commands
    address = f"http://127.0.0.1:{port}"
    return [
        f"{command} --url {address}"
        if command.startswith(("stream-app query", "stream-app watch"))
        else command.replace("127.0.0.1:8088", f"127.0.0.1:{port}")
        for command in (one.partition("  #")[0].rstrip() for one in commands)
    ]


QUERIES = (
    "docs/readers.md: $ stream-app query departures --start 2013-01-05T00:00:00Z --end 2013-01-06T00:00:00Z"
)
SUMS = "docs/readers.md: $ curl '127.0.0.1:8088/v1/streams/sales/sum/series?kind=bin&key=FR'"
WINDOW = "docs/readers.md: $ curl '127.0.0.1:8088/v1/streams/loads/window?key=UA&q=0.5&q=0.95'"


@runs(QUERIES, SUMS, WINDOW)
def test_questions_in_a_terminal_are_answered(folder: Path, port: int) -> None:
    for command in chain.from_iterable(asked(name, port) for name in (QUERIES, SUMS, WINDOW)):
        if " watch " in command:
            with Service(command.split()[1:], folder) as watching:
                watching.until("2013-01-0")
                watching.interrupt()
        else:
            said = answered(command.replace("curl ", "curl -sSf "), folder)
            assert re.search(r"\d\d", said), (command, said)


CLIENT = "docs/readers.md: from stream_app.client import Client"


@runs(CLIENT)
def test_script_with_the_client_prints_releases(folder: Path, port: int) -> None:
    script = block(CLIENT).text.replace("127.0.0.1:8088", f"127.0.0.1:{port}")
    # The page follows releases without end; here the script ends after the first one.
    ended = answered(f"exec python - <<'END'\n{script}        break\nEND", folder)
    first, second = ended.splitlines()
    assert [bool(float(number)) for number in first.split()] == [True] * 4
    assert second.startswith("2013-01-01T01:00:00")


PLANS = "docs/accuracy.md: $ dphist plan --horizon 8760"


@runs(PLANS)
def test_commands_of_plans_print_errors(folder: Path, port: int) -> None:
    (folder / "app.yaml").write_text((folder / "stream-app.yaml").read_text())
    for command in block(PLANS).commands:
        assert re.search(r"\d\.\d", done(command, folder)), command


CHECK = "docs/how-to/upgrade.md: stream-app check-config --config stream-app.yaml"
REBUILD = "docs/how-to/backup.md: stream-app rebuild --config stream-app.yaml"


@runs(CHECK, REBUILD)
def test_configuration_is_checked_beside_the_service_and_the_history_is_rebuilt(
    folder: Path, port: int, tmp_path: Path
) -> None:
    assert "departures" in done(block(CHECK).text, folder)
    # The witness is left, Redis is lost.
    lost = shutil.copytree(folder, tmp_path / "lost", ignore=shutil.ignore_patterns("redis"))
    assert "departures" in done(block(REBUILD).text, lost)


KEY = "docs/how-to/boards.md: stream-app api-key --file api-keys.ndjson --name intranet --board airport"
FRAME = 'docs/how-to/boards.md: <iframe title="Departures" width="100%" height="420"'


@runs(BOARDS, KEY, FRAME)
def test_board_of_the_page_is_served_to_frames(folder: Path, port: int, tmp_path: Path) -> None:
    assert done(block(KEY).text, tmp_path).strip()
    assert '"airport"' in (tmp_path / "api-keys.ndjson").read_text()
    [address] = re.findall(r'src="https://counts\.example\.org([^#"]*)', block(FRAME).text)
    page = f"http://127.0.0.1:{port}{address}"
    assert "https://intranet.example.org" in done(f"curl -sSfI -X GET '{page}'", folder)
    assert [board.name for board in load(folder / "stream-app.yaml", {}).boards] == ["airport"]


ALERTS = "docs/alerts.md: alerts:"


@runs(ALERTS)
def test_rules_of_the_page_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "alerts.yaml"
    file.write_text(
        "kafka: {bootstrap_servers: 'localhost:9092'}\n"
        "streams: {departures: {source: {topic: departures}, privacy: {epsilon: 1}, "
        "time: {field: at, format: ms, bin: 1h, grace: 1m, epoch: 30d}}}\n" + block(ALERTS).text
    )
    assert [rule.name for rule in load(file, {}).alerts.rules] == ["busy", "slow", "drop", "silent"]


SPOOL = "docs/events.md: ingest: {port: 8089, keys: writers.ndjson}"
START = "docs/events.md: $ stream-app api-key --file writers.ndjson --name shop --stream clicks"
SENT = 'docs/events.md: $ curl -H "Authorization: Bearer $KEY" -H "Idempotency-Key: $(uuidgen)" \\'
PIPE = "docs/events.md: $ tail -n 0 -F clicks.log | stream-app ingest --config app.yaml --stdin clicks"
READER = "docs/readers.md: $ stream-app api-key --name grafana --stream clicks"


@runs(SPOOL, START, SENT, PIPE, READER)
def test_events_over_http_and_from_a_pipe_count_and_a_key_opens_their_stream(tmp_path: Path) -> None:
    port, ingest = free_port(), free_port()
    more = "redis: {url: 'embedded:./redis'}\nstate: {dir: ./state}\n"
    more += f"api: {{port: {port}, keys: api-keys.ndjson}}\n"
    text = more + block(SPOOL).text.replace("8089", str(ingest)).replace(
        "bin: 1m, grace: 30s", "bin: 1s, grace: 1s"
    )
    (tmp_path / "app.yaml").write_text(text)
    (tmp_path / "api-keys.ndjson").touch()
    (tmp_path / "clicks.log").touch()
    writer, run = block(START).commands
    sender = done(writer, tmp_path).split()[-1]
    reading, asking = block(READER).commands
    reader = done(reading, tmp_path).split()[-1]
    (tmp_path / "events.ndjson").write_text(events(250))
    send = block(SENT).commands[0].replace("8089", str(ingest))
    with Service(run.split()[1:], tmp_path) as service:
        service.until(f":{ingest}")
        # Debian has uuidgen in a package of its own.
        uuid = "uuidgen() { cat /proc/sys/kernel/random/uuid; }; "
        said = done(f"{uuid}curl -sSf{send.removeprefix('curl')}", tmp_path, KEY=sender)
        assert said.strip() == block(SENT).text.splitlines()[-1]
        with typed(block(PIPE).commands[0], tmp_path):

            def more_events_arrive() -> bool:
                with (tmp_path / "clicks.log").open("a") as log:
                    log.write(events(100))
                time.sleep(0.5)
                return counts(f"http://127.0.0.1:{port}/v1/streams/clicks/count", reader) > 400

            eventually(more_events_arrive, "events of the pipe count")
        command = asking.replace("https://counts.example.org", f"http://127.0.0.1:{port}")
        assert '"value"' in done(command.replace("curl ", "curl -sSf "), tmp_path, KEY=reader)
        service.interrupt()


def events(number: int) -> str:
    """Return lines of events that happen now."""
    return f"{json.dumps({'at': time.time_ns() // 1_000_000})}\n" * number


@contextmanager
def typed(command: str, folder: Path) -> Iterator[None]:
    """Run a command that does not end by itself."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env={**os.environ, "PATH": path}, start_new_session=True
    )
    try:
        yield
        assert run.poll() is None, f"ended by itself: {command}"
    finally:
        os.killpg(run.pid, signal.SIGTERM)
        run.wait(PATIENCE_S)


USERS = "deploy/README.md: $ python3 deploy/redis/make_users.py deploy/secrets"
BROKER = "deploy/README.md: $ python3 deploy/kafka/make_secrets.py deploy/secrets kafka"


@runs(USERS, BROKER)
def test_commands_that_make_secrets_and_values_write_them(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("secrets"))
    for command in chain.from_iterable(one.commands for one in blocks("deploy/README.md")):
        if not program(command):
            done(command, tmp_path)
    made = {file.name for file in (tmp_path / "deploy" / "secrets").iterdir()}
    assert {"worker.env", "api.env", "users.acl", "ca.pem", "kafka-producer.env"} <= made
    assert (tmp_path / "my-values.yaml").stat().st_size


FIRST = "README.md: $ make demo"


@runs(FIRST)
def test_commands_of_the_first_page_count_a_file(tmp_path: Path) -> None:
    demo, init, run, test = (command.partition(" #")[0].rstrip() for command in block(FIRST).commands)
    # tests/e2e/test_demo.py runs what make demo starts.
    assert (demo, "stream-app demo" in done("make -n demo", REPOSITORY)) == ("make demo", True)
    assert test == "make test"  # the run that this test belongs to
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    at = f"{datetime.now(UTC):%Y-%m}-01T00:30:00Z"
    (tmp_path / "visits.ndjson").write_text(f"{json.dumps({'at': at})}\n" * 200)
    with in_terminal(init.split(), tmp_path) as terminal:
        for question in ("events", "time"):
            terminal.answer(f"{question} [")
        terminal.answer("still grows [", "yes")
        for question in ("from", "person", "count", "epsilon", "length of a bin"):
            terminal.answer(f"{question} [")
        assert terminal.status() == 0
    port = free_port()
    with (tmp_path / "stream-app.yaml").open("a") as file:
        file.write(f"api: {{port: {port}}}\n")
    with typed(run, tmp_path):
        address = f"http://127.0.0.1:{port}/v1/streams/visits/count"
        eventually(lambda: counts(address) > 100, "the file is counted")


def counts(address: str, key: str = "") -> float:
    """Return a count, or 0 before the service answers."""
    try:
        asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {key}"} if key else {})
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            return float(json.load(answer)["value"])
    except OSError:
        return 0.0
