"""check-config, doctor and a start agree: none refuses what another takes, or calls good what it refuses."""

from __future__ import annotations

import asyncio
import gzip
import json
import lzma
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stream_app.config import Settings, load, load_text
from stream_app.config.key_file import add_key
from stream_app.core.instants import format_instant
from stream_app.ports import OperatorError
from stream_app.shell.progress import Report, StreamProgress
from stream_app.shell.supervision import Service, run_service
from stream_app.wiring.checks import noise_of_this_machine
from tests.certificates import write_certificates
from tests.stream_app.shell.agreement import (
    BEGIN_S,
    CSV,
    DAY,
    JSON,
    OTHER,
    Files,
    asked,
    command,
    empty_store,
    server,
    text,
    why_refused,
    write,
)

__all__ = ["empty_store", "server"]

pytestmark = pytest.mark.redis


GOOD: dict[str, Files] = {  # a name that ends in live is of a file that is followed, others are of a replay
    "json": {"e.ndjson": JSON},
    "empty-live": {"e.ndjson": b""},
    "no-last-line-end": {"e.ndjson": JSON.rstrip()},
    "one-record": {"e.ndjson": JSON.splitlines()[0]},
    "one-record-cr": {"e.ndjson": JSON.splitlines()[0] + b"\r"},
    "crlf": {"e.csv": CSV.replace("\n", "\r\n").encode()},
    "mark": {"e.csv": CSV.encode("utf-8-sig")},
    "gzip": {"e.ndjson.gz": gzip.compress(JSON)},
    "zeros-before": {"e.ndjson": b"\0\0\0" + JSON},
    "zero-before": {"e.ndjson": b"\0" + JSON},
    "order": {"e-1.csv": CSV.encode(), "e-2.csv": OTHER.encode()},
    "quoted": {"e-1.csv": OTHER.encode(), "e-2.csv": CSV.replace("id,at,k", '"id","at","k"').encode()},
    "an-empty-one": {"e-1.csv": b"", "e-2.csv": CSV.encode()},
    "list-live": {"e-1.csv": OTHER.encode(), "e-2.csv": b""},
    "a-header-without-its-end": {"e-1.csv": CSV.encode(), "e-2.csv": b"id,at,k"},
    "a-header-without-its-end-live": {"e-1.csv": CSV.encode(), "e-2.csv": b"id,at,k"},
    "a-mark-only-live": {"e-1.csv": CSV.encode(), "e-2.csv": b"\xef\xbb\xbf", "e-3.csv": OTHER.encode()},
    "nothing-compressed-live": {"e-1.csv": CSV.encode(), "e-2.csv.gz": gzip.compress(b"")},
    "two-forms": {"e-1.ndjson.gz": gzip.compress(JSON), "e-1.ndjson.xz": lzma.compress(JSON)},
    "two-forms-live": {"e-1.ndjson": JSON, "e-1.ndjson.xz": lzma.compress(JSON)},
    "half-a-line-live": {"e.ndjson": JSON + b'{"at": "2026-03'},
}
HALF = gzip.compress(JSON)[:60]
WRONG: dict[str, tuple[Files, str]] = {
    "empty-csv": ({"e.csv": b""}, "no header line"),
    "empty-csv-live": ({"e.csv": b""}, "no header line"),
    "empty-csv-list": ({"e-1.csv": b"", "e-2.csv": b""}, "no header line"),
    "mark-only": ({"e.csv": b"\xef\xbb\xbf"}, "no header line"),
    "empty": ({"e.ndjson": b""}, "it is empty, so a replay counts nothing"),
    "utf16-csv": ({"e.csv": CSV.encode("utf-16")}, "not UTF-8 but UTF-16"),
    "utf16-csv-live": ({"e.csv": CSV.encode("utf-16")}, "not UTF-8 but UTF-16"),
    "utf16-be": ({"e.csv": CSV.encode("utf-16-be")}, "not UTF-8 but UTF-16"),
    "utf16-json": ({"e.ndjson": JSON.decode().encode("utf-16")}, "UTF-16"),
    "utf32-csv": ({"e.csv": CSV.encode("utf-32")}, "not UTF-8 but UTF-32"),
    "blank-first": ({"e.csv": b"\n" + CSV.encode()}, "its first line is blank"),
    "blank-first-live": ({"e.csv": b"\xef\xbb\xbf\r\n" + CSV.encode()}, "first line is blank"),
    "blank-first-in-a-list": (
        {"e-1.csv": CSV.encode(), "e-2.csv": b"\n" + OTHER.encode()},
        "e-2.csv: its first line is blank",
    ),
    "excel": ({"e.csv": b"sep=,\r\n" + CSV.encode()}, "separator for Excel"),
    "header-only": ({"e.csv": b"id,at,k\n"}, "no event, so a replay counts nothing"),
    "headers-only": ({"e-1.csv": b"id,at,k\n", "e-2.csv": b"at,id,k\n\n"}, "no event, so a replay counts"),
    "half-a-gzip": ({"e.ndjson.gz": HALF}, "whole file"),
    "half-a-second-gzip": ({"e-1.ndjson": JSON, "e-2.ndjson.gz": HALF[:50]}, "put a whole file there"),
    "half-a-gzip-live": ({"e.ndjson.gz": HALF}, "whole file"),
    "no-bytes-of-gzip": ({"e-1.csv": CSV.encode(), "e-2.csv.gz": b""}, "(it is empty); put a whole"),
    "no-bytes-of-gzip-live": (
        {"e-1.csv": CSV.encode(), "e-2.csv.gz": b""},
        "(it is empty); put a whole file",
    ),
    "two-forms-that-differ": (
        {"e-1.csv.gz": gzip.compress(CSV.encode()), "e-1.csv.xz": lzma.compress(OTHER.encode())},
        "e-1.csv.xz: its records are not those of ",
    ),
    "two-forms-that-differ-live": (
        {"e-1.csv": CSV.encode(), "e-1.csv.gz": gzip.compress(OTHER.encode())},
        "e-1.csv.gz: its records are not those of ",
    ),
    "no-gzip": ({"e.csv.gz": CSV.encode()}, "put a whole file there"),
    "no-column": ({"e.csv": CSV.replace("at", "on").encode()}, "no column at"),
    "no-column-in-the-second": (
        {"e-1.csv": CSV.encode(), "e-2.csv": OTHER.replace("at", "on").encode()},
        "e-2.csv: the header line has no column at",
    ),
    "semicolons": ({"e.csv": CSV.replace(",", ";").encode()}, "its columns are separated by ';'"),
    "array": ({"e.ndjson": b"[" + b", ".join(JSON.splitlines()) + b"]"}, "it is one JSON array"),
    "cr": ({"e.ndjson": JSON.replace(b"\n", b"\r")}, "CR alone"),
    "cr-csv": ({"e.csv": CSV.replace("\n", "\r").encode()}, "CR alone"),
    "not-there": ({}, "is not there"),
    "no-list-live": ({}, "or correct the path"),
    "other-words": ({"e.ndjson": b"at=1 k=a\n" * 20}, "no event of a sample has a time"),
    "no-time": ({"e.ndjson": JSON.replace(b"at", b"on")}, "no event of a sample"),
}


def placed(folder: Path, name: str, files: Files) -> Path:
    """Write files, and a configuration of a stream over them; return its path."""
    write(folder, files)
    first = next(iter(files), "e-1.ndjson" if "list" in name else "e.ndjson")
    source = "file: " + first.replace("e-1", '"e-*') + ('"' if "e-1" in first else "")
    (folder / "app.yaml").write_text(text(source if name.endswith("live") else f"{source}, {DAY}"))
    return folder / "app.yaml"


@pytest.mark.parametrize("name", GOOD)
def test_all_take_what_a_run_takes(tmp_path: Path, name: str) -> None:
    found = asked(placed(tmp_path, name, GOOD[name]))
    assert (found.check[0], found.doctor[0], found.run) == (0, 0, None), found


@pytest.mark.parametrize("name", WRONG)
def test_all_refuse_what_a_run_refuses(tmp_path: Path, name: str) -> None:
    files, said = WRONG[name]
    found = asked(placed(tmp_path, name, files), within_s=30)
    assert (found.check[0], found.doctor[0]) == (2, 2), found
    assert said in found.check[1], found.check
    assert said in found.doctor[1], found.doctor
    assert found.run is not None


CHANGED = [
    ("unchanged", JSON, True),
    ("grown", JSON + JSON, True),
    ("half-a-line-more", JSON + b'{"at": "2026-03', True),
    ("rewritten", JSON.replace(b'"a"', b'"b"') + JSON, False),
    ("one-byte-differs", JSON.replace(b"T00:00", b"T00:01"), False),
    ("truncated", JSON[: len(JSON) // 2], False),
    ("truncated-at-a-line", b"".join(JSON.splitlines(keepends=True)[:10]), False),
    ("emptied", b"", False),
]


@pytest.mark.parametrize("source", ["file: e-1.ndjson", 'file: "e-*.ndjson"'], ids=["file", "list"])
@pytest.mark.parametrize(("later", "good"), [row[1:] for row in CHANGED], ids=[row[0] for row in CHANGED])
def test_all_recognise_the_file_counted_so_far(tmp_path: Path, source: str, later: bytes, good: bool) -> None:
    write(tmp_path, {"e-1.ndjson": JSON})
    config = tmp_path / "app.yaml"
    config.write_text(text(source))
    assert why_refused(config) is None
    notes = {file: file.read_bytes() for file in (tmp_path / "state" / "sources").rglob("*.*json")}
    assert notes
    write(tmp_path, {"e-1.ndjson": later})
    for name in ("check-config", "doctor"):
        status, said = command(config, name)
        assert (status, "this is not the file counted so far; put that back" in said) == (
            (0, False) if good else (2, True)
        ), said
    assert notes == {file: file.read_bytes() for file in notes}
    assert (why_refused(config) is None) == good


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"sha256": ""}', b'{"bytes": null}', None])
def test_all_refuse_a_damaged_note_of_a_file_in_one_line(tmp_path: Path, note: bytes | None) -> None:
    write(tmp_path, {"e.ndjson": JSON})
    config = tmp_path / "app.yaml"
    config.write_text(text("file: e.ndjson"))
    assert why_refused(config) is None
    [noted] = (tmp_path / "state" / "sources").glob("*/first_bytes.json")
    noted.unlink()
    if note is None:
        noted.mkdir()
    else:
        noted.write_bytes(note)
    said = f"{noted}: it is damaged; put a copy" if note is not None else f"{noted} cannot be read"
    for name in ("check-config", "doctor"):
        status, output = command(config, name)
        assert (status, said in output) == (2, True), output
    if note is not None:
        assert said in str(why_refused(config))


@pytest.mark.parametrize("replay", [f", {DAY}", ""], ids=["replayed", "followed"])
@pytest.mark.parametrize(
    ("declared", "unit"),
    [("s", 10**3), ("ms", 1), ("us", 10**3), ("ms", 10**6), ("ns", 10**6), ("iso8601", 1)],
)
def test_times_in_another_unit_are_refused(tmp_path: Path, declared: str, unit: int, replay: str) -> None:
    """A start over a file that is followed waits for events; the commands that check it do not."""
    lines = [json.dumps({"at": (BEGIN_S + hour * 3600) * unit}) for hour in range(20)]
    write(tmp_path, {"e.ndjson": "\n".join(lines).encode() + b"\n"})
    config = tmp_path / "app.yaml"
    config.write_text(text(f"file: e.ndjson{replay}", format=declared))
    (status, checked), (doctors_status, said) = command(config, "check-config"), command(config, "doctor")
    assert (status, doctors_status) == (2, 2), said
    assert ("did you mean" in said, "did you mean" in checked) == (True, True)
    assert "20" not in checked.replace(str(tmp_path), "").replace("2026", "")
    if replay:
        assert why_refused(config) is not None


@pytest.mark.parametrize("replay", [f", {DAY}", ""], ids=["replayed", "followed"])
@pytest.mark.parametrize("wrong", [10, 19])
def test_a_file_of_which_some_times_are_in_another_unit_is_taken_with_a_warning(
    tmp_path: Path, wrong: int, replay: str
) -> None:
    times = [(BEGIN_S + n) * (1_000 if n < wrong else 1) for n in range(20)]
    write(tmp_path, {"e.ndjson": "".join(f'{{"at": {at}}}\n' for at in times).encode()})
    (tmp_path / "app.yaml").write_text(text(f"file: e.ndjson{replay}", format="s"))
    found = asked(tmp_path / "app.yaml")
    assert (found.check[0], found.doctor[0], found.run) == (0, 0, None), found
    assert "many times of a sample are implausible when read as s; did you mean ms?" in found.check[1]
    assert "did you mean ms?" in found.doctor[1]


@pytest.mark.parametrize("newest_s", [0, 86_400])
def test_a_beginning_after_every_event_is_said(tmp_path: Path, newest_s: int) -> None:
    write(tmp_path, {"e.ndjson": JSON})
    first = format_instant((BEGIN_S + 80_000 + newest_s) * 10**6 // (3_600 * 10**6) * 3_600 * 10**6)
    (tmp_path / "app.yaml").write_text(text("file: e.ndjson", time_more=f', grace: 5s, first: "{first}"'))
    for name in ("check-config", "doctor"):
        status, said = command(tmp_path / "app.yaml", name)
        assert (status, f"every event of a sample is before {first}" in said) == (0, True), said


def keys(folder: Path) -> None:
    add_key(folder / "keys.ndjson", "shop", ["a"])


def certificates(folder: Path) -> None:
    write_certificates(folder, "server")


TOPS: list[tuple[str, Callable[[Path], None] | None, str]] = [
    ("secrets: {key_file: noise}", None, "secrets.key_file: "),
    ("secrets: {key_file: noise}", lambda folder: write(folder, {"noise": b"x"}), "chmod 600"),
    ("ledger: {file: ledger}", None, "make it with stream-app new-ledger"),
    ("ledger: {file: ledger}", lambda folder: write(folder, {"ledger": b"x\n"}), "ledger"),
    ("operator: {host: 0.0.0.0, port: 9}", None, "0.0.0.0 is not loopback"),
    ("state: {dir: e.ndjson}", None, "is not a directory"),
    ("state: {dir: e.ndjson/state}", None, "is not a directory"),
    ("state: {dir: newer}", lambda folder: write(folder, {"newer/format": b"9999"}), "newer"),
]


@pytest.mark.parametrize(("top", "prepare", "said"), TOPS)
def test_files_and_directories_are_refused_by_all(
    tmp_path: Path, top: str, prepare: Callable[[Path], None] | None, said: str
) -> None:
    write(tmp_path, {"e.ndjson": JSON})
    if prepare is not None:
        prepare(tmp_path)
    (tmp_path / "app.yaml").write_text(text(f"file: e.ndjson, {DAY}", top=top))
    found = asked(tmp_path / "app.yaml")
    for words in (found.check[1], found.doctor[1], str(found.run)):
        assert said in words, found
    assert (found.check[0], found.doctor[0]) == (2, 2)


APIS = [
    ("keys: keys.ndjson", None, "api.keys: "),
    ("tls: {certificate: server.pem, key: server.key}", None, "api.tls.certificate: "),
    ("keys: keys.ndjson", keys, ""),
    ("tls: {certificate: server.pem, key: server.key}", certificates, ""),
]


@pytest.mark.parametrize(("api", "prepare", "said"), APIS)
def test_files_of_the_listener_are_refused_by_all(
    tmp_path: Path, api: str, prepare: Callable[[Path], None] | None, said: str
) -> None:
    write(tmp_path, {"e.ndjson": JSON})
    if prepare is not None:
        prepare(tmp_path)
    config = tmp_path / "app.yaml"
    config.write_text(text(f"file: e.ndjson, {DAY}").replace("api: {", f"api: {{{api}, "))
    good = not said
    assert [command(config, name)[0] for name in ("check-config", "doctor")] == [0 if good else 2] * 2
    assert all(said in command(config, name)[1] for name in ("check-config", "doctor"))
    if not good:
        with pytest.raises(OperatorError, match=said):
            asyncio.run(run_service(load(config), Quiet(), Service()))
    assert not (tmp_path / "state").exists()


class Quiet(Report):
    """A report that nobody reads."""

    def say(self, line: str) -> None: ...

    def show(self, progress: Sequence[StreamProgress]) -> None: ...


EDGE = """  b:
    source: {{file: e.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1}}
    successor_of: a
"""


def test_a_file_with_a_successor_is_good_before_and_after_its_edge(tmp_path: Path) -> None:
    """Also for the commands that ask no store. Without a begun stream, a start and all others refuse it."""
    write(tmp_path, {"e.ndjson": b""})
    config = tmp_path / "app.yaml"

    def written(first_s: int | None) -> None:
        edge = "" if first_s is None else EDGE.format(first=format_instant(first_s * 10**6))
        live = text("file: e.ndjson", format="s", time_more=", grace: 0s", more=edge)
        live = live.replace("bin: 1h, epoch: 1d", "bin: 1s, epoch: 1h")
        config.write_text(live.replace("epsilon: 1.0e9, not_private: true", "epsilon: 1"))

    written(int(time.time()) - 10)
    fresh = asked(config)
    assert "privacy.accept is missing" in fresh.check[1]
    assert (fresh.check[0], fresh.doctor[0], fresh.run is None) == (2, 2, False)
    written(None)
    assert asked(config).run is None
    edge_s = int(time.time()) + 3
    written(edge_s)
    found = asked(config)
    assert (found.check[0], found.doctor[0], found.run) == (0, 0, None), found
    while time.time() < edge_s + 1:
        time.sleep(0.1)
    for _ in range(2):
        found = asked(config)
        assert (found.check[0], found.doctor[0], found.run) == (0, 0, None), found
    for name in ("plan", "privacy"):
        assert command(config, name)[0] == 0


BESIDE = """  b:
    source: {{file: {file}, {day}}}
    time: {{field: at, format: iso8601, bin: 1h, epoch: 1d}}
    privacy: {{epsilon: 1{more}}}
"""
ONE_OF_TWO = [
    ("measured-twice", "e.ndjson", "", "streams.b.privacy.accept is missing: file:e.ndjson is already"),
    ("no-file", "f.ndjson", "", "streams.b.source.file: "),
    (
        "total",
        "g.ndjson",
        ", total: {epsilon: 0.5}",
        "streams.b.privacy.total: with its 1 epoch(s) the source",
    ),
    ("no-event", "empty.ndjson", "", "streams.b.source.file: "),
    ("accepted", "e.ndjson", ", accept: measured again", ""),
]


@pytest.mark.parametrize(
    ("file", "more", "said"), [row[1:] for row in ONE_OF_TWO], ids=[r[0] for r in ONE_OF_TWO]
)
def test_all_say_which_of_two_streams_starts(tmp_path: Path, file: str, more: str, said: str) -> None:
    write(tmp_path, {"e.ndjson": JSON, "g.ndjson": JSON[:200] + JSON, "empty.ndjson": b""})
    config = tmp_path / "app.yaml"
    config.write_text(text(f"file: e.ndjson, {DAY}", BESIDE.format(file=file, day=DAY, more=more)))
    found = asked(config)
    if not said:
        assert (found.check[0], found.doctor[0], found.run) == (0, 0, None), found
        return
    assert (found.check[0], found.doctor[0]) == (2, 2), found
    assert said in found.check[1]
    last = found.check[1].splitlines()[-1]
    assert last == f"{config}: would count: a; would not count as configured: b"
    if file != "empty.ndjson":  # a replay that is complete and has counted nothing stops no other
        assert found.run is not None
    [line] = [line for line in command(config, "doctor")[1].splitlines() if line.startswith("fail")]
    assert "streams.b" in line


def shared(release: str, more: str = "") -> Settings:
    """Return settings whose stream several workers may share."""
    return load_text(
        f"""{more}
kafka: {{bootstrap_servers: "127.0.0.1:1"}}
outputs: [{{stream: clicks, topic: counts}}]
streams:
  clicks:
    source: {{topic: clicks}}
    time: {{field: at, format: s, bin: 1m, grace: 1s, epoch: 1d}}
    tree: {{release: {release}}}
    privacy: {{epsilon: 1}}
""",
        Path("app.yaml"),
        {},
    )


def test_a_start_says_whose_noise_only_this_machine_can_read() -> None:
    said = "only workers over this state.dir can read the noise of clicks; a worker on another machine"
    assert said in str(noise_of_this_machine(shared("anticipating")))
    assert noise_of_this_machine(shared("causal")) is None
    assert noise_of_this_machine(shared("anticipating", "secrets: {key_file: noise.key}")) is None
    text_of_one = text("file: e.ndjson").replace("0.0", "0")
    assert noise_of_this_machine(load_text(text_of_one, Path("app.yaml"), {})) is None
