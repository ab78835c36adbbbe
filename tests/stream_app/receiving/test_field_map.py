"""``ingest.map``: bodies of any vendor become events with the named fields, and nothing else is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from stream_app.receiving.field_map import MOST_EVENTS, FieldMap, steps_of
from tests.stream_app.receiving.running import Running, settings_of

PUSH = {
    "ref": "refs/heads/main",
    "head_commit": {"timestamp": "2026-03-01T12:00:00Z"},
    "commits": [{"author": {"email": "a@example.org"}, "added": ["x"]}, {"author": None}],
    "http.status": 200,
    "http": {"status": 500, "method": "POST"},
}
BATCH = {"key": "site", "batch": [{"at": 1, "user": {"id": 7}}, {"at": None}, "no object"]}


@pytest.mark.parametrize(
    ("paths", "body", "events"),
    [
        ({"at": "head_commit.timestamp", "who": "commits[0].author.email"}, PUSH, [
            {"at": "2026-03-01T12:00:00Z", "who": "a@example.org"}
        ]),
        # Null, a list, an object and a path that leads nowhere are no values.
        ({"a": "commits[1].author.email", "b": "commits[0].added", "c": "http", "r": "ref"}, PUSH, [
            {"r": "refs/heads/main"}
        ]),
        ({"d": "commits[9].id", "r": "ref"}, PUSH, [{"r": "refs/heads/main"}]),
        ({"s": "http.status", "m": "http.method", "a": "commits[0].added[0]"}, PUSH, [
            {"s": 200, "m": "POST", "a": "x"}
        ]),
        ({"at": "batch[*].at", "user": "batch[*].user.id", "site": "key"}, BATCH, [
            {"at": 1, "user": 7, "site": "site"}, {"site": "site"}, {"site": "site"},
        ]),
        ({"x": "a[*].x"}, {"a": []}, []),
        ({"n": "n"}, [{"n": 1}, {"n": False}], [{"n": 1}, {"n": False}]),
        ({"n": "[1]"}, [[0, 1]], [{"n": 1}]),
        ({"now": "@timestamp"}, {}, [{"now": 5}]),
        ({"now": "@timestamp", "n": "n"}, {"m": 1}, [{"now": 5}]),
    ],
)  # fmt: skip
def test_fields_are_at_their_paths(paths: dict[str, str], body: Any, events: list[dict[str, Any]]) -> None:
    lines, others = FieldMap(paths).events_of(json.dumps(body).encode(), 5, 1_000)
    assert ([json.loads(line) for line in lines.splitlines()], others) == (events, 0)


def test_lines_are_read_one_by_one() -> None:
    lines, others = FieldMap({"n": "a.n"}).events_of(
        b'{"a": {"n": 1}}\nno JSON\n\n{"a": {"n": NaN}}\n', 0, 99
    )
    assert (lines, others) == (b'{"n":1}\n{}\n', 1)


@pytest.mark.parametrize("body", [b"n=1", b"null", b"5", b'"n"', b"[]", b"[1, null]", b"true\n7\n"])
def test_body_without_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no line of it is an object or a list of JSON"):
        FieldMap({"n": "n"}).events_of(body, 0, 99)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("d", b"{}"),
        ("d", b'{"D": 1}'),
        ("d", b'{"d": null}\n{"d": [1]}\n{"d": {"e": 1}}'),
        ("d", b'[{"e": 1}, {"e": 2}]'),
        ("d.e", b'{"d": 1}'),
        ("d[1]", b'{"d": [5]}'),
        ("d[0]", b'{"d": {"0": 5}}'),
        ("d[*].e", b'{"d": [{"f": 1}, 5]}'),
        ("d[*].e", b'{"d": {"e": 1}}'),
        ("[*].e", b'{"e": 1}'),
    ],
)
def test_body_in_which_no_path_leads_anywhere_is_refused(path: str, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"no path of ingest\.map leads to a value in it"):
        FieldMap({"f": path}).events_of(body, 0, 99)


def test_values_that_are_no_objects_are_told() -> None:
    for body in (b'[{"n": 1}, 5, null]', b'{"n": 1}\n5\nnull\n'):
        assert FieldMap({"n": "n"}).events_of(body, 0, 99) == (b'{"n":1}\n', 2)


@pytest.mark.parametrize("path", ["", "a[", "a[-1]", "a[x]", "a[*].b[*]", "a]b", "x" * 201])
def test_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is no path; write names and indices"):
        steps_of(path)


@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"a": {"n": 1}}',
        b'\xef\xbb\xbf{\n"a": {"n": 1}}\n',
        b'{"a": {"n": 1}}\0',
        b'{"a": {"n": 1}}\r\n',
        b'{\n"a": {"n": 1}, "b": NaN}',
        b'[{\n"a": {"n": 1}, "b": "\\ud83d"}]',
        b'{"a": {"n": 1}, "b": 1e999}',
        b'{\n"a": {"n": 1}, "b": ' + b"9" * 5_000 + b"}",
        b'{"a": {"n": 0}, "a": {"n": 1}}',
    ],
)
def test_body_is_read_as_a_line_of_a_file_is(body: bytes) -> None:
    assert FieldMap({"n": "a.n"}).events_of(body, 0, 1_000) == (b'{"n":1}\n', 0)


def test_first_line_behind_a_byte_order_mark_counts() -> None:
    lines = b'\xef\xbb\xbf{"n": 1}\r\n{"n": Infinity}\r\n'
    assert FieldMap({"n": "n"}).events_of(lines, 0, 1_000) == (b'{"n":1}\n{"n":Infinity}\n', 0)


def test_two_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="two different lists"):
        FieldMap({"a": "x[*].a", "b": "y[*].b"})


def test_only_named_fields_are_stored_once(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, ', map: {clicks: {at: "@timestamp", who: "sender.login"}}')
    with Running(settings) as running:
        url = f"http://127.0.0.1:{running.port}/v1/ingest/clicks"
        body = {"sender": {"login": "ann", "email": "ann@example.org"}, "secret": "s3cret"}
        for duplicate in (False, True):
            answer = httpx.post(url, json=body, headers={"idempotency-key": "1"})
            assert (answer.status_code, answer.json()) == (200, {"records": 1, "duplicate": duplicate})
        assert httpx.post(url, content=b"x").status_code == 400
        [event] = [json.loads(line) for line in running.stored().splitlines()]
        assert event["who"] == "ann"
        assert event.keys() == {"at", "who"}


def test_a_start_names_fields_that_no_event_will_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for paths, is_named in (("at: t", False), ("when: t", True)):
        caplog.clear()
        with Running(settings_of(tmp_path, f", map: {{clicks: {{{paths}}}}}")):
            assert ("ingest.map.clicks makes no field at; it makes when" in caplog.text) == is_named


@pytest.mark.parametrize(
    ("key", "elements", "status"),
    [("x", MOST_EVENTS, 200), ("x", MOST_EVENTS + 1, 413), ("x" * 10_000, 99, 200), ("x" * 10_000, 100, 413)],
)
def test_body_that_becomes_too_many_events_or_too_long_is_refused(
    tmp_path: Path, key: str, elements: int, status: int
) -> None:
    with Running(settings_of(tmp_path, ', map: {clicks: {at: "batch[*].t", site: key}}')) as running:
        url = f"http://127.0.0.1:{running.port}/v1/ingest/clicks"
        answer = httpx.post(url, json={"key": key, "batch": [0] * elements})
        assert (answer.status_code, "(ingest.max_body); send parts" in answer.text) == (status, status == 413)
        assert running.stored().count(b"\n") == (elements if status == 200 else 0)
