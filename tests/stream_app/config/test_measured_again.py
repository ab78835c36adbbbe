"""The configuration refuses streams that measure the same events exactly when the ledger refuses them."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_app.config import ConfigError, load_text
from stream_app.config.second_measurement import check_measurements, first_measurement
from stream_app.config.source import by_log
from stream_app.core.instants import parse_instant
from stream_app.core.ledger import check_measurement, statement
from stream_app.core.records import LedgerEntry
from stream_app.shell.commands import main

NOW_US = parse_instant("2024-06-15T12:00:00Z")
ACCEPT = ', accept: "measured again"'
FOREVER = {"epsilon": "1", "accept": "", "first": "", "file": "events.ndjson", "group": ""}


def stream(name: str, **written: str) -> str:
    facts = FOREVER | written
    return f"""
  {name}:
    source: {{file: {facts["file"]}{facts["group"]}}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 1m, epoch: 30d{facts["first"]}}}
    privacy: {{epsilon: {facts["epsilon"]}{facts["accept"]}}}"""


def replay(name: str, start: str, end: str, file: str) -> str:
    return f"""
  {name}:
    source: {{file: {file}, group: people, replay: {{from: {start}T00:00:00Z, to: {end}T00:00:00Z}}}}
    time: {{field: at, format: iso8601, bin: 1h, epoch: 10d}}
    privacy: {{epsilon: 1}}"""


def settings(*streams: str):
    return load_text("streams:" + "".join(streams), Path("app.yaml"), {})


def refused_by_the_ledger(streams) -> bool:
    """Return whether the ledger refuses a stream when a worker opens the streams in its usual order."""
    entries: list[LedgerEntry] = []
    for one in chain.from_iterable(by_log(streams)):
        entry = first_measurement(one, NOW_US)
        before = [other for other in entries if other.source == entry.source]
        try:
            check_measurement(before, entry, one.accept)
        except ValueError:
            return True
        entries.append(entry)
    return False


A, B = stream("a"), stream("b")
EDGES = ", first: 2024-06-01T00:00:00Z", ", first: 2024-07-01T00:00:00Z"
IN_A_GROUP = {"group": ", group: people"}


@pytest.mark.parametrize(
    ("streams", "good"),
    [
        ((A,), True),
        ((A, B), False),
        ((A, stream("b", accept=ACCEPT)), True),
        ((stream("a", accept=ACCEPT), B), False),  # b is opened later, so b has to accept
        ((A, B, stream("c", accept=ACCEPT)), False),
        ((A, stream("b", accept=ACCEPT), stream("c", accept=ACCEPT)), True),
        ((A, stream("b", file="others.ndjson")), True),
        ((stream("a", **IN_A_GROUP), stream("b", file="others.ndjson", **IN_A_GROUP)), False),
        ((A, stream("b", first=", first: 2024-01-01T00:00:00Z")), False),
        # The second starts when the first one's epoch ends. Both continue, and count the same events from
        # then on.
        ((stream("a", first=EDGES[0]), stream("b", first=EDGES[1])), False),
        ((stream("a", first=EDGES[1]), stream("b", first=EDGES[0])), False),
        ((stream("a", first=EDGES[0]), stream("b", first=EDGES[1], accept=ACCEPT)), True),
        ((A, stream("b", first=", first: 2024-06-01T00:00:00Z")), False),
        ((stream("a", epsilon="12"), stream("b", epsilon="9", accept=ACCEPT)), False),
        ((stream("a", epsilon="12"), stream("b", epsilon="8", accept=ACCEPT)), True),
        ((replay("a", "2023-01-01", "2023-01-11", "x"), replay("b", "2023-01-11", "2023-01-21", "y")), True),
        ((replay("a", "2023-01-01", "2023-01-11", "x"), replay("b", "2023-01-10", "2023-01-20", "y")), False),
    ],
)
def test_configuration_refuses_exactly_what_the_ledger_would_refuse(streams, good):
    read = settings(*streams).streams
    assert refused_by_the_ledger(read) is not good
    if good:
        check_measurements(read, NOW_US)
    else:
        with pytest.raises(ConfigError, match=r"^app\.yaml:\d+: streams\.\w\.privacy\."):
            check_measurements(read, NOW_US)


def test_refusal_names_file_line_and_the_text_to_copy():
    with pytest.raises(ConfigError) as caught:
        check_measurements(settings(A, B).streams, NOW_US)
    assert str(caught.value) == (
        "app.yaml:9: streams.b.privacy.accept is missing: file:events.ndjson is already measured by a; "
        'all together cost epsilon 2; write accept: "measured again" to accept that'
    )


@pytest.mark.parametrize(
    ("written", "begun", "said"),
    [
        ("", None, "measured by a;"),  # a may have begun long ago
        ("", "2024-06-15T11:00:00Z", "measured by a from 2024-06-15T11:00:00Z;"),
        (EDGES[0], None, "measured by a from 2024-06-01T00:00:00Z;"),
    ],
)
def test_refusal_names_a_start_only_if_ledger_or_configuration_knows_it(
    written: str, begun: str | None, said: str
) -> None:
    streams = settings(stream("a", first=written), B).streams
    ledger = [] if begun is None else [first_measurement(streams[0], parse_instant(begun))]
    with pytest.raises(ConfigError, match=said):
        check_measurements(streams, NOW_US, {"file:events.ndjson": ledger})


def test_refusal_names_a_start_that_the_ledger_knows_also_if_the_stream_counts_another_source_now():
    moved = settings(stream("a", file="other.ndjson"), B).streams
    ledger = [first_measurement(settings(A).streams[0], parse_instant("2024-06-15T11:00:00Z"))]
    with pytest.raises(ConfigError, match=r"measured by a from 2024-06-15T11:00:00Z;"):
        check_measurements(moved, NOW_US, {"file:events.ndjson": ledger})


def test_only_new_streams_need_consent():
    streams = settings(A, B).streams
    entries = [first_measurement(one, NOW_US) for one in streams]
    source = entries[0].source
    check_measurements(streams, NOW_US, {source: entries})
    check_measurements(streams, NOW_US, {}, begun={"a", "b"})
    with pytest.raises(ConfigError, match=r"streams\.b\.privacy\.accept"):
        check_measurements(streams, NOW_US, {source: entries[:1]})
    # If one of two streams has begun, the other one has to accept.
    streams = settings(stream("a", accept=ACCEPT), B).streams
    with pytest.raises(ConfigError, match=r"streams\.b\.privacy\.accept"):
        check_measurements(streams, NOW_US, {source: entries[:1]})


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check-config", "plan", "privacy", "doctor"])
def test_commands_that_only_read_a_configuration_refuse_it_too(tmp_path, command):
    (tmp_path / "events.ndjson").touch()
    config = tmp_path / "app.yaml"
    config.write_text("redis: {url: embedded:./redis}\nstreams:" + A + B)
    said = CliRunner().invoke(main, [command, "--config", str(config)])
    assert said.exit_code == 2
    assert f"{config}:10: streams.b.privacy.accept is missing" in said.output


def of_users(name: str, field: str) -> str:
    return stream(name, epsilon=f"1, unit: {{user: {field}, max_events: 2}}", accept=ACCEPT)


@pytest.mark.parametrize(("field", "unit", "epsilon"), [("passenger", "user", 2), ("device", "event", 4)])
def test_streams_that_name_users_differently_promise_per_event(field: str, unit: str, epsilon: int) -> None:
    streams = settings(of_users("a", "passenger"), of_users("b", field)).streams
    entries = [replace(first_measurement(one, NOW_US), strategy_hash=one.name) for one in streams]
    told = statement(entries[0].source, entries)
    assert told.unit == unit
    assert told.epsilon == epsilon
