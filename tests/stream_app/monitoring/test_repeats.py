"""An outage is logged when it begins, then at growing intervals, and when it ends."""

from __future__ import annotations

import logging
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.monitoring.logs import NEWS_AFTER_S, PAUSES_S, Repeats
from stream_app.outage import Outage


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
