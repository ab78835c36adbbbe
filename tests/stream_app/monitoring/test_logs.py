"""Log lines are JSON and hold no value of an event; an outage is logged at growing intervals."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import logging.config
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from stream_app.monitoring.logs import LOG_FORMAT, NEWS_AFTER_S, PAUSES_S, Repeats, configure, dict_config
from stream_app.outage import Outage
from stream_app.ports import OperatorError
from tests.patience import PATIENCE_S

SENTINEL = "tailnum-N14228"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Log into memory for the block, and restore logging afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, sys.excepthook, threading.excepthook
    monkeypatch.delenv(LOG_FORMAT, raising=False)
    stream = io.StringIO()
    configure("worker", logging.INFO, stream)
    yield stream
    root.handlers[:], sys.excepthook, threading.excepthook = before[0], before[2], before[3]
    root.setLevel(before[1])
    logging.captureWarnings(False)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def trip_over_an_event() -> None:
    try:
        int(SENTINEL)
    except ValueError as failure:
        raise OSError(f"while reading {SENTINEL}") from failure


def test_log_line_is_json_with_level_role_time_and_fields(written: io.StringIO) -> None:
    logging.getLogger("stream_app.x").info("released", extra={"stream": "clicks", "bins": 3})
    (line,) = lines(written)
    assert str(line.pop("timestamp")).endswith("Z")
    told = {"event": "released", "level": "info", "logger": "stream_app.x", "role": "worker"}
    assert line == told | {"stream": "clicks", "bins": 3}


def test_error_is_logged_with_type_and_place_but_no_message(written: io.StringIO) -> None:
    try:
        trip_over_an_event()
    except OSError:
        logging.getLogger("stream_app.x").exception("unexpected")
    assert SENTINEL not in written.getvalue()
    errors = lines(written)[0]["errors"]
    assert [error["type"] for error in errors] == ["OSError", "ValueError"]
    assert errors[0]["at"][-1].startswith("test_logs.py:")
    assert errors[0]["at"][-1].endswith("trip_over_an_event")


def test_error_in_a_message_is_replaced_by_its_type(written: io.StringIO) -> None:
    log = logging.getLogger("mode.service")
    log.error("crashed: %r, %s", ValueError(SENTINEL), OperatorError("state.dir: it is full"))
    log.warning("ingest: %s; trying again", ConnectionError("redis: no answer"))
    crashed, again = lines(written)
    assert crashed["event"] == "crashed: 'ValueError', state.dir: it is full"
    assert again["event"] == "ingest: redis: no answer; trying again"


def test_no_line_of_a_kafka_client_shows_an_offset(written: io.StringIO) -> None:
    log = logging.getLogger("aiokafka.consumer.group_coordinator")
    place = TopicPartition("events", 3)
    # The messages are copied from the client, word by word.
    log.info("Fetch offset %s is out of range for partition %s, resetting offset", 987654, place)
    commit = OffsetAndMetadata(987654, "")
    log.error(
        "OffsetCommit failed for group %s on partition %s with offset %s: %s", "g", place, commit, "Unknown"
    )
    log.info("Adding fetch request for partition %s at offset %d", place, 987654)
    log.warning("Heartbeat failed for group %s: %s", "g", place)
    *_, second, third, last = (line["event"] for line in lines(written))
    assert "987654" not in written.getvalue()
    assert third == "Adding fetch request for partition TopicPartition at offset int"
    assert str(second).endswith("partition TopicPartition with offset OffsetAndMetadata: Unknown")
    assert "events" in str(last)


def test_dict_config_writes_the_same_lines(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    logging.config.dictConfig(dict_config("worker"))
    try:
        int(SENTINEL)
    except ValueError as failure:
        logging.getLogger("mode.service").exception("crashed: %r", failure)
    (line,) = lines(said)
    assert line["role"] == "worker"
    assert line["errors"][0]["type"] == "ValueError"
    assert SENTINEL not in said.getvalue()


def test_operator_error_is_logged_with_its_message(written: io.StringIO) -> None:
    try:
        raise OperatorError("state.dir: it is full; make room")
    except OperatorError as refusal:
        group = ExceptionGroup("two", [refusal, ValueError(SENTINEL)])
        logging.getLogger("stream_app.x").error("stopped", exc_info=group)
    assert SENTINEL not in written.getvalue()
    says = [error.get("says") for error in lines(written)[0]["errors"]]
    assert "state.dir: it is full; make room" in says


def test_unawaited_task_logs_no_value(written: io.StringIO) -> None:
    async def forget() -> None:
        async def fail() -> None:
            trip_over_an_event()

        task = asyncio.ensure_future(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_exception_handler(
            {
                "message": f"Task exception was never retrieved {task!r}",
                "exception": task.exception(),
                "task": task,
            }
        )

    asyncio.run(forget())
    assert lines(written)
    assert SENTINEL not in written.getvalue()


def test_value_that_is_not_json_is_logged_as_its_type(written: io.StringIO) -> None:
    class Event:
        def __repr__(self) -> str:
            return SENTINEL

    logging.getLogger("stream_app.x").warning("odd", extra={"value": Event(), "set": {SENTINEL}})
    assert SENTINEL not in written.getvalue()
    assert lines(written)[0]["value"] == "<Event>"


def test_crashed_thread_logs_no_value(written: io.StringIO) -> None:
    for target in (trip_over_an_event, asked_to_end):
        thread = threading.Thread(target=target, name="reader")
        thread.start()
        thread.join()
    (line,) = lines(written)
    assert (line["event"], line["level"]) == ("thread reader crashed", "critical")
    assert SENTINEL not in written.getvalue()


def asked_to_end() -> None:
    raise asyncio.CancelledError


CRASH = f"""
from stream_app.monitoring.logs import configure
if {{guarded}}:
    configure("worker")
def count(line):
    return int(line)
count("{SENTINEL}")
"""


@pytest.mark.parametrize(("guarded", "shown"), [(True, False), (False, True)])
def test_crash_logs_no_value(guarded: bool, shown: bool) -> None:
    """Without the service's own hook, Python would print the value."""
    command = [sys.executable, "-c", CRASH.format(guarded=guarded)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert "ValueError" in ended.stderr
    assert (SENTINEL in ended.stderr) == shown


def test_log_line_on_a_terminal_is_prose(monkeypatch: pytest.MonkeyPatch, written: io.StringIO) -> None:
    monkeypatch.setenv(LOG_FORMAT, "console")
    configure("worker", logging.INFO, written)
    logging.getLogger("stream_app.x").warning("clicks: %s", "counting begins", extra={"bins": 3})
    logging.getLogger("stream_app.x").info("released")
    try:
        trip_over_an_event()
    except OSError:
        logging.getLogger("stream_app.x").exception("stopped")
    warned, said, failed = written.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\dZ worker: warning: clicks: counting begins bins=3", warned)
    assert re.fullmatch(r"\d\d:\d\d:\d\dZ worker: released", said)
    assert "Z worker: error: stopped errors=[{" in failed
    assert SENTINEL not in written.getvalue()


def test_processes_of_the_service_start_without_libraries_for_terminals() -> None:
    modules = "sys, stream_app.shell.child, stream_app.wiring.workers, stream_app.wiring.public"
    code = f"import {modules}; print({{'rich', 'pygments', 'click'}} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


def record(
    at_s: float, message: str = "ingest: gone", name: str = "stream_app.loops.ingest"
) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": name, "msg": message, "created": 1e9 + at_s, "levelno": logging.WARNING}
    )


def told_at(times_s: list[float]) -> list[tuple[float, int]]:
    """Return the times at which a line was logged, and how many equal lines were left out before each."""
    repeats, told = Repeats("aiokafka"), []
    for at_s in times_s:
        one = record(at_s)
        if repeats.filter(one):
            told.append((at_s, getattr(one, "repeated", 0)))
    return told


def test_outage_of_an_hour_is_logged_at_growing_intervals() -> None:
    told = told_at([second / 2 for second in range(7_200)])
    assert told[:6] == [(0, 0), (10, 19), (40, 59), (130, 179), (400, 539), (1_000, 1_199)]
    assert [at_s for at_s, _ in told[6:]] == [1_600, 2_200, 2_800, 3_400]


def test_line_is_logged_at_once_after_a_long_pause() -> None:
    assert told_at([0, 1, 2, 3 + NEWS_AFTER_S, 4 + NEWS_AFTER_S]) == [(0, 0), (3 + NEWS_AFTER_S, 2)]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200))
def test_every_line_is_logged_or_counted_as_repeated(steps_s: list[float]) -> None:
    times_s = list(accumulate(steps_s))
    told = told_at(times_s)
    unsaid_at_end = len(times_s) - len(told) - sum(held for _, held in told)
    last_s = told[-1][0]
    assert 0 <= unsaid_at_end <= sum(at_s >= last_s for at_s in times_s) - 1
    for at_s in times_s:
        assert any(at_s - PAUSES_S[-1] < told_s <= at_s for told_s, _ in told)


def test_different_lines_and_errors_with_a_place_are_logged() -> None:
    repeats = Repeats("aiokafka")
    crash = record(3)
    crash.exc_info = (ValueError, ValueError(), None)
    told = [
        record(0),
        record(1, "ingest: full"),
        record(2, name="stream_app.loops.closer"),
        crash,
        record(4, name="x"),
    ]
    assert [repeats.filter(one) for one in [*told, crash, record(5, name="x")]] == [True] * 7
    assert not repeats.filter(record(6))
    info = record(7, "a step")
    info.levelno = logging.INFO
    assert repeats.filter(info)
    assert repeats.filter(info)


def test_library_line_is_logged_once_per_kind_when_it_has_come_for_ten_seconds() -> None:
    repeats = Repeats("aiokafka")
    lines = [record(node / 10, "Unable connect to node with id %s", "aiokafka") for node in range(110)]
    for node, line in enumerate(lines):
        line.args = (node,)
    assert [at for at, line in enumerate(lines) if repeats.filter(line)] == [100]
    assert getattr(lines[100], "repeated", 0) == 100
    assert not repeats.filter(record(11, "Unable connect to node with id %s", "aiokafka.consumer"))


def test_library_line_of_an_attempt_that_soon_succeeds_is_not_logged() -> None:
    repeats = Repeats("aiokafka")
    retried = [record(at_s, "Group Coordinator Request failed: %s", "aiokafka") for at_s in (0, 1, 9, 75, 80)]
    assert not any(map(repeats.filter, retried))
    late = record(86, "Group Coordinator Request failed: %s", "aiokafka")
    assert repeats.filter(late)
    assert getattr(late, "repeated", 0) == 5


def test_library_line_about_a_member_that_joined_or_left_is_a_step(caplog: pytest.LogCaptureFixture) -> None:
    # The message is copied from the client, word by word.
    rebalance = "Heartbeat failed for group %s because it is rebalancing"
    lines = [record(at_s, rebalance, "aiokafka") for at_s in range(0, 40, 8)]
    caplog.set_level(logging.WARNING)
    assert not any(map(Repeats("aiokafka").filter, lines))
    caplog.set_level(logging.INFO)
    assert Repeats("aiokafka").filter(lines[0])


def test_end_of_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("stream_app.x"), "ingest")
    outage.over()
    assert caplog.messages == []
    for failure in (ConnectionError("redis: no answer"), TimeoutError("redis: no answer")):
        outage.failed(failure)
    outage.over()
    outage.over()
    assert caplog.messages == [
        *["ingest: redis: no answer; trying again"] * 2,
        "ingest: works again, after 0 s",
    ]
