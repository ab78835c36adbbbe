"""``stream-app init`` writes a configuration that reads the user's events, and tells nothing about them."""

from __future__ import annotations

import gzip
import os
import re
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_app.config import StreamSettings, load, load_text
from stream_app.core.instants import parse_instant
from stream_app.shell.capped import file_sample
from stream_app.shell.commands import main
from stream_app.shell.init import proposals
from stream_app.shell.init.answers import Answers, Counted, read_bin, read_keys
from stream_app.shell.init.configuration import configuration
from stream_app.shell.init.questions import Questions
from stream_app.shell.init.sample import sample_of
from stream_app.shell.processes import INTERRUPTED
from stream_app.sources.decode import TimeField
from tests.stream_app.counted import counts_of
from tests.terminal import CTRL_C, in_terminal

ANSWERS = {
    "events": "visits.csv",
    "time": "seen",
    "first": "2026-01-01",
    "user": "none",
    "count": "all",
    "epsilon": "1",
    "bin": "1h",
}
HEADER = "seen,visitor,town,spent"
ROWS = [f"2026-01-05T{n % 24:02d}:00:07Z,vera{n:04d},Xanten{n % 3},{n % 7}.25" for n in range(60)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, with a file of events."""
    (tmp_path / "visits.csv").write_text("\n".join([HEADER, *ROWS]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(**answers: str | None) -> Result:
    options = [
        f"--{name.replace('_', '-')}={answer}" for name, answer in answers.items() if answer is not None
    ]
    return CliRunner().invoke(main, ["init", *options])


def counted(folder: Path) -> int:
    """Return how many events the written configuration counts, with so little noise that it is exact."""
    text = (folder / "stream-app.yaml").read_text()
    exact = text.replace("epsilon: 1 ", "not_private: true\n      epsilon: 1.0e9 ")
    [counts] = counts_of(load_text(exact, folder / "stream-app.yaml", {})).values()
    return counts.total


def written(folder: Path) -> StreamSettings:
    (stream,) = load(folder / "stream-app.yaml", {}).streams
    return stream


def test_answers_become_a_configuration_that_reads_the_file(folder: Path) -> None:
    made = init(**ANSWERS)
    assert made.exit_code == 0, made.output
    assert "What readers get" in made.output
    assert made.output.endswith("stream-app doctor --config stream-app.yaml\n")
    stream = written(folder)
    declared = stream.declared
    assert (stream.name, declared.time.field, declared.time.format) == ("visits", "seen", "iso8601")
    assert (declared.privacy.epsilon, declared.time.bin_us) == (Fraction(1), 3_600_000_000)
    assert declared.privacy.per_user is None
    sample = file_sample(stream)
    assert sample is not None
    assert (len(sample.positions), len(sample.refused)) == (len(ROWS), 0)


def test_a_byte_order_mark_is_no_part_of_a_column(folder: Path) -> None:
    """Excel writes the mark and CRLF into its "CSV UTF-8"."""
    (folder / "visits.csv").write_text("\r\n".join([HEADER, *ROWS, ""]), encoding="utf-8-sig", newline="")
    made = init(**ANSWERS)
    assert made.exit_code == 0, made.output
    sample = file_sample(written(folder))
    assert sample is not None
    assert (len(sample.positions), len(sample.refused)) == (len(ROWS), 0)
    checked = CliRunner().invoke(main, ["doctor", "--config", "stream-app.yaml"])
    assert "can be read" in checked.output
    assert "no column" not in checked.output


def test_a_byte_order_mark_is_no_part_of_an_event(folder: Path) -> None:
    event = '{"seen": "2026-01-05T00:00:00Z"}\n'
    (folder / "visits.ndjson").write_text(2 * event, encoding="utf-8-sig")
    made = init(**ANSWERS | {"events": "visits.ndjson"})
    assert made.exit_code == 0, made.output
    sample = file_sample(written(folder))
    assert sample is not None
    assert (len(sample.positions), len(sample.refused)) == (2, 0)


def test_person_keys_and_sum_are_declared_as_answered(folder: Path) -> None:
    many = {"user": "visitor", "max_events": "5", "count": "sum of spent by town"}
    made = init(**ANSWERS | many | {"keys": "Ulm, NO,null", "range": "0 to 12.5"})
    assert made.exit_code == 0, made.output
    assert made.output.endswith("stream-app plan --config stream-app.yaml --caps visits.csv\n")
    declared = written(folder).declared
    assert declared.privacy.per_user is not None
    assert (declared.privacy.per_user.field, declared.privacy.per_user.caps.max_events) == ("visitor", 5)
    assert declared.keys is not None
    assert (declared.keys.field, declared.keys.names) == ("town", ("Ulm", "NO", "null"))
    assert declared.amounts is not None
    assert (declared.amounts.low, declared.amounts.high, declared.amounts.unit) == (
        Fraction(0),
        Fraction(25, 2),
        Fraction(1, 100),
    )


def test_without_a_terminal_all_missing_answers_are_named_in_one_line(folder: Path) -> None:
    refused = init(events="visits.csv", epsilon="1")
    assert refused.exit_code == 2
    [line] = refused.output.splitlines()
    assert line.endswith(
        "--time seen --first 2026-01-01T00:00:00Z --user visitor --max-events 10 --count all --bin 1h"
    )
    assert [path.name for path in folder.iterdir()] == ["visits.csv"]


def test_list_of_keys_and_range_are_never_proposed(folder: Path) -> None:
    by = init(**ANSWERS | {"count": "by town"})
    assert by.output.splitlines()[-1].endswith("proposals: --keys ...")
    total = init(**ANSWERS | {"count": "sum of spent"})
    assert total.output.splitlines()[-1].endswith("proposals: --range ...")


def test_no_value_of_an_event_is_shown_or_written(folder: Path) -> None:
    many = {"user": "visitor", "max_events": "5", "count": "by town", "keys": "Ulm"}
    made = init(**ANSWERS | many)
    assert made.exit_code == 0
    said = made.output + (folder / "stream-app.yaml").read_text()
    assert not [value for row in ROWS for value in row.split(",")[:3] if value in said]


@pytest.mark.parametrize("there", ["file", "dangling link"])
def test_an_existing_file_is_never_changed(folder: Path, there: str) -> None:
    place = folder / "stream-app.yaml"
    if there == "file":
        place.write_text("mine")
    else:
        place.symlink_to("nowhere")
    refused = init(**ANSWERS)
    assert refused.exit_code == 2
    assert "is there already and is not changed" in refused.output
    assert place.is_symlink() or place.read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["stream-app.yaml", "visits.csv"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"events": "absent.csv"}, "absent.csv is not there"),
        ({"events": "topic:a b"}, "is not a topic name"),
        ({"time": "town"}, "--time town: the events have no times in town"),
        ({"time": "sen"}, "no event of the sample has the field sen; they have seen, visitor, town, spent"),
        ({"time": "seen in ms"}, "they look like iso8601"),
        ({"first": "2026"}, "must be an instant such as"),
        ({"first": "2030-01-01"}, "so none would count"),
        ({"user": "nobody"}, "no event of the sample has the field nobody"),
        ({"user": "visitor", "max_events": "0"}, "must be a whole number above 0"),
        ({"count": "town"}, "must be: all, by FIELD, sum of FIELD, or sum of FIELD by FIELD"),
        ({"count": "by town", "keys": "a,a"}, "must be different keys"),
        ({"count": "sum of spent", "range": "9 to 3"}, "the smaller one first"),
        ({"epsilon": "21"}, "must be a number above 0 and at most 20"),
        ({"bin": "10"}, "must be a duration with its unit"),
        ({"name": "My Shop"}, "is not a name"),
        ({"count": "by town", "keys": "other"}, "which is the key of all others"),
    ],
)
def test_an_answer_that_cannot_be_used_gets_one_line(
    folder: Path, changed: dict[str, str], said: str
) -> None:
    refused = init(**ANSWERS | changed)
    assert refused.exit_code == 2
    [line] = refused.output.splitlines()
    assert re.search(said, line)
    assert [path.name for path in folder.iterdir()] == ["visits.csv"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"\xef\xbb\xbf" + b"seen" * (1 << 18), "its first line is longer than 1,048,576 bytes"),
        (b"\xef\xbb\xbf", "it is empty"),
        (b'[{"seen": 1}]', "one JSON array"),
        (b"PAR1\0\0", "it is not text"),
        (b"seen;town\n1;2\n", "separated by ';'"),
        (b"2026-01-05T00:00:00Z,1\n", "looks like an event"),
        (b"seen,town\n", "a header line and no event"),
        (b'{"seen": \n', "no line with a JSON object"),
        (b"seen,ip\n01.05.2026 04:14,10.0.0.1\n", "since 1970; seen looks like a time; write the times so"),
        (b'{"a": 1}\n{"a": 2}\n', "none of the fields a holds times in a form that is read: iso8601 "),
    ],
)
def test_a_file_that_cannot_be_counted_gets_one_line(folder: Path, content: bytes, said: str) -> None:
    (folder / "visits.csv").write_bytes(content)
    refused = init(**ANSWERS)
    assert refused.exit_code == 2
    [line] = refused.output.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("lines", "proposed"),
    [
        (
            ['{"meta": {"ts": 1767571200}, "uid": "a"}'],
            "--time meta.ts --first 2026-01-01T00:00:00Z --user uid",
        ),
        (
            ['{"n": 3, "createdAt": 1767571200000}'],
            "--time createdAt --first 2026-01-01T00:00:00Z --user none",
        ),
        (['{"updated_at": 1767571200, "at": 1767571200}'], "--time at "),
        (
            ['{"at": "2026-01-05T00:00:00+01:00"}'] * 49 + ['{"at": "1999-01-05T00:00:00Z"}'],
            "--first 2026-01-01",
        ),
        (
            [f'{{"at": 1767571200, "customer": "c{n % 12}"}}' for n in range(96)],
            "--user customer --max-events 10",
        ),
        ([f'{{"at": 1767571200, "customer": "{n % 2}"}}' for n in range(96)], "--user none"),
        (["broken", '{"at": null}', *['{"at": "2026-01-05T00:00:00Z"}'] * 9], "--time at"),
    ],
)
def test_proposals_come_from_names_and_formats(folder: Path, lines: Sequence[str], proposed: str) -> None:
    (folder / "a-2026.jsonl.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    assert proposed in init(events="a-*.jsonl").output


def test_questions_at_a_terminal_and_enter_take_the_proposals(folder: Path) -> None:
    (folder / "german.txt").write_text("seen;town\n1;2\n")
    with in_terminal([sys.executable, "-m", "stream_app", "init"], folder) as terminal:
        terminal.answer("events [visits.csv]:", "visit.csv")
        terminal.await_text("visit.csv is not there")
        terminal.answer("events [visits.csv]:", "german.txt")
        terminal.await_text("separated by ';'")
        terminal.answer("events [visits.csv]:", "visits.csv")
        terminal.answer("time [seen]:", "town")
        terminal.await_text("the events have no times in town")
        terminal.answer("time [seen]:")
        terminal.answer("still grows [no]:", "perhaps")
        terminal.await_text("must be yes or no")
        terminal.answer("still grows [no]:")
        terminal.answer("from [2026-01-01T00:00:00Z]:", "now")
        terminal.await_text("must be an instant such as 2026-01-01T00:00:00Z\n")
        terminal.answer("from [2026-01-01T00:00:00Z]:")
        terminal.answer("until [2026-02-01T00:00:00Z]:")
        terminal.answer("person [visitor]:", "none")
        terminal.await_text("possible: by town, by spent\n   possible: sum of spent")
        terminal.answer("count [all]:")
        terminal.answer("epsilon [1]:", "0.5")
        terminal.answer("length of a bin [1h]:")
        assert terminal.status() == 0
    assert written(folder).declared.privacy.epsilon == Fraction(1, 2)


def test_ctrl_c_leaves_nothing_behind(folder: Path) -> None:
    with in_terminal([sys.executable, "-m", "stream_app", "init"], folder) as terminal:
        terminal.answer("events [visits.csv]:")
        terminal.await_text("time [seen]:")
        terminal.type(CTRL_C)
        terminal.await_text("nothing was written")
        assert terminal.status() == INTERRUPTED
    assert [path.name for path in folder.iterdir()] == ["visits.csv"]


def test_a_text_that_comes_back_is_asked_about(folder: Path) -> None:
    rows = [f"2026-01-05T{n % 24:02d}:00:07Z,card{n % 20},{n}" for n in range(60)]
    (folder / "visits.csv").write_text("\n".join(["seen,card,spent", *rows]) + "\n")
    with in_terminal([sys.executable, "-m", "stream_app", "init"], folder) as terminal:
        terminal.answer("events [visits.csv]:")
        terminal.answer("time [seen]:")
        terminal.answer("still grows [no]:", "yes")
        terminal.answer("from [2026-01-01T00:00:00Z]:")
        terminal.await_text("values come back in: card.")
        terminal.await_text("person [none]:")
        terminal.type(CTRL_C)
        assert terminal.status() == INTERRUPTED


def test_times_without_an_offset_need_their_zone(folder: Path) -> None:
    (folder / "visits.csv").write_text("seen,town\n2026-01-05 10:00:00,Ulm\n2026-01-05T10:00:00.25,Ulm\n")
    assert init(**ANSWERS).output.endswith("--zone ...\n")
    assert "is not a time zone" in init(**ANSWERS | {"zone": "Ulm"}).output
    made = init(**ANSWERS | {"zone": "Europe/Berlin"})
    assert made.exit_code == 0, made.output
    stream = written(folder)
    assert (stream.declared.time.format, stream.declared.time.zone) == ("iso8601", "Europe/Berlin")
    sample = file_sample(stream)
    assert sample is not None
    assert sample.columns["seen"].tolist() == [1_767_603_600_000_000, 1_767_603_600_250_000]


def test_zone_belongs_to_the_field_that_is_chosen(folder: Path) -> None:
    rows = [f"2026-01-05T09:0{n}:00Z,2026-01-05 10:00:0{n},{1_767_571_200 + n}" for n in range(5)]
    (folder / "visits.csv").write_text("\n".join(["created,seen,epoch", *rows]) + "\n")
    assert init(**ANSWERS).output.endswith("--zone ...\n")
    zone = {"zone": "Europe/Berlin"}
    refused = init(**ANSWERS | zone | {"time": "epoch"}).output
    assert "times in epoch are read as s, which has no zone; leave it out" in refused
    made = init(**ANSWERS | zone)
    assert made.exit_code == 0, made.output
    stream = written(folder)
    assert (stream.declared.time.field, stream.declared.time.zone) == ("seen", "Europe/Berlin")
    sample = file_sample(stream)
    assert sample is not None
    assert sample.columns["seen"].tolist()[0] == 1_767_603_600_000_000


INSTANTS = [f"2026-03-{1 + n:02d}T{n:02d}:07:00Z" for n in range(20)]
PANDAS = ",at,k,amount\n" + "".join(f"{n},{at},a,{n}\n" for n, at in enumerate(INSTANTS))
LINES = [f'{{"at": "{at}", "k": "a", "n": {n}}}' for n, at in enumerate(INSTANTS)]
NULS = bytes(300)
SECONDS = [1_772_323_200 + 3_607 * n for n in range(20)]


def csv(header: str, row: str, end: str = "\n", last: str = "\n") -> str:
    """Return a file of CSV. Args: row, with {n} and {at}; end, of a line; last, of the last line."""
    rows = [row.format(n=n, at=at, s=SECONDS[n]) for n, at in enumerate(INSTANTS)]
    return end.join([header, *rows]) + last


def marked(text: str) -> bytes:
    """Return a text as Excel writes it."""
    return text.encode("utf-8-sig")


WIDE = ",".join(f"c{n}" for n in range(300))
FIRST_NINE, OTHERS = "\n".join(LINES[:9]).encode(), "\n".join(["", *LINES[9:]]).encode()
SHAPES: dict[
    str, tuple[str, str | bytes, str]
] = {  # of files with 20 events: name, content, field of the time
    "the index column of pandas": ("e.csv", PANDAS, "at"),
    "a trailing comma": ("e.csv", csv("id,at,k,", "{n},{at},a,"), "at"),
    "names that begin with a digit": ("e.csv", csv("2fa,at,3", "{n},{at},a"), "at"),
    "names that are numbers": ("e.csv", csv("0,1,2", "{n},{at},a"), "1"),
    "a name twice": ("e.csv", csv("id,at,k,k", "{n},{at},a,b"), "at"),
    "Excel's mark and CRLF": ("e.csv", csv("at,k", "{at},ü", "\r\n").encode("utf-8-sig"), "at"),
    "quotes": ("e.csv", csv('"at","k, l"', '"{at}","a, b"'), "at"),
    "spaces around a name": ("e.csv", csv(" at ,k", "{at},a"), "at"),
    "no last line end": ("e.CSV", csv("at,k", "{at},a", last=""), "at"),
    "commas in .tsv": ("e.tsv", csv("at,k", "{at},a"), "at"),
    "JSON lines in .csv": ("e.csv", "\n".join(LINES), "at"),
    "seconds as text": ("e.csv", csv("at,k", "{s},a"), "at"),
    "milliseconds as text": ("e.csv", csv("at,k", "{s}000,a"), "at"),
    "seconds with a fraction": ("e.csv", csv("at,k", "{s}.25,a"), "at"),
    "local times": ("e.csv", csv("at,k", "2026-03-01 10:00:{n:02d},a"), "at"),
    "line breaks in quotes": ("e.csv", csv("at,text", '{at},"one\nline"'), "at"),
    "Latin-1": ("e.csv", csv("at,größe", "{at},ü").encode("latin-1"), "at"),
    "names with dots": ("e.ndjson", "".join(f'{{"event.at": "{at}"}}\n' for at in INSTANTS), "event.at"),
    "numbers as text": ("e.ndjson", "".join(f'{{"at": "{s}000"}}\n' for s in SECONDS), "at"),
    "lower-case letters": ("e.csv", csv("at,k", "2026-03-02t10:00:{n:02d}z,a"), "at"),
    "days": ("e.csv", csv("day,k", "2026-03-02,a"), "day"),
    "JSON with mark and CRLF": ("e.ndjson", "\r\n".join(LINES).encode("utf-8-sig"), "at"),
    "nested JSON": ("e.json", "".join(f'{{"m": {{"t": {s}.5}}}}\n' for s in SECONDS), "m.t"),
    "gzip": ("e.ndjson.gz", gzip.compress("\n".join(LINES).encode()), "at"),
    "gzip of pandas": ("e.csv.gz", gzip.compress(PANDAS.encode()), "at"),
    "a broken line": ("e.ndjson", FIRST_NINE + b"\nlost" + OTHERS, "at"),
    "a hole": ("e.ndjson", FIRST_NINE + NULS + OTHERS, "at"),
    "a hole at the start": ("e.ndjson", NULS + b"\n" + FIRST_NINE + OTHERS, "at"),
    "names that YAML would misread": ("e.csv", csv("at,a b,k:#,'x", "{at},1,2,3"), "at"),
    "a name that looks like an answer": ("e.csv", csv("time in ms,k", "{at},a"), "time in ms"),
    "many columns": ("e.csv", csv(f"at,{WIDE}", f"{{at}},{WIDE}"), "at"),
    "a name with spaces": ("my clicks (1).csv", PANDAS, "at"),
    "a name with signs": ("a=b,c;d.csv", PANDAS, "at"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_of_any_shape_is_counted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    name, content, field = SHAPES[shape]
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    monkeypatch.chdir(tmp_path)
    zone = "UTC" if shape in ("days", "local times") else None
    span = {"first": "2026-03-01", "to": "2026-03-22", "bin": "1d"}
    made = init(**ANSWERS | span | {"events": name, "time": field, "zone": zone})
    assert made.exit_code == 0, made.output
    checked = CliRunner().invoke(main, ["check-config", "--config", "stream-app.yaml"])
    assert checked.exit_code == 0, checked.output
    assert counted(tmp_path) == 20


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e.csv", csv("at;k", "{at};a"), "separated by ';'; separate them by commas"),
        ("e.tsv", csv("at\tk", "{at}\ta"), "separated by tabs; separate them by commas"),
        ("e.csv", "\n".join(f"{at},a" for at in INSTANTS), "first line looks like an event"),
        ("e.csv", "\n".join(f"{s}000,a" for s in SECONDS), "first line looks like an event"),
        ("e.csv", "\n".join(f"a,{s}.25" for s in SECONDS), "first line looks like an event"),
        ("e.csv", csv("at,k", "{at},a").encode("utf-16"), "not UTF-8 but UTF-16"),
        ("e.csv", csv("at,k", "{at},a").encode("utf-16-le"), "not UTF-8 but UTF-16"),
        (
            "e.csv",
            csv("at,k", "{at},a").encode("utf-32"),
            "not UTF-8 but UTF-32; .* iconv -f UTF-32 -t UTF-8",
        ),
        ("e.csv", "\n" + csv("at,k", "{at},a"), "its first line is blank"),
        ("e.csv", "sep=,\n" + csv("at,k", "{at},a"), "its first line names a separator for Excel"),
        ("e.csv", csv("at,k", "{at},a", "\r", "\r"), "lines end with CR alone"),
        ("e.xlsx", b"PK\x03\x04" + bytes(99), "an archive or a spreadsheet"),
        ("e.csv", gzip.compress(PANDAS.encode()), "a file of gzip has a name that ends in .gz"),
        ("e.csv.gz", gzip.compress(b""), "it is empty"),
        ("e.csv.gz", gzip.compress(PANDAS.encode())[:-30], "cannot be decompressed"),
        ("e.json", "[\n" + ",\n".join(LINES) + "\n]\n", "it is one JSON array"),
        ("e.json", '{\n  "at": 1\n}\n', "no line with a JSON object"),
        ("e.csv", NULS * 99 + b"\n" + PANDAS.encode(), "it is not text"),
        ("e.bin", b"\x89PNG\r\n\x1a\n" + bytes(99), "nor a header of CSV in UTF-8"),
        ("e.log", "GET / 200\nGET / 404\n", "none of the fields"),
    ],
)
def test_a_file_of_another_shape_gets_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    monkeypatch.chdir(tmp_path)
    refused = init(**ANSWERS | {"events": name, "time": "at", "first": "2026-03-01"})
    assert refused.exit_code == 2, refused.output
    [line] = refused.output.splitlines()
    assert re.search(said, line)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_place_that_is_no_file_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.csv")
    (tmp_path / "logs").mkdir()
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    for events, said in (
        ("pipe.csv", "is no file; create it or correct the path"),
        ("logs", "is a directory; name its files, for example 'logs/*.csv'"),
        ("logs/*.csv", "names no file; create the first one or correct the path"),
        ("\udcff.csv", "its name is not UTF-8, as names in a configuration are; rename it"),
        ("loop.csv", "loop.csv "),
        ("x" * 300, "cannot be read (File name too long)"),
        ("nowhere/*.csv", "cannot be read (No such file or directory)"),
    ):
        refused = init(**ANSWERS | {"events": events})
        assert (refused.exit_code, len(refused.output.splitlines())) == (2, 1), refused.output
        assert said in refused.output


def test_a_large_file_with_a_hole_is_sampled_quickly(folder: Path) -> None:
    with (folder / "big.ndjson").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write("\n".join(["", *LINES, ""]).encode())
    began_s = time.monotonic()
    made = init(**ANSWERS | {"events": "big.ndjson", "time": "at", "first": "2026-03-01"})
    assert made.exit_code == 0, made.output
    assert time.monotonic() - began_s < 10
    sample = file_sample(written(folder))
    assert sample is not None
    assert (len(sample.positions), len(sample.refused)) == (20, 1)  # the hole is a record of its own


@pytest.mark.parametrize("how", ["no rights", "no longer there"])
def test_a_folder_that_cannot_be_written_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    config = Path("/proc/stream-app.yaml") if how == "no longer there" else folder / "stream-app.yaml"
    if how == "no rights":  # tests run as root, whom no rights hold back
        monkeypatch.setattr("os.access", lambda *_: False)
    refused = CliRunner().invoke(
        main, ["init", f"--config={config}", *(f"--{name}={answer}" for name, answer in ANSWERS.items())]
    )
    assert refused.exit_code == 2
    assert not isinstance(refused.exception, OSError)
    assert "cannot be written" in refused.output.splitlines()[-1]


NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("name", "last", "written_ago", "more", "is_live"),
    [
        ("e.ndjson", timedelta(hours=2), timedelta(hours=1), {}, True),
        ("e-*.ndjson", timedelta(hours=2), timedelta(hours=1), {}, True),
        ("e.ndjson", timedelta(days=300), timedelta(hours=1), {}, False),
        ("e.ndjson", timedelta(hours=2), timedelta(days=3), {}, False),
        ("e.ndjson.gz", timedelta(hours=2), timedelta(hours=1), {}, False),
        ("e.ndjson", timedelta(days=300), timedelta(hours=1), {"grows": "yes"}, True),
        ("e.ndjson", timedelta(hours=2), timedelta(hours=1), {"grows": "no"}, False),
        ("e.ndjson", timedelta(hours=2), timedelta(hours=1), {"to": f"{NOW:%Y-%m-%d}"}, False),
        ("e.ndjson", timedelta(days=300), timedelta(hours=1), {"first": "now", "grows": None}, True),
    ],
)
def test_a_file_that_no_longer_grows_is_replayed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    last: timedelta,
    written_ago: timedelta,
    more: dict[str, str],
    is_live: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    first = NOW - timedelta(days=400)
    lines = [f'{{"at": "{first:%Y-%m-%dT%H:%M:%SZ}"}}'] * 3_000  # more than the sample at the start
    lines += [f'{{"at": "{NOW - last:%Y-%m-%dT%H:%M:%SZ}"}}']
    data = ("\n".join(lines) + "\n").encode()
    file = tmp_path / name.replace("*", "1")
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    os.utime(file, (0, (NOW - written_ago).timestamp()))
    answers = ANSWERS | {"events": name, "time": "at", "first": f"{first:%Y-%m-%d}"}
    made = init(**answers | more)
    assert made.exit_code == 0, made.output
    stream = written(tmp_path)
    assert (stream.declared.source.replay is None) == is_live
    assert ("seems to grow no more" in made.output) == (not is_live and "grows" not in more)
    if not is_live:
        replay = stream.declared.source.replay
        assert replay is not None
        assert stream.declared.time.epoch_bins * stream.declared.time.bin_us == replay.to_us - replay.from_us


def test_a_followed_file_whose_rows_have_line_breaks_is_warned_of(folder: Path) -> None:
    (folder / "visits.csv").write_text(csv("seen,text", '{at},"one\nline"'))
    made = init(**ANSWERS | {"grows": "yes"})
    assert made.exit_code == 0
    assert "warning: rows with line breaks in quotes are refused where a file is followed" in made.output


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"grows": "maybe"}, "must be yes or no"),
        ({"grows": "no", "first": "now"}, "--first now: must be an instant such as 2026-01-01T00:00:00Z"),
        ({"grows": "yes", "to": "2026-02-01"}, "--to: a file that grows has no end; leave it out"),
        ({"to": "2026-01-01"}, "must be later than 2026-01-01T00:00:00Z"),
        ({"first": "2025-01-01", "to": "2025-02-01"}, "all events of the sample are later, so none would"),
        ({"events": "topic:clicks"}, "--first: belongs to a file, and a topic is followed"),
        ({"events": "topic:clicks", "first": None, "grows": "no"}, "--grows: belongs to a file"),
        ({"to": "now"}, "must be an instant such as 2026-01-01T00:00:00Z"),
        ({"to": "2026-02-01T00:30:00Z"}, "no bin of 1h begins at 2026-02-01T00:30:00Z"),
    ],
)
def test_a_range_that_cannot_be_used_gets_one_line(folder: Path, changed: dict[str, str], said: str) -> None:
    refused = init(**ANSWERS | changed)
    assert (refused.exit_code, len(refused.output.splitlines())) == (2, 1), refused.output
    assert said in refused.output


@pytest.mark.parametrize(
    ("days", "begins", "ends"),
    [
        ([*range(450)], "2025-01-01T00:00:00Z", "2026-04-01T00:00:00Z"),
        ([*range(450), -9_000], "2025-01-01T00:00:00Z", "2026-04-01T00:00:00Z"),  # one dirty time
        ([*range(450), 600], "2025-01-01T00:00:00Z", "2026-09-01T00:00:00Z"),  # far, but less than all others
        ([0] * 99 + [300], "2025-01-01T00:00:00Z", "2025-02-01T00:00:00Z"),
        ([0, 60], "2025-01-01T00:00:00Z", "2025-04-01T00:00:00Z"),
        ([16], "2025-01-01T00:00:00Z", "2025-02-01T00:00:00Z"),
        ([699], "2026-12-01T00:00:00Z", "2026-12-05T00:00:00Z"),  # at most the end of today
    ],
)
def test_the_proposed_range_has_all_months_of_the_events(days: list[int], begins: str, ends: str) -> None:
    start = datetime(2025, 1, 3, tzinfo=UTC)
    lines = [f'{{"at": "{(start + timedelta(days=day)).isoformat()}"}}'.encode() for day in days]
    sample, field = sample_of("e", "ndjson", lines), TimeField("at", "iso8601")
    now_us = parse_instant("2026-12-04T10:00:00Z")
    assert (proposals.begins(sample, field), proposals.ends(sample, field, now_us)) == (begins, ends)


@settings(max_examples=40)
@given(
    st.text(min_size=1, max_size=12),
    st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4, unique=True),
)
def test_names_and_keys_are_read_back_as_they_were(field: str, keys: list[str]) -> None:
    if "other" in keys:
        return
    answers = Answers(
        events=Path("a b.csv"),
        form="csv",
        time=TimeField("at", "ms"),
        first=None,
        to=None,
        user=None,
        max_events=0,
        counted=Counted(key="k" + field),
        keys=tuple(keys),
        span=None,
        epsilon="1",
        bin="1h",
    )
    (stream,) = load_text(configuration(answers, "a", Path("a.yaml")), Path("a.yaml"), {}).streams
    assert stream.declared.keys is not None
    assert (stream.declared.keys.field, stream.declared.keys.names) == ("k" + field, tuple(keys))


def test_a_bin_that_does_not_begin_where_counting_does_is_asked_for_again():
    read = read_bin("2026-04-01T00:00:00Z")
    assert (read("5m"), read("1d"), read_bin(None)("7m")) == ("5m", "1d", "7m")
    with pytest.raises(ValueError, match="no bin of 7m begins at 2026-04-01T00:00:00Z; take another length"):
        read("7m")


def test_an_empty_answer_is_refused_with_what_to_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    given = iter(["", "DE,FR"])
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _text: next(given))
    questions = Questions({})
    questions.at_terminal = True
    assert questions.ask("keys", "values", None, read_keys) == ("DE", "FR")
    assert "for example DE,FR" in capsys.readouterr().out
