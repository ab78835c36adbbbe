"""A replay gives records in order of time and cuts at closing instants. It may end at any moment."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.ports import OperatorError
from stream_app.sources import replay
from stream_app.sources.file_sequence import FileSequence
from stream_app.sources.finished_files import check_whole
from stream_app.sources.replay import ReplaySource, in_order_of_time
from tests.examples import examples
from tests.stream_app.one_source import AT, event_line, read, write_events

records = st.lists(st.integers(0, 30) | st.none(), max_size=15)  # None means a line that cannot be decoded


def lines_of(times_us: list[int | None]) -> list[bytes]:
    """Return one line for each time. All lines differ."""
    return [
        b"?%d\n" % number if time_us is None else event_line(time_us, n=number)
        for number, time_us in enumerate(times_us)
    ]


def in_order(times_us: list[int | None]) -> list[bytes]:
    """Return the lines in the order in which a replay must give them, by plain sorting."""
    keyed, last = [], -1
    for time_us, line in zip(times_us, lines_of(times_us), strict=True):
        last = last if time_us is None else time_us
        keyed.append((last, line))
    return [line for _, line in sorted(keyed, key=lambda pair: pair[0])]


def open_replay(path: Path, directory: Path, reached_us: int = 10**9) -> ReplaySource:
    """Open a replay whose clock does not move."""
    return ReplaySource(path, "ndjson", AT, directory, lambda: reached_us)


def replayed(source: ReplaySource, position: int = 0) -> list[bytes]:
    """Read all records up to the time of the replay's clock."""
    found: list[bytes] = []
    for batch in read(source, position)[0]:
        kept = list(zip(batch.positions.tolist(), batch.records, strict=True))
        refused = [(refusal.position, refusal.record) for refusal in batch.refused]
        found += [record + b"\n" for _, record in sorted([*kept, *refused])]
    return found


@examples(50)
@given(records, st.booleans(), st.integers(0, 35))
def test_records_come_in_order_of_time(times_us: list[int | None], whole: bool, instant_us: int) -> None:
    data = b"".join(lines_of(times_us))
    with TemporaryDirectory() as name:
        path = Path(name) / "events.ndjson"
        path.write_bytes(data if whole else data[:-1])
        source = open_replay(path, Path(name) / "order")
        assert replayed(source) == in_order(times_us)
        cut = asyncio.run(source.positions_at(["0"], [instant_us]))
        asyncio.run(source.close())

        # A cut lies before the first record at or after the instant. Reading stops there too.
        stopped = open_replay(path, Path(name) / "order", instant_us)
        earlier = replayed(stopped)
        asyncio.run(stopped.close())
    assert cut == {"0": [sum(map(len, earlier))]}
    keyed = [line for line in in_order(times_us) if not line.startswith(b"?")]
    early = [line for line in earlier if not line.startswith(b"?")]
    events = sorted(time_us for time_us in times_us if time_us is not None)
    assert early == keyed[: sum(time_us < instant_us for time_us in events)]


def names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


def test_a_file_in_order_is_not_copied(tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.ndjson", [1, 1, 2, 5])
    ordered = in_order_of_time(path, "ndjson", AT, tmp_path / "order")
    assert ordered.lines.stat().st_ino == path.stat().st_ino
    ordered.lines.close()


def test_the_sorted_copy_has_no_name_so_that_it_ends_with_the_process(tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.ndjson", [5, 1])
    ordered = in_order_of_time(path, "ndjson", AT, tmp_path / "order")
    copy = ordered.lines.stat()
    assert copy.st_ino != path.stat().st_ino
    assert (copy.st_nlink, copy.st_mode & 0o777) == (0, 0o600)
    assert names(tmp_path / "order") == {"replay.json"}
    assert (tmp_path / "order").stat().st_mode & 0o777 == 0o700
    ordered.lines.close()


def test_copies_that_an_earlier_version_kept_are_deleted(tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.ndjson", [5, 1])
    (tmp_path / "order").mkdir()
    for name in ("abc.sorted", "abc.index"):
        (tmp_path / "order" / name).touch()
    asyncio.run(open_replay(path, tmp_path / "order").close())
    assert names(tmp_path / "order") == {"replay.json"}


def test_a_replay_that_is_closed_holds_no_file(tmp_path: Path) -> None:
    def held() -> list[str]:
        maps = Path("/proc/self/maps").read_text().splitlines()
        files = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        return [line for line in maps + files if str(tmp_path) in line]

    path = write_events(tmp_path / "events.ndjson", [5, 1])
    source = open_replay(path, tmp_path / "order")
    assert held() != []
    asyncio.run(source.close())
    assert held() == []


def test_a_csv_copy_keeps_its_header(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(b"at,id\n7,a\n3,b\n5,c")
    source = ReplaySource(path, "csv", AT, tmp_path / "order", lambda: 10**9)
    assert replayed(source) == [b"3,b\n", b"5,c\n", b"7,a\n"]
    asyncio.run(source.close())


def test_an_empty_file_replays_without_records(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.touch()
    source = open_replay(path, tmp_path / "order")
    assert replayed(source) == []
    assert asyncio.run(source.positions_at(["0"], [10, 20])) == {"0": [0, 0]}
    asyncio.run(source.close())


def test_every_start_makes_the_same_order(tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.ndjson", [5, 1, 3, 1])
    first, second = (in_order_of_time(path, "ndjson", AT, tmp_path / "order") for _ in range(2))
    assert second.positions.tolist() == first.positions.tolist()
    assert second.times_us.tolist() == first.times_us.tolist() == [1, 1, 3, 5]
    for ordered in (first, second):
        ordered.lines.close()


def test_another_order_of_the_same_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version may read a time differently. Then old positions would mean other records."""
    path = write_events(tmp_path / "events.ndjson", [5, 1, 3])
    in_order_of_time(path, "ndjson", AT, tmp_path / "order").lines.close()
    monkeypatch.setattr(replay, "_filled", lambda times_us: times_us[::-1])
    with pytest.raises(OperatorError, match="it is unchanged, but this version reads more of its records"):
        in_order_of_time(path, "ndjson", AT, tmp_path / "order")


def test_another_file_after_a_restart_is_refused(tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.ndjson", [5, 1, 3])
    in_order_of_time(path, "ndjson", AT, tmp_path / "order").lines.close()
    write_events(path, [5, 1, 3, 4])
    with pytest.raises(OperatorError, match="not the file whose replay began"):
        in_order_of_time(path, "ndjson", AT, tmp_path / "order")


class Killed(BaseException):
    """Raised where the process is killed."""


@pytest.mark.parametrize("calls", range(1, 6))
def test_a_start_that_is_killed_leaves_a_directory_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """The process dies at its n-th write to the disk, before the write takes effect; then it starts again."""
    times_us: list[int | None] = [9, 4, None, 7, 1]
    path = tmp_path / "events.ndjson"
    path.write_bytes(b"".join(lines_of(times_us)))
    done = 0

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal done
            done += 1
            if done == calls:
                raise Killed
            return real(*args)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", mortal(os.fsync))
        patch.setattr(Path, "replace", mortal(Path.replace))
        try:
            in_order_of_time(path, "ndjson", AT, tmp_path / "order").lines.close()
        except Killed:
            assert not (tmp_path / "order" / "replay.json").exists() or calls == 3
        else:
            assert calls > 3  # writes of the note: content, name, directory
    source = open_replay(path, tmp_path / "order")
    assert replayed(source) == in_order(times_us)
    asyncio.run(source.close())


def test_a_list_of_files_is_replayed_as_one(tmp_path: Path) -> None:
    write_events(tmp_path / "b-1.ndjson", [30, 10])
    (tmp_path / "b-1.ndjson.gz").write_bytes(gzip.compress((tmp_path / "b-1.ndjson").read_bytes().rstrip()))
    (tmp_path / "b-1.ndjson").unlink()
    second = write_events(tmp_path / "b-2.ndjson", [5, 20])
    second.write_bytes(BOM_UTF8 + second.read_bytes())
    source = open_replay(tmp_path / "b-*.ndjson", tmp_path / "notes")
    assert [json.loads(line)["at"] for line in replayed(source)] == [5, 10, 20, 30]
    asyncio.run(source.close())


FIRST = "at,n\n30,1\n"


@pytest.mark.parametrize(
    ("text", "kept", "refused"),
    [
        ("at,n\n10,2\n", [(10, "2")], 0),
        ("", [], 0),
        ("at,n\n", [], 0),
        ('"at","n"\n"10","2"\n', [(10, "2")], 0),
        ("n,at\n2,10\n", [(10, "2")], 0),
        ('"n","at"\n"2","10"\n3,11', [(10, "2"), (11, "3")], 0),
        ("n,at\r\n2,10\r\n", [(10, "2")], 0),
        ("\ufeffn,at\n2,10\n", [(10, "2")], 0),
        ("id,n,more,at\n7,2,x,10\n8,3,,11\n", [(10, "2"), (11, "3")], 0),
        ('n,at\n"2,5",10\n"say ""x""",11\n', [(10, "2,5"), (11, 'say "x"')], 0),
        ("n,at\n\n2,10\n  \n", [(10, "2")], 0),
        ('n,at\n2\n2,10,5\n"2,10\n2,10\n', [(10, "2")], 3),
        ("at,n,more\n10,2\n11,3,\n", [(11, "3")], 1),  # valid in the first file, and not in this one
        ("n,at\n,10\n2,\n", [(10, None)], 1),
    ],
)
def test_files_of_a_list_are_read_by_the_names_in_their_headers(
    tmp_path: Path, text: str, kept: list[tuple[int, str | None]], refused: int
) -> None:
    """A replay counts what a live list counts, whatever the order and the quotes of the headers."""
    for number, content in enumerate([FIRST, text]):
        (tmp_path / f"b-{number}.csv").write_bytes(content.encode())
    replay = ReplaySource(tmp_path / "b-*.csv", "csv", AT, tmp_path / "replay", lambda: 10**9, ["n"])
    live = FileSequence(tmp_path / "b-*.csv", "csv", AT, tmp_path / "live", ["n"])
    for source in (live, replay):
        found, lost = list[tuple[int, str | None]](), 0
        for batch in read(source)[0]:
            found += zip(batch.columns["at"].tolist(), batch.columns["n"].tolist(), strict=True)
            lost += len(batch.refused)
        if source is replay or text.endswith("\n") or not text:  # of a list that grows, a last line may grow
            assert (sorted(found), lost) == (sorted([(30, "1"), *kept]), refused)
        asyncio.run(source.close())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n,when\n1,40\n", "b-1.csv: the header line has no column at; correct time.field"),
        ("at,m\n40,1\n", "b-1.csv: the header line has no column n; correct keys.field"),
        ("at;n\n40;1\n", "b-1.csv: its columns are separated by ';'"),
    ],
)
def test_a_file_without_a_field_is_refused_before_a_list_is_replayed(
    tmp_path: Path, text: str, said: str
) -> None:
    for number, content in enumerate([FIRST, text]):
        (tmp_path / f"b-{number}.csv").write_text(content)
    with pytest.raises(OperatorError, match=said):
        ReplaySource(tmp_path / "b-*.csv", "csv", AT, tmp_path / "notes", lambda: 10**9, ["n"])
    with pytest.raises(OperatorError, match=said):
        check_whole(tmp_path / "b-*.csv", "csv", AT, ["n"])


@pytest.mark.parametrize("marked", [(True, True), (True, False), (False, True)])
def test_a_list_of_csv_files_may_have_byte_order_marks(tmp_path: Path, marked: tuple[bool, bool]) -> None:
    for number, has_mark in enumerate(marked):
        text = f"at,n\n{30 - number},1\n"
        (tmp_path / f"b-{number}.csv").write_text(text, encoding="utf-8-sig" if has_mark else "utf-8")
    source = ReplaySource(tmp_path / "b-*.csv", "csv", AT, tmp_path / "notes", lambda: 10**9)
    assert replayed(source) == [b"29,1\n", b"30,1\n"]
    asyncio.run(source.close())


@pytest.mark.parametrize("lines", [[1, 5, 3], [2, 5], [1, 5]])
def test_a_file_that_is_rewritten_while_it_is_replayed_is_refused(tmp_path: Path, lines: list[int]) -> None:
    """Also if it keeps its length. The same content is accepted as soon as the replay is opened again."""
    path = write_events(tmp_path / "log", [1, 5])
    source = open_replay(path, tmp_path)
    assert len(replayed(source)) == 2
    os.utime(write_events(path, lines), ns=(0, 1))
    with pytest.raises(OperatorError, match="log: it changed while it was replayed; put its records back"):
        replayed(source)
    asyncio.run(source.close())
    if lines != [1, 5]:
        with pytest.raises(OperatorError, match="it is not the file whose replay began"):
            open_replay(path, tmp_path)
    else:
        again = open_replay(path, tmp_path)
        assert len(replayed(again)) == 2
        asyncio.run(again.close())
