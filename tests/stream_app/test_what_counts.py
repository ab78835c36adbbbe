"""What counts, kind by kind: numbers, times, lines, columns, names, bytes, keys and users."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stream_app.ports import OperatorError
from tests.stream_app.counted import Counts, count, stream

NOON = "2026-03-01T12:00:00Z"
NOON_S = 1_772_366_400


def lines_of(*events: dict[str, Any] | str) -> bytes:
    """Return NDJSON. Args: events, objects or lines; an object gets a time unless it has one."""
    whole = [event if isinstance(event, str) else json.dumps({"at": NOON} | event) for event in events]
    return "".join(f"{line}\n" for line in whole).encode()


def event(**written: str) -> str:
    """Return an event as a line. Args: written, its other fields in JSON; a time in place of noon."""
    members = {"at": f'"{NOON}"'} | written
    return "{" + ", ".join(f'"{name}": {value}' for name, value in members.items()) + "}"


def counted(directory: Path, name: str, content: bytes, **more: Any) -> Counts:
    """Return what one stream counts of one file."""
    folder = directory / f"of {name}"
    folder.mkdir()
    (folder / name).write_bytes(content)
    return count(folder, one=stream(name, **more))["one"]


def test_a_field_that_only_another_stream_reads_changes_no_count(tmp_path: Path) -> None:
    bad = [event(name='"caf\xe9"'), event(v="1e400")]
    content = lines_of(*[{"name": "n"}] * 18).decode() + "".join(f"{line}\n" for line in bad)
    (tmp_path / "x.ndjson").write_bytes(content.encode("latin-1"))
    x1 = stream("x.ndjson")
    others = {
        "x2": stream("x.ndjson", keys={"field": "name", "list": ["n"]}, privacy={"accept": "measured again"}),
        "x3": stream(
            "x.ndjson",
            value={"field": "v", "min": 0, "max": 1, "buckets": 2},
            privacy={"accept": "measured again"},
        ),
    }
    assert count(tmp_path, x1=x1)["x1"] == Counts(20)
    found = count(tmp_path, x1=x1, **others)  # over the same state, and the finished replay begins again
    assert found["x1"] == Counts(20)
    assert found["x2"].cells == {"n": 18, "other": 2}
    assert (found["x3"].total, found["x3"].refused) == (1, {"bad_value": 19})


KEYS = [
    ("200", "200"),
    ("200.0", "200"),
    ("2e2", "200"),
    ("2.00E+2", "200"),
    ('"200"', "200"),
    ('"200.0"', "other"),
    ("-200", "other"),
    ("200.5", "other"),
    ("true", "true"),
    ('"true"', "true"),
    ("1", "other"),
    ("1e400", "other"),
    ("null", "other"),
    ("[200]", "other"),
    ('{"k": 200}', "other"),
    ("20000000000000000000000000000000000000000", "other"),
    ('"ok"', "ok"),
    ('" ok"', "other"),
]


def test_keys_of_json(tmp_path: Path) -> None:
    """A key and a condition agree about every value."""
    content = lines_of(*(event(k=written) for written, _ in KEYS))
    listed = ["200", "ok", "true"]
    found = counted(tmp_path, "k.ndjson", content, keys={"field": "k", "list": listed})
    assert found.cells == Counter(key for _, key in KEYS)
    matching = counted(tmp_path, "where.ndjson", content, where={"k": listed})
    assert matching.total == sum(key != "other" for _, key in KEYS)


@pytest.mark.parametrize("listed", [["200", "200.0", "1e2", "100"], ["200.0", "200", "100", "1e2"]])
def test_a_number_counts_under_its_shortest_key(tmp_path: Path, listed: list[str]) -> None:
    content = lines_of(*(event(k=written) for written in ("200", "200.0", '"200.0"', "100", '"1e2"', "1e2")))
    found = counted(tmp_path, "k.ndjson", content, keys={"field": "k", "list": listed})
    assert found.cells == {"200": 2, "200.0": 1, "100": 2, "1e2": 1}


NUMBERS: list[tuple[str, int | None]] = [
    ("7", 7),
    ("7.0", 7),
    ("7e0", 7),
    ('"7"', 7),
    ('" 7 "', 7),
    ('"7e0"', 7),
    ('"+7."', 7),
    ("-0", 0),
    ("-0.0", 0),
    ("1e400", 9),
    ("-1e400", 0),
    ('"1e400"', 9),
    ("1" * 50, 9),
    ("1" * 5_000, 9),
    ("-" + "1" * 5_000, 0),
    ('"' + "1" * 5_000 + '"', 9),
    ("0." + "1" * 5_000, 0),
    ('"\u00a07\u00a0"', 7),
    ('"7\u00a0000"', None),
    ('"inf"', None),
    ('"-Infinity"', None),
    ('"nan"', None),
    ('"1_0"', None),
    ('"0x7"', None),
    ('"seven"', None),
    ('""', None),
    ("true", None),
    ("null", None),
    ("[7]", None),
]


@pytest.mark.parametrize("name", ["v.ndjson", "v.csv"])
def test_numbers(tmp_path: Path, name: str) -> None:
    """JSON and CSV read the same number."""
    numbers = [one for one in NUMBERS if name == "v.ndjson" or one[0] not in ("true", "null", "[7]")]
    content = lines_of(*(event(v=written) for written, _ in numbers))
    if name == "v.csv":
        rows = (f"{NOON},{written.strip(chr(34))}\n" for written, _ in numbers)
        content = "".join(["at,v\n", *rows]).encode()
    found = counted(tmp_path, name, content, value={"field": "v", "min": 0, "max": 10, "buckets": 10})
    assert found.cells == Counter(bucket for _, bucket in numbers if bucket is not None)
    assert found.refused == {"bad_value": sum(bucket is None for _, bucket in numbers)}


@pytest.mark.parametrize(
    ("users", "total"),
    [
        (["7", "7.0", "7e0", '"7"'], 1),
        (["0", "-0", "-0.0", '"0"'], 1),
        (["7", "8"], 2),
        (['"7"', '"7.0"'], 2),
        (["1.5"], 0),
        (["true", "null", '""', "[1]", "1e300", "1e400"], 0),
        (["9007199254740993.0"], 0),
        (["9007199254740993", '"9007199254740993"'], 1),
        (["12345678901234567890123", '"12345678901234567890123"'], 1),
        (['"ann"', '"Ann"', '"ann "'], 3),
        (['"\\ud800"', '"\\ufffd"'], 1),
    ],
)
def test_users(tmp_path: Path, users: list[str], total: int) -> None:
    """Each user counts once: what is one user is one name."""
    content = lines_of(*(event(u=user) for user in users))
    privacy = {"privacy": {"unit": {"user": "u", "max_events": 1}}}
    assert counted(tmp_path, "u.ndjson", content, **privacy).total == total


TEXTS = [
    "5",
    "5.0",
    " 5",
    "5 ",
    "+5",
    "5,0",
    "1e3",
    "1,000",
    "1_000",
    "0x10",
    "\u0663",
    "NaN",
    "inf",
    "007",
    "-0",
]
TEXTS += ["x", "X", " ", "caf\u00e9", "cafe\u0301", "true", "null", '"', "a\tb", "\u00a05"]


@pytest.mark.parametrize("name", ["t.ndjson", "t.csv"])
def test_a_text_is_one_key_one_user_and_one_condition_in_every_format(tmp_path: Path, name: str) -> None:
    content = lines_of(*({"t": text} for text in TEXTS))
    if name == "t.csv":
        rows = (f'{NOON},"{text.replace(chr(34), chr(34) * 2)}"\n' for text in TEXTS)
        content = "".join(["at,t\n", *rows]).encode()
    keys = {"field": "t", "list": TEXTS, "other": False}
    assert counted(tmp_path, name, content, keys=keys).cells == dict.fromkeys(TEXTS, 1)
    for number, more in enumerate(({"unit": {"user": "t", "max_events": 1}}, {})):
        folder = tmp_path / str(number)
        folder.mkdir()
        where = {} if more else {"where": {"t": TEXTS}}
        assert counted(folder, name, content, privacy=more, **where).total == len(TEXTS)


TIMES = [
    ("iso8601", '"2026-03-01T12:00:00Z"', ""),
    ("iso8601", '"2026-03-01t12:00:00z"', ""),
    ("iso8601", '"2026-03-01 12:00:00z"', ""),
    ("iso8601", '" 2026-03-01T12:00:00Z "', ""),
    ("iso8601", '"2026-03-01 12:00:00 +0000"', ""),
    ("iso8601", '"2026-03-01 12:00:00 UTC"', ""),
    ("iso8601", '"2026-03-01T12:00:00.123456789+00:00"', ""),
    ("iso8601", '"2026-03-01T23:59:60Z"', ""),
    ("iso8601", '"2026-03-01T12:00:00"', "local_time"),
    ("iso8601", '"2026-03-01 12:00"', "local_time"),
    ("iso8601", '"2026-03-01"', "local_time"),
    ("iso8601", '"noon"', "bad_time"),
    ("iso8601", f'"{NOON_S}"', "bad_time"),
    ("s", f"{NOON_S}", ""),
    ("s", f"{NOON_S}.0", ""),
    ("s", f'"{NOON_S}"', ""),
    ("s", f'" {NOON_S}.25"', ""),
    ("s", '"1.7723664e9"', ""),
    ("ms", f'"{NOON_S}000"', ""),
    ("ms", '"1.7723664E+12"', ""),
    ("us", f'"{NOON_S}000000"', ""),
    ("ns", f'"{NOON_S}000000000"', ""),
    ("ns", f"{NOON_S}000000000", ""),
    ("s", f'"{NOON}"', "bad_time"),
    ("s", '"1_772_366_400"', "bad_time"),
    ("s", "1e400", "bad_time"),
    ("s", "true", "bad_time"),
    ("s", "null", "null"),
]


@pytest.mark.parametrize("form", ["iso8601", "s", "ms", "us", "ns"])
def test_times(tmp_path: Path, form: str) -> None:
    """JSON and CSV read the same time, and name the same reason."""
    of_form = [(written, reason) for one, written, reason in TIMES if one == form]
    for name in ("t.ndjson", "t.csv"):
        times = [one for one in of_form if name == "t.ndjson" or one[0] not in ("true", "null")]
        content = lines_of(*(event(at=written) for written, _ in times))
        if name == "t.csv":
            content = "".join(["id,at\n", *(f"1,{time.strip(chr(34))}\n" for time, _ in times)]).encode()
        refused = Counter(reason for _, reason in times if reason)
        expected = Counts(len(times) - sum(refused.values()), refused=refused)
        assert counted(tmp_path, name, content, form=form) == expected


ROWS = [f"2026-03-01T{hour:02}:00:00Z" for hour in range(20)]


@pytest.mark.parametrize(
    ("content", "total"),
    [
        ("id,at,k\n" + "".join(f'{n},{at},"one\ntwo"\n' for n, at in enumerate(ROWS)), 20),
        ("id,at,k\r\n" + "".join(f'{n},{at},"one\r\ntwo"\r\n' for n, at in enumerate(ROWS)), 20),
        ("k,at\n" + "".join(f'"hello\n{n},{at}\nbye",{at}\n' for n, at in enumerate(ROWS)), 20),
        ("k,at\n" + "".join(f'"a ""b""\n\n\n,c",{at}\n' for at in reversed(ROWS)), 20),
        ("at,k\n" + "".join(f'{at},"one\ntwo"\n' for at in ROWS).rstrip(), 20),
        ("at,k\n" + "".join(f'{at},"open\n' for at in ROWS), 0),
        (f'at,k\n{ROWS[0]},"open\n{ROWS[1]},x\n{ROWS[2]},"y"\n{ROWS[3]},z\n', 3),
        (f'at,k\n{ROWS[0]},x\n{ROWS[1]},"open\n{ROWS[2]},y', 2),
        (f'at,k\n{ROWS[0]},5" disk\n{ROWS[1]},7" disk\n', 2),
        (f"at,k\r\n{ROWS[0]},a\r\n\r\n  \n{ROWS[1]},b", 2),
        (f"\ufeffat,k\n{ROWS[0]},a\n\ufeff{ROWS[1]},b\n", 2),
        (f"at,k\n\0\0\0{ROWS[0]},a\n\0\0\0\n{ROWS[1]},b\n", 2),
        (f"at,k\n{ROWS[0]},a,\n{ROWS[1]}\n{ROWS[2]},b\n", 1),
        (f"at,k\n{ROWS[0]},a\x0cb\n{ROWS[1]},a\u2028b\n{ROWS[2]},a\rb\n", 3),
    ],
)
def test_rows_of_a_replayed_csv_file(tmp_path: Path, content: str, total: int) -> None:
    """Rows are those that CSV readers see, and a damaged row takes no other row with it."""
    (tmp_path / "r.csv").write_bytes(content.encode())
    assert count(tmp_path, one=stream("r.csv"))["one"].total == total
    header, _, _ = content.removeprefix("\ufeff").partition("\n")
    plan = tmp_path / "plan"  # a list whose second file has its columns in another order
    plan.mkdir()
    (plan / "l-1.csv").write_text(",".join(reversed(header.strip().split(","))) + "\n")
    (plan / "l-2.csv").write_bytes(content.encode())
    assert count(plan, one=stream("l-*.csv", source={"format": "csv"}))["one"].total == total


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ("at,k,k", "a,b", "the header line has the column k 2 times; rename all but one"),
        ("at,at,k", "a,b", "the header line has the column at 2 times; rename all but one"),
        ("at, k,k ", "a,b", "the header line has the column k 2 times; rename all but one"),
        ("at,k, k", "a,b", None),
        ("at, k ,x", "a,b", None),
        ('"at","k","x"', "a,b", None),
        ("at,k,x,x", "a,b,c", None),
        ("at,k,,", "a,b,c", None),
        ("at,K,x", "a,b", "the header line has no column k"),
        ("at,k,caf\udce9", "a,b", None),
        (
            "at,k\udce9",
            "a",
            "the header line has no column k; .*; its header is not UTF-8: write it as UTF-8",
        ),
        ("at;k;x", "a;b", "its columns are separated by ';'; separate them by commas"),
        ("at\tk", "a", "its columns are separated by tabs; separate them by commas"),
        (f"{NOON},a", "a", "its first line looks like an event"),
        ("at,x", "a", "the header line has no column k"),
        ('at,k,"long\nname"', "a,b", "its header has a line break in quotes; write it in one line"),
    ],
)
def test_columns(tmp_path: Path, header: str, row: str, said: str | None) -> None:
    content = f"{header}\n{NOON},{row}\n".encode(errors="surrogateescape")
    keys = {"keys": {"field": "k", "list": ["a", "b"]}}
    if said is None:
        assert counted(tmp_path, "c.csv", content, **keys).cells == {"a": 1}
    else:
        with pytest.raises(OperatorError, match=f"c.csv: .*{said}"):
            counted(tmp_path, "c.csv", content, **keys)


@pytest.mark.parametrize(
    ("event", "path"),
    [
        ({"log.level": "error"}, "log.level"),
        ({"log": {"level": "error"}}, "log.level"),
        ({"attributes": {"http.request.method": "error"}}, "attributes.http.request.method"),
        ({"a": "x", "a.b": "error"}, "a.b"),
        ({"@type": "error"}, "@type"),
    ],
)
def test_names(tmp_path: Path, event: dict[str, Any], path: str) -> None:
    """A key, a condition, a user and a time are read by the same names."""
    content = lines_of(event)
    keys = {"field": path, "list": ["error", "info"]}
    user = {"unit": {"user": path, "max_events": 1}}
    accept = {"accept": "measured again"}
    (tmp_path / "n.ndjson").write_bytes(content)
    (tmp_path / "t.ndjson").write_bytes(content.replace(b'"error"', f'"{NOON}"'.encode()))
    found = count(
        tmp_path,
        key=stream("n.ndjson", keys=keys),
        condition=stream("n.ndjson", where={path: "error"}, privacy=accept),
        user=stream("n.ndjson", privacy=user | accept),
        time=stream("t.ndjson", field=path),
    )
    assert found["key"].cells == {"error": 1}
    assert [found[name].total for name in ("condition", "user", "time")] == [1, 1, 1]


def test_other_columns_of_latin_1_cost_no_row(tmp_path: Path) -> None:
    rows = "".join(f"{n},{NOON},{'Café' if n % 4 == 0 else 'x'}\n" for n in range(20))
    found = counted(
        tmp_path, "e.csv", f"id,at,name\n{rows}".encode("latin-1"), keys={"field": "name", "list": ["x"]}
    )
    assert (found.total, found.cells, found.refused) == (20, {"x": 15, "other": 5}, {})


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_key_with_a_line_break_is_the_same_key_in_csv(tmp_path: Path, end: str) -> None:
    rows = "".join(f'{at},"one{end}two"{end}' for at in ROWS)
    (tmp_path / "r.csv").write_bytes(f"at,k{end}{rows}".encode())
    keys = {"field": "k", "list": ["one\ntwo"], "other": True}
    counted = count(tmp_path, one=stream("r.csv", keys=keys))["one"]
    assert counted.cells == {"one\ntwo": len(ROWS)}
