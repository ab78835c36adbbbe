"""``stream-app produce`` sends a file's lines once and in order, unchanged or with times moved to now."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaConsumer, TopicPartition
from rich.console import Console

from stream_app.core.declaration import TimeFormat
from stream_app.core.instants import parse_instant
from stream_app.ports import OperatorError
from stream_app.shell.options import live_pace
from stream_app.shell.pace import Behind
from stream_app.shell.produce import LiveTimes, Production, key_reader, lines_of
from stream_app.shell.sending import send
from tests.stream_app.shell.no_events import NO_EVENTS

LINES = [
    '{"at":"2013-01-01T05:15:00Z","who":{"id":"ada"}}',
    '{"at":"2013-01-01T06:15:00Z","who":{"id":7}}',
    '  {"at": "2013-01-01T05:45:00Z"}',
    "not json, sent all the same: ü",
]


class Wall:
    """A clock that advances only while the command sleeps."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


NOWHERE = "127.0.0.1:1"
PAST = Production(Path("e.ndjson"), "t", NOWHERE, as_live=2.0, time_field="at")


def moved(production: Production, lines: Sequence[str]) -> tuple[list[str], Wall]:
    wall = Wall()
    live = LiveTimes(production, wall, wall.sleep)
    return [live.move(line.encode()).decode() for line in lines], wall


def test_past_events_are_sent_now_at_the_given_pace() -> None:
    lines, wall = moved(replace(PAST, as_live=3600.0), LINES)
    began_us = 1_700_000_000_000_000
    times = [parse_instant(json.loads(line)["at"]) - began_us for line in lines[:3]]
    # An hour of the log becomes a second; an event behind a later one keeps its earlier time.
    assert times == [0, 1_000_000, 500_000]
    assert wall.waits == [pytest.approx(1.0)]
    assert json.loads(lines[1])["who"] == {"id": 7}
    assert lines[3] == LINES[3]


@pytest.mark.parametrize(("format", "ticks"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_times_that_are_numbers_stay_numbers(format: TimeFormat, ticks: int) -> None:
    events = [json.dumps({"meta": {"at": second * ticks}}) for second in (100, 104)]
    lines, _ = moved(replace(PAST, time_field="meta.at", time_format=format), events)
    assert [json.loads(line)["meta"]["at"] // ticks for line in lines] == [1_700_000_000, 1_700_000_002]


def test_times_in_texts_and_flat_names_are_moved() -> None:
    past = replace(PAST, time_field="event.at", time_format="ms", key="event.at")
    lines, wall = moved(past, ['{"event.at":"1000"}', '{"event.at":"5000","event":{"at":1}}'])
    assert [json.loads(line)["event.at"] for line in lines] == ["1700000000000", "1700000002000"]
    assert wall.waits == [pytest.approx(2.0)]
    assert key_reader(past)(b'{"event":{"at":7}}') == b"7"


def test_record_that_cannot_be_parsed_is_sent_unchanged(tmp_path: Path) -> None:
    record = b"[" * 200_000
    assert LiveTimes(PAST).move(record) == record
    assert key_reader(replace(PAST, key="at"))(record) is None
    wide = tmp_path / "e.csv"
    wide.write_text("at\n")
    assert key_reader(replace(PAST, file=wide, key="at"))(b"x" * (17 << 20)) is None


def test_events_whose_times_cannot_be_moved_are_refused() -> None:
    with pytest.raises(OperatorError, match="send CSV as it is"):
        LiveTimes(replace(PAST, file=Path("e.csv")))
    with pytest.raises(OperatorError, match="needs --time-field"):
        LiveTimes(replace(PAST, time_field=None))
    for pace in ("max", "fast", "0"):
        with pytest.raises(OperatorError, match=f'^--as-live "{pace}"'):
            live_pace("--as-live", pace)


def test_a_byte_order_mark_is_no_part_of_a_key_column_or_the_first_record(tmp_path: Path) -> None:
    for name, text in (("e.csv", "who,at\nbob,2\n"), ("e.ndjson", "{}\n{}\n")):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
    table = Production(tmp_path / "e.csv", "t", "", key="who")
    assert key_reader(table)(b"bob,2") == b"bob"
    with pytest.raises(OperatorError, match=r"--key other: .* has no such column"):
        key_reader(replace(table, key="other"))
    with (tmp_path / "e.ndjson").open("rb") as content:
        assert list(lines_of(Production(tmp_path / "e.ndjson", "t", ""), content)) == [b"{}\n", b"{}\n"]


def test_a_place_that_is_no_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop.ndjson").symlink_to("loop.ndjson")
    os.mkfifo(tmp_path / "pipe")
    no_file = "is no file; name a file with one event per line"
    for name, said in (("e.ndjson", "does not exist"), ("loop.ndjson", ""), ("pipe", no_file), ("", no_file)):
        with pytest.raises(OperatorError, match=f"{name}.* {said}"):
            send(Production(tmp_path / name, "t", NOWHERE))


EVENTS = b'{"at":1}\n{"at":2}\n'
TWO = [(b"1", b'{"at":1}'), (b"2", b'{"at":2}')]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *NO_EVENTS,
        ("e.json", b'{\n "at": 1\n}\n', "none of its first lines is a JSON object; write one per line"),
        ("e.csv", EVENTS, "its first lines are no header of CSV but"),
        ("e.tsv", b"at\tk\n1\ta\n", "none of its first lines is a JSON object"),
        ("e.txt", b"at,k\n1,a\n", r"CSV has a name in \.csv"),
    ],
)
def test_a_file_of_which_nothing_could_count_is_refused_before_a_broker_is_asked(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OperatorError, match=said) as told:
        send(Production(tmp_path / name, "t", NOWHERE))
    assert f"{tmp_path / name}: " in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"key": "user.id"}, "none of its first events has the field user.id; correct --key"),
        ({"as_live": 1.0, "time_field": "when"}, "none of its first events has a time in when that is read"),
        ({"as_live": 1.0, "time_field": "at"}, "read as iso8601; correct --time-field or --time-format"),
        ({"as_live": 1.0, "time_field": "at", "time_format": "ns"}, ""),
        ({"key": "in.x"}, ""),
        ({"key": "at"}, ""),
    ],
)
def test_options_that_fit_no_event_are_refused(tmp_path: Path, option: dict[str, Any], said: str) -> None:
    (tmp_path / "e.ndjson").write_text('{"at": 1772323200, "in.x": ""}\n' * 3)
    with pytest.raises(OperatorError, match=said or "starts a broker"):
        send(Production(tmp_path / "e.ndjson", "t", NOWHERE, **option))


@pytest.mark.parametrize(
    ("servers", "line"),
    [
        ("127.0.0.1:1", "^produce: topic t on 127.0.0.1:1: .*`make kafka` starts a broker"),
        ("127.0.0.1:1,nowhere", "^kafka: nowhere is not an address; write host:port"),
    ],
)
def test_no_broker_is_one_line_with_the_remedy(tmp_path: Path, servers: str, line: str) -> None:
    file = tmp_path / "e.ndjson"
    file.write_text("{}\n")
    with pytest.raises(OperatorError, match=line) as told:
        send(Production(file, "t", servers))
    assert "\n" not in str(told.value)


def read_all(servers: str, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Return (key, value) of all records of a topic with one partition."""
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    found: list[tuple[bytes | None, bytes]] = []
    while len(found) < end:
        for records in consumer.poll(timeout_ms=500).values():
            found += [(record.key, record.value) for record in records]
    consumer.close()
    return found


@pytest.mark.kafka
class TestOverABroker:
    def test_lines_arrive_unchanged_in_order_with_their_keys(
        self, tmp_path: Path, bootstrap_servers: str
    ) -> None:
        file, topic, said = tmp_path / "e.ndjson", f"clicks-{uuid4().hex}", io.StringIO()
        file.write_text("\n".join([*LINES, "", ""]))
        what = Production(file, topic, bootstrap_servers, key="who.id", partitions=1)
        assert send(what, Console(file=said)).acknowledged == 4
        assert said.getvalue().startswith(f"4 records of e.ndjson are in topic {topic} (")
        expected = list(zip([b"ada", b"7", None, None], (line.encode() for line in LINES), strict=True))
        assert read_all(bootstrap_servers, topic) == expected
        send(replace(what, key=None), Console(file=said))
        assert [value for _, value in read_all(bootstrap_servers, topic)] == [v for _, v in expected] * 2

    @pytest.mark.parametrize(
        ("name", "content", "key", "sent"),
        [
            ("e.ndjson.gz", gzip.compress(EVENTS), "at", TWO),
            ("E.CSV.GZ", gzip.compress(b"at,who\r\n1,a\r\n2,b"), "who", [(b"a", b"1,a"), (b"b", b"2,b")]),
            ("e.csv", b'at,who\n1,"ada, l"\n2,b\n', "who", [(b"ada, l", b'1,"ada, l"'), (b"b", b"2,b")]),
            ("e.csv", b'who,text\na,"one\r\nline"\nb,x\n', "who", [(b"a", b'a,"one\rline"'), (b"b", b"b,x")]),
            ("e.csv", b"\xef\xbb\xbfwho,2fa,,who\na,,,\n", "who", [(b"a", b"a,,,")]),
            ("e.json", b'\xef\xbb\xbf{"at":1}\r\n\r\n{"at":2}', "at", TWO),
        ],
    )
    def test_events_arrive_from_every_kind_of_file(
        self,
        tmp_path: Path,
        bootstrap_servers: str,
        name: str,
        content: bytes,
        key: str,
        sent: list[tuple[bytes, bytes]],
    ) -> None:
        (tmp_path / name).write_bytes(content)
        what = Production(tmp_path / name, f"clicks-{uuid4().hex}", bootstrap_servers, key=key, partitions=1)
        said = io.StringIO()
        send(what, Console(file=said))
        assert read_all(bootstrap_servers, what.topic) == sent
        assert "counting refuses them" not in said.getvalue()

    def test_records_that_are_no_events_are_said(self, tmp_path: Path, bootstrap_servers: str) -> None:
        said = io.StringIO()
        for name, content in (
            ("e.ndjson", b'{"at":1}\nlost\n'),
            ("e.csv", b'at,text\n1,"open\nline\n2,a\n'),
        ):
            (tmp_path / name).write_bytes(content)
            topic = f"clicks-{uuid4().hex}"
            send(Production(tmp_path / name, topic, bootstrap_servers, partitions=1), Console(file=said))
        refused = [line for line in said.getvalue().splitlines() if "counting refuses them" in line]
        assert refused == [
            "1 of them are not a JSON object; counting refuses them",
            "2 of them are not a line of CSV with a value for each column; counting refuses them",
        ]

    def test_missing_topic_is_not_created_unasked(self, tmp_path: Path, bootstrap_servers: str) -> None:
        file = tmp_path / "e.ndjson"
        file.write_text("{}\n")
        what = Production(file, f"clicks-{uuid4().hex}", bootstrap_servers)
        with pytest.raises(OperatorError, match="does not exist; create it with --partitions"):
            send(what)


def test_a_producer_that_falls_behind_its_pace_says_so_and_when_it_keeps_it_again() -> None:
    said: list[str] = []
    wall = Wall()
    live = LiveTimes(
        replace(PAST, as_live=60.0, time_format="s"), wall, wall.sleep, Behind(said.append, wall)
    )

    def move(second: int, slow_s: float = 0.0) -> None:
        live.move(json.dumps({"at": second}).encode())
        wall.now_s += slow_s  # the broker takes long

    for second in (0, 60, 120):
        move(second)
    move(0)  # an event that is late in the file is not behind the pace
    assert said == []
    move(180, slow_s=9)
    move(240)  # due a second after the one before, eight seconds ago
    move(300)
    busy = "so events arrive late; ask for less, or see whether the broker or this machine is busy"
    assert said == [f"produce: 8 s behind --as-live 1m/s, {busy}"]
    for second in range(360, 1_200, 60):
        move(second, slow_s=3.5)
    assert [line[:9] for line in said] == ["produce: "] * 2  # said again after half a minute
    move(60 * 60 * 24)
    assert said[-1] == "produce: keeps --as-live 1m/s again"
