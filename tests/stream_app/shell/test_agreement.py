"""check-config, doctor and a start agree: none refuses what another takes, or calls good what it refuses."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from redis import Redis

from deploy.ports import free_port
from stream_app.config import Settings, load, load_text
from stream_app.config.key_file import add_key
from stream_app.core.instants import format_instant
from stream_app.ports import OperatorError
from stream_app.shell.commands import main
from stream_app.shell.progress import Report, StreamProgress
from stream_app.shell.supervision import Service, run_service
from stream_app.state.embedded import EmbeddedRedis
from stream_app.wiring.checks import noise_of_this_machine
from stream_app.wiring.workers import run_worker
from tests.certificates import write_certificates

BEGIN_S = 1_772_323_200  # 2026-03-01T00:00:00Z
DAY = 'replay: {from: "2026-03-01T00:00:00Z", to: "2026-03-02T00:00:00Z", speed: max}'
JSON = "".join(f'{{"at": "2026-03-01T{hour:02}:00:00Z", "k": "a"}}\n' for hour in range(20)).encode()
CSV = "id,at,k\n" + "".join(f"{hour},2026-03-01T{hour:02}:00:00Z,a\n" for hour in range(20))
OTHER = "id,k,at\n" + "".join(f"{hour},b,2026-03-01T{hour:02}:30:00Z\n" for hour in range(20))
Files = dict[str, bytes]
pytestmark = pytest.mark.redis


class Asked(NamedTuple):
    """What the three say. Args: run, why a run is refused, at its start or its end; None: it is not."""

    check: tuple[int, str]
    doctor: tuple[int, str]
    run: str | None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(autouse=True)
def empty_store(server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test use one server, which is empty at first."""
    with Redis.from_url(server.operator_url) as operator:
        operator.flushall()
    monkeypatch.setenv("STREAM_APP_REDIS_URL", server.worker_url)


def text(source: str, more: str = "", format: str = "iso8601", time_more: str = "", top: str = "") -> str:
    if "replay" not in source and "grace" not in time_more:
        time_more += ", grace: 5s"
    return f"""
api: {{port: {free_port()}}}
publish_every: 250ms
{top}
streams:
  a:
    source: {{{source}}}
    time: {{field: at, format: {format}, bin: 1h, epoch: 1d{time_more}}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
{more}"""


def command(config: Path, name: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, [name, "--config", str(config)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.output


def why_refused(config: Path) -> str | None:
    """Run a worker until it is refused, all replays are complete, or it counts; return why it is refused."""

    async def run() -> str | None:
        counts = asyncio.Event()
        worker = asyncio.create_task(run_worker(load(config), counts.set))
        settings = load(config)
        live = any(stream.declared.source.replay is None for stream in settings.streams)
        ready = asyncio.create_task(counts.wait())
        waited = {worker, ready} if live else {worker}
        await asyncio.wait(waited, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        if live and not worker.done():
            await asyncio.wait({worker}, timeout=0.3)
        for task in (ready, worker):
            task.cancel()
        [ended] = await asyncio.gather(worker, return_exceptions=True)
        return str(ended) if isinstance(ended, OperatorError) else None

    return asyncio.run(run())


def asked(config: Path) -> Asked:
    """Ask all three."""
    return Asked(command(config, "check-config"), command(config, "doctor"), why_refused(config))


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


GOOD = [
    ("json", {"e.ndjson": JSON}, f"file: e.ndjson, {DAY}"),
    ("live-empty", {"e.ndjson": b""}, "file: e.ndjson"),
    ("no-last-line-end", {"e.ndjson": JSON.rstrip()}, f"file: e.ndjson, {DAY}"),
    ("one-record", {"e.ndjson": JSON.splitlines()[0]}, f"file: e.ndjson, {DAY}"),
    ("one-record-cr", {"e.ndjson": JSON.splitlines()[0] + b"\r"}, f"file: e.ndjson, {DAY}"),
    ("crlf", {"e.csv": CSV.replace("\n", "\r\n").encode()}, f"file: e.csv, {DAY}"),
    ("mark", {"e.csv": CSV.encode("utf-8-sig")}, f"file: e.csv, {DAY}"),
    ("gzip", {"e.ndjson.gz": gzip.compress(JSON)}, f"file: e.ndjson.gz, {DAY}"),
    ("order", {"e-1.csv": CSV.encode(), "e-2.csv": OTHER.encode()}, f'file: "e-*.csv", {DAY}'),
    (
        "quoted",
        {"e-1.csv": OTHER.encode(), "e-2.csv": CSV.replace("id,at,k", '"id","at","k"').encode()},
        f'file: "e-*.csv", {DAY}',
    ),
    ("an-empty-one", {"e-1.csv": b"", "e-2.csv": CSV.encode()}, f'file: "e-*.csv", {DAY}'),
    ("live-list", {"e-1.csv": OTHER.encode(), "e-2.csv": b""}, 'file: "e-*.csv"'),
    ("half-a-line", {"e.ndjson": JSON + b'{"at": "2026-03'}, "file: e.ndjson"),
]


@pytest.mark.parametrize(("files", "source"), [row[1:] for row in GOOD], ids=[row[0] for row in GOOD])
def test_all_take_what_a_run_takes(tmp_path: Path, files: Files, source: str) -> None:
    write(tmp_path, files)
    (tmp_path / "app.yaml").write_text(text(source))
    found = asked(tmp_path / "app.yaml")
    assert (found.check[0], found.doctor[0], found.run) == (0, 0, None), found


WRONG = [
    ("empty-csv", {"e.csv": b""}, f"file: e.csv, {DAY}", "no header line"),
    ("empty-csv-live", {"e.csv": b""}, "file: e.csv", "no header line"),
    ("empty-csv-list", {"e-1.csv": b"", "e-2.csv": b""}, f'file: "e-*.csv", {DAY}', "no header line"),
    ("mark-only", {"e.csv": b"\xef\xbb\xbf"}, f"file: e.csv, {DAY}", "no header line"),
    ("empty", {"e.ndjson": b""}, f"file: e.ndjson, {DAY}", "it is empty, so a replay counts nothing"),
    ("utf16-csv", {"e.csv": CSV.encode("utf-16")}, f"file: e.csv, {DAY}", "not UTF-8 but UTF-16"),
    ("utf16-csv-live", {"e.csv": CSV.encode("utf-16")}, "file: e.csv", "not UTF-8 but UTF-16"),
    ("utf16-be", {"e.csv": CSV.encode("utf-16-be")}, f"file: e.csv, {DAY}", "not UTF-8 but UTF-16"),
    ("utf16-json", {"e.ndjson": JSON.decode().encode("utf-16")}, f"file: e.ndjson, {DAY}", "UTF-16"),
    ("utf32-csv", {"e.csv": CSV.encode("utf-32")}, f"file: e.csv, {DAY}", "not UTF-8 but UTF-32"),
    ("blank-first", {"e.csv": b"\n" + CSV.encode()}, f"file: e.csv, {DAY}", "its first line is blank"),
    ("blank-first-live", {"e.csv": b"\xef\xbb\xbf\r\n" + CSV.encode()}, "file: e.csv", "first line is blank"),
    (
        "blank-first-in-a-list",
        {"e-1.csv": CSV.encode(), "e-2.csv": b"\n" + OTHER.encode()},
        f'file: "e-*.csv", {DAY}',
        "e-2.csv: its first line is blank",
    ),
    ("excel", {"e.csv": b"sep=,\r\n" + CSV.encode()}, f"file: e.csv, {DAY}", "separator for Excel"),
    ("header-only", {"e.csv": b"id,at,k\n"}, f"file: e.csv, {DAY}", "no event, so a replay counts nothing"),
    (
        "headers-only",
        {"e-1.csv": b"id,at,k\n", "e-2.csv": b"at,id,k\n\n"},
        f'file: "e-*.csv", {DAY}',
        "no event, so a replay counts nothing",
    ),
    ("half-a-gzip", {"e.ndjson.gz": gzip.compress(JSON)[:60]}, f"file: e.ndjson.gz, {DAY}", "whole file"),
    (
        "half-a-second-gzip",
        {"e-1.ndjson": JSON, "e-2.ndjson.gz": gzip.compress(JSON[:500])[:60]},
        f'file: "e-*.ndjson", {DAY}',
        "put a whole file there",
    ),
    ("half-a-gzip-live", {"e.ndjson.gz": gzip.compress(JSON)[:60]}, "file: e.ndjson.gz", "whole file"),
    ("no-gzip", {"e.csv.gz": CSV.encode()}, f"file: e.csv.gz, {DAY}", "put a whole file there"),
    ("no-column", {"e.csv": CSV.replace("at", "on").encode()}, f"file: e.csv, {DAY}", "no column at"),
    (
        "no-column-in-the-second",
        {"e-1.csv": CSV.encode(), "e-2.csv": OTHER.replace("at", "on").encode()},
        f'file: "e-*.csv", {DAY}',
        "e-2.csv: the header line has no column at",
    ),
    (
        "semicolons",
        {"e.csv": CSV.replace(",", ";").encode()},
        f"file: e.csv, {DAY}",
        "its columns are separated by ';'",
    ),
    (
        "array",
        {"e.ndjson": b"[" + b", ".join(JSON.splitlines()) + b"]"},
        f"file: e.ndjson, {DAY}",
        "it is one JSON array",
    ),
    ("cr", {"e.ndjson": JSON.replace(b"\n", b"\r")}, f"file: e.ndjson, {DAY}", "CR alone"),
    ("cr-csv", {"e.csv": CSV.replace("\n", "\r").encode()}, f"file: e.csv, {DAY}", "CR alone"),
    ("not-there", {}, f"file: e.ndjson, {DAY}", "is not there"),
    ("no-list", {}, 'file: "e-*.ndjson"', "or correct the path"),
    (
        "other-words",
        {"e.ndjson": b"at=1 k=a\n" * 20},
        f"file: e.ndjson, {DAY}",
        "no event of a sample has a time",
    ),
    ("no-time", {"e.ndjson": JSON.replace(b"at", b"on")}, f"file: e.ndjson, {DAY}", "no event of a sample"),
]


@pytest.mark.parametrize(
    ("files", "source", "said"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_all_refuse_what_a_run_refuses(tmp_path: Path, files: Files, source: str, said: str) -> None:
    write(tmp_path, files)
    (tmp_path / "app.yaml").write_text(text(source))
    found = asked(tmp_path / "app.yaml")
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


@pytest.mark.parametrize(
    ("declared", "unit"),
    [("s", 10**3), ("ms", 1), ("us", 10**3), ("ms", 10**6), ("ns", 10**6), ("iso8601", 1)],
)
def test_times_in_another_unit_are_refused(tmp_path: Path, declared: str, unit: int) -> None:
    lines = [json.dumps({"at": (BEGIN_S + hour * 3600) * unit}) for hour in range(20)]
    write(tmp_path, {"e.ndjson": "\n".join(lines).encode() + b"\n"})
    (tmp_path / "app.yaml").write_text(text(f"file: e.ndjson, {DAY}", format=declared))
    found = asked(tmp_path / "app.yaml")
    assert (found.check[0], found.doctor[0], found.run is None) == (2, 2, False), found
    assert "did you mean" in found.doctor[1]
    assert "20" not in found.check[1].replace(str(tmp_path), "").replace("2026", "")


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
    assert last == f"{config}: would start: a; would not start as configured: b"
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
