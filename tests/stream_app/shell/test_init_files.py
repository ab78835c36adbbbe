"""``stream-app init`` takes files of any shape that the service counts, and names other shapes."""

from __future__ import annotations

import gzip
import os
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_app.shell.commands import main
from stream_app.shell.samples.findings import read_sample
from tests.stream_app.shell.initial import ANSWERS, counted, folder, init, written
from tests.stream_app.shell.no_events import NO_EVENTS

pytestmark = pytest.mark.slow

__all__ = ["folder"]
INSTANTS = [f"2026-03-{1 + n:02d}T{n:02d}:07:00Z" for n in range(20)]
PANDAS = ",at,k,amount\n" + "".join(f"{n},{at},a,{n}\n" for n, at in enumerate(INSTANTS))
LINES = [f'{{"at": "{at}", "k": "a", "n": {n}}}' for n, at in enumerate(INSTANTS)]
NULS = bytes(300)
SECONDS = [1_772_323_200 + 3_607 * n for n in range(20)]


def csv(header: str, row: str, end: str = "\n", last: str = "\n") -> str:
    """Return a file of CSV. Args: row, with {n} and {at}; end, of a line; last, of the last line."""
    rows = [row.format(n=n, at=at, s=SECONDS[n]) for n, at in enumerate(INSTANTS)]
    return end.join([header, *rows]) + last


WIDE = ",".join(f"c{n}" for n in range(300))
FIRST_NINE, OTHERS = "\n".join(LINES[:9]).encode(), "\n".join(["", *LINES[9:]]).encode()
SHAPES: dict[
    str, tuple[str, str | bytes, str]
] = {  # of files with 20 events: name, content, field of the time
    "the index column of pandas": ("e.csv", PANDAS, "at"),
    "a trailing comma": ("e.csv", csv("id,at,k,", "{n},{at},a,"), "at"),
    "names that begin with a digit": ("e.csv", csv("2fa,at,3", "{n},{at},a"), "at"),
    "names that are numbers": ("e.csv", csv("0,1,2", "{n},{at},a"), "1"),
    "names that are dates": ("e.csv", csv("at,2024-01-01,2024-02-01", "{at},1,2"), "at"),
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
    "a year long ago": ("e.csv", csv("born,k", "1901-03-02T10:00:{n:02d}Z,a"), "born"),
    "gzip": ("e.ndjson.gz", gzip.compress("\n".join(LINES).encode()), "at"),
    "gzip of pandas": ("E.CSV.GZ", gzip.compress(PANDAS.encode()), "at"),
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
    year = 1901 if shape == "a year long ago" else 2026
    span = {"first": f"{year}-03-01", "to": f"{year}-03-22", "bin": "1d"}
    made = init(**ANSWERS | span | {"events": name, "time": field, "zone": zone})
    assert made.exit_code == 0, made.output
    checked = CliRunner().invoke(main, ["check-config", "--config", "stream-app.yaml"])
    assert checked.exit_code == 0, checked.output
    assert counted(tmp_path) == 20


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *NO_EVENTS,
        ("e.tsv", csv("at\tk", "{at}\ta"), "separated by tabs; separate them by commas"),
        ("e.json", '{\n  "at": 1\n}\n', "no line with a JSON object"),
        ("e.csv", '{"seen": \n', "no line with a JSON object"),
        ("e.csv", NULS * 99 + b"\n" + PANDAS.encode(), "it is not text"),
        ("e.parquet", b"PAR1\0\0", "it is not text"),
        ("e.bin", b"\x89PNG\r\n\x1a\n" + bytes(99), "nor a header of CSV in UTF-8"),
        ("e.json", '{"Records": [{"at": "2026-03-01T00:00:00Z"}]}\n', "those in lists are not seen"),
        ("e.log", "GET / 200\nGET / 404\n", "none of the fields"),
        ("e.csv", b"\xef\xbb\xbf" + b"seen" * (1 << 18), "its first line is longer than 1,048,576 bytes"),
        ("e.csv", "seen,ip\n01.05.2026 04:14,10.0.0.1\n", "seen looks like a time; write the times so"),
        (
            "e.csv",
            '{"a": 1}\n{"a": 2}\n',
            "none of the fields a holds times in a form that is read",
        ),
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
    sample = read_sample(written(folder))
    assert sample is not None
    assert (len(sample.positions), len(sample.refused)) == (20, 1)  # the hole is a record of its own
