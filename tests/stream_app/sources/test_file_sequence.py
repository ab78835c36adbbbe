"""Several files are one log: each record once, in the order of the names, whatever happens to the files."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import shutil
import time
from codecs import BOM_UTF8
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.ports import OperatorError
from stream_app.sources import file_list
from stream_app.sources.file_list import FileList, in_order
from stream_app.sources.file_sequence import FILE_SPAN, FileSequence
from tests.stream_app.one_source import AT, end_of, event_line, packed, read, times, write_events


class Folder:
    """A directory of files, and a source over those called ``clicks-*.ndjson``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sources: list[FileSequence] = []

    def events(self, day: int, *times_us: int) -> Path:
        """Write the events of one day's file."""
        return write_events(self.path / f"clicks-{day:02}.ndjson", times_us)

    def source(self, format: str = "ndjson") -> FileSequence:
        """Open the log, as a new worker does."""
        pattern, notes = self.path / f"clicks-*.{format}", self.path / "notes"
        self.close()
        self.sources.append(FileSequence(pattern, format, AT, notes))  # type: ignore[arg-type]
        return self.sources[-1]

    def close(self) -> None:
        """Close all sources, since the notes have one writer."""
        while self.sources:
            asyncio.run(self.sources.pop().close())


@pytest.fixture
def folder(tmp_path: Path):
    """Yield an empty folder."""
    folder = Folder(tmp_path)
    yield folder
    folder.close()


ONE, TWO, THREE = (event_line(time_us) for time_us in (10, 20, 30))
LAST = 2 * FILE_SPAN  # the third file
BOMMED = [BOM_UTF8 + b"at,n\n%d0,1\n%d1,2\n" % (day, day) for day in (1, 2)]


@pytest.mark.parametrize(
    ("files", "counted", "end"),
    [
        ({"3.ndjson": THREE, "1.ndjson": ONE + TWO, "2.ndjson": TWO}, [10, 20, 20, 30], LAST + len(THREE)),
        ({"1.ndjson": ONE[:-1], "2.ndjson": TWO, "3.ndjson.gz": THREE[:-1]}, [10, 20, 30], LAST + FILE_SPAN),
        ({"1.ndjson": b"", "2.ndjson": TWO, "3.ndjson": b""}, [20], LAST),
        ({"1.csv": BOMMED[0], "2.csv.gz": BOMMED[1], "3.csv": b"at\n30\n"}, [10, 11, 20, 21, 30], LAST + 6),
        ({"1.csv": BOM_UTF8, "2.csv.gz": b"", "3.csv": b"at\n30\n"}, [30], LAST + 6),
        ({"1.csv": b"at,n\n10,1\n", "2.csv": b"n,at\n1,20", "3.csv": b""}, [10, 20], LAST),
        ({"1.csv": b"at,n\n10,1\n", "2.csv": b"", "3.csv": b"a"}, [10], LAST),
    ],
)
def test_files_are_read_as_one_log(
    folder: Folder, files: dict[str, bytes], counted: list[int], end: int
) -> None:
    for name, content in files.items():
        path = folder.path / f"clicks-{name}"
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    source = folder.source("csv" if "1.csv" in files else "ndjson")
    batches, position = read(source)
    assert (times(batches), position, end_of(source)) == (counted, end, end)
    numbers = [batch.positions[0] // FILE_SPAN for batch in batches if len(batch.positions)]
    assert numbers == sorted({time_us // 10 - 1 for time_us in counted})


def test_a_log_may_end_with_a_compressed_file(folder: Folder) -> None:
    packed(folder.events(1, 10))
    packed(folder.events(2, 20))
    source = folder.source()
    assert end_of(source) == 2 * FILE_SPAN
    batches, position = read(source)
    assert (times(batches), position) == ([10, 20], 2 * FILE_SPAN)
    folder.events(3, 30)
    batches, position = read(source, position)
    assert times(batches) == [30]


@pytest.mark.parametrize("restart", [False, True])
def test_a_finished_file_may_be_compressed_where_it_is_read(folder: Folder, restart: bool) -> None:
    first = folder.events(1, *range(50))
    source = folder.source()
    [batch] = asyncio.run(source.read({"0": 0}, 0.0))
    middle = int(batch.positions[20])
    folder.events(2, 100)
    end_of(source)
    packed(first)
    source = folder.source() if restart else source
    batches, _ = read(source, middle)
    assert times(batches) == [*range(20, 50), 100]


@pytest.mark.parametrize("day", [1, 2])
def test_a_file_may_be_compressed_between_the_look_at_the_folder_and_its_opening(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, day: int
) -> None:
    files = [folder.events(1, 10, 20), folder.events(2, 30)]
    source = folder.source()
    refresh = FileList.refresh

    def too_early(self: FileList, *, certainly: bool = False) -> None:
        if certainly:
            refresh(self, certainly=True)

    monkeypatch.setattr(FileList, "refresh", too_early)
    packed(files[day - 1])
    batches, _ = read(source)
    assert times(batches) == [10, 20, 30]
    assert end_of(source) // FILE_SPAN == day


@pytest.mark.parametrize("at_start", [False, True])
def test_a_file_may_be_compressed_while_the_next_one_is_noted(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, at_start: bool
) -> None:
    """A worker lists the folder; then somebody compresses the file before the new one."""
    first = folder.events(1, 10, 20)
    source = folder.source()
    batches, position = read(source)
    folder.events(2, 30)
    list_files = file_list.files_of

    def slowly(pattern: Path) -> dict[str, Path]:
        found = list_files(pattern)
        if first.exists():
            packed(first)
        return found

    monkeypatch.setattr(file_list, "files_of", slowly)
    source = folder.source() if at_start else source
    later, _ = read(source, position)
    assert times([*batches, *later]) == [10, 20, 30]


def test_a_csv_file_counts_once_its_header_is_whole(folder: Folder) -> None:
    (folder.path / "clicks-1.csv").write_text("a")
    source = folder.source("csv")
    assert read(source) == ([], 0)
    (folder.path / "clicks-1.csv").write_text("at\n40\n")
    assert times(read(source)[0]) == [40]


@pytest.mark.parametrize("format", ["csv", "ndjson"])
def test_an_empty_gzip_file_is_refused_because_it_is_not_whole(folder: Folder, format: str) -> None:
    (folder.path / f"clicks-1.{format}.gz").write_bytes(b"")
    with pytest.raises(OperatorError, match=r"\.gz: cannot be decompressed \(it is empty\); put a whole"):
        read(folder.source(format))


def test_a_finished_file_with_a_header_only_is_passed_over(folder: Folder) -> None:
    for number, content in enumerate(("at\n10\n", "at", "\ufeff", "at\n", "at\n20\n")):
        (folder.path / f"clicks-{number}.csv").write_text(content)
    assert times(read(folder.source("csv"))[0]) == [10, 20]


def test_a_csv_file_that_lost_its_header_is_refused(folder: Folder) -> None:
    for number in (1, 2):
        (folder.path / f"clicks-{number}.csv").write_text(f"at\n{number}0\n")
    end_of(folder.source("csv"))
    (folder.path / "clicks-1.csv").write_text("")
    with pytest.raises(OperatorError, match=r"clicks-1\.csv: no header line"):
        read(folder.source("csv"))


def test_what_is_written_after_the_next_file_appeared_is_not_counted(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    first = folder.events(1, 10)
    source = folder.source()
    folder.events(2, 20)
    end_of(source)
    with first.open("ab") as file:
        file.write(event_line(11))
    with caplog.at_level(logging.WARNING):
        assert times(read(source)[0]) == [10, 20]
    assert "clicks-01.ndjson: it grew after a later file had appeared" in caplog.text
    assert times(read(folder.source())[0]) == [10, 20]  # also after a restart


def test_every_position_goes_on_after_a_restart(folder: Folder) -> None:
    folder.events(1, 10, 11)
    packed(folder.events(2, 20, 21))
    folder.events(3, 30)
    batches, _ = read(folder.source())
    everything = times(batches)
    starts = [position for batch in batches for position in batch.positions.tolist()]
    for number, position in enumerate(starts):
        assert times(read(folder.source(), position)[0]) == everything[number:]


@pytest.mark.parametrize("restart", [False, True])
def test_files_are_read_by_their_numbers(folder: Folder, restart: bool) -> None:
    for number in (8, 9, 10, 11):
        write_events(folder.path / f"clicks-{number}.ndjson", [number])
    source = folder.source()
    assert times(read(source)[0]) == [8, 9, 10, 11]
    for number in (99, 100):
        write_events(folder.path / f"clicks-{number}.ndjson", [number])
        source = folder.source() if restart else source
        end_of(source)
    assert times(read(source)[0]) == [8, 9, 10, 11, 99, 100]
    write_events(folder.path / "clicks-12.ndjson", [12])
    with pytest.raises(OperatorError, match=r"clicks-12.ndjson: its name sorts before clicks-100.ndjson"):
        folder.source()


def test_a_list_that_an_older_version_read_by_letter_goes_on_so(folder: Folder) -> None:
    for number in (1, 10, 2):  # each noted when it appeared, as the older version did
        (folder.path / "notes").mkdir(exist_ok=True)
        with (folder.path / "notes" / "files.ndjson").open("a") as notes:
            name = f"clicks-{number}.ndjson"
            notes.write(json.dumps({"name": name, "at_us": 1, "previous_ended_at": None}) + "\n")
        write_events(folder.path / name, [number])
    assert times(read(folder.source())[0]) == [1, 10, 2]
    write_events(folder.path / "clicks-3.ndjson", [3])
    assert times(read(folder.source())[0]) == [1, 10, 2, 3]
    write_events(folder.path / "clicks-11.ndjson", [11])
    with pytest.raises(OperatorError, match=r"clicks-11.ndjson: its name sorts before clicks-3.ndjson"):
        folder.source()


PADDED = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9999)), unique=True)


@given(PADDED, st.integers(0, 10))
def test_numbers_of_equal_length_are_read_in_the_same_order_as_letters(
    days: list[tuple[int, int]], known: int
) -> None:
    names = [f"clicks-{first:02}-{second:04}.csv" for first, second in days]
    names[:known] = sorted(names[:known])
    assert in_order(Path("clicks-*.csv"), names[known:], names[:known]) == sorted(names[known:])


@pytest.mark.parametrize(
    "names",
    [
        ["a-9x.csv", "a-10x.csv"],
        ["a-01HV9ZZ.csv", "a-01HV10Z.csv"],  # names of digits and letters that rise by letter
        ["a-9.csv", "a-10.csv", "a-old.csv"],
        ["a-2024-9.csv", "a-10.csv"],
        ["a-9..csv", "a-10..csv"],
    ],
)
def test_names_in_which_letters_vary_are_read_by_letter(names: list[str]) -> None:
    assert in_order(Path("a-*.csv"), names) == sorted(names)


@pytest.mark.parametrize("when", ["open", "restarted"])
def test_a_file_that_sorts_before_known_ones_is_refused(folder: Folder, when: str) -> None:
    folder.events(2, 20)
    source = folder.source()
    folder.events(1, 10)
    look = partial(end_of, source) if when == "open" else folder.source
    with pytest.raises(OperatorError, match=r"clicks-01.ndjson: its name sorts before clicks-02.ndjson"):
        look()


def test_counted_files_may_be_deleted(folder: Folder) -> None:
    first = folder.events(1, 10)
    folder.events(2, 20)
    source = folder.source()
    assert asyncio.run(source.kept_since_us()) is None
    assert asyncio.run(source.first_position("0", None)) == 0
    first.unlink()
    source = folder.source()
    assert times(read(source, FILE_SPAN)[0]) == [20]
    assert asyncio.run(source.first_position("0", None)) == FILE_SPAN
    assert asyncio.run(source.kept_since_us()) is not None
    said = r"clicks-01.ndjson \(or .gz, .bz2, .xz, .zst\): it is gone and still needed; put it back"
    with pytest.raises(OperatorError, match=said):
        read(source)


def test_reading_since_an_instant_skips_files_that_were_finished_before(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 100_000)
    folder.events(1, 10)
    folder.source()
    for day, now_us in ((2, 200), (3, 300)):
        monkeypatch.setattr(time, "time_ns", lambda now_us=now_us: now_us * 1_000)
        folder.events(day, day)
        source = folder.source()
    firsts = {since: asyncio.run(source.first_position("0", since)) for since in (50, 150, 200, 201, 301)}
    assert firsts == {50: 0, 150: 0, 200: 0, 201: FILE_SPAN, 301: 2 * FILE_SPAN}


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(event_line(9) * 3)
    other.replace(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Path.unlink, "it is gone"),
        (_replace, "it was replaced|not the file counted so far"),
        (lambda path: path.write_bytes(b""), "it was truncated|not the file counted so far"),
    ],
)
@pytest.mark.parametrize("day", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_a_changed_file_is_refused(
    folder: Folder, change: Callable[[Path], object], said: str, day: int, restart: bool
) -> None:
    paths = [folder.events(1, 10, 11, 12), folder.events(2, 20, 21, 22)]
    source = folder.source()
    read(source)
    change(paths[day - 1])
    with pytest.raises(OperatorError, match=said):
        read(folder.source() if restart else source, (day - 1) * FILE_SPAN)


@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("regrown", [3, 4, 2_000])
def test_a_file_that_is_truncated_and_regrown_between_two_looks_is_refused(
    folder: Folder, followed: bool, restart: bool, regrown: int
) -> None:
    folder.events(1, 10, 11, 12)
    path = folder.events(2, 20, 21, 22)
    source = folder.source()
    _, position = read(source)
    path.write_bytes(b"".join(event_line(time_us, n=9) for time_us in range(30, 30 + regrown)))
    later = path.stat().st_mtime_ns + 10**7
    os.utime(path, ns=(later, later))
    if followed:
        folder.events(3, 40)
    with pytest.raises(OperatorError, match=r"it was truncated|not the file counted so far"):
        read(folder.source() if restart else source, position)


def test_a_log_without_files_is_refused(folder: Folder) -> None:
    with pytest.raises(OperatorError, match=r"clicks-\*.ndjson: no such file; create the first one"):
        folder.source()


def test_lag_counts_bytes_of_later_files(folder: Folder) -> None:
    sizes = [folder.events(day, *range(day, 2 * day)).stat().st_size for day in (1, 2, 3, 4)]
    source = folder.source()
    position = 0
    for number in range(4):
        asyncio.run(source.read({"0": position}, 0.0))
        assert source.ends()["0"] - position == sum(sizes[number:])
        position = (number + 1) * FILE_SPAN


@given(st.lists(st.sampled_from(["grow", "rotate", "pack", "read", "restart", "crash"]), max_size=14))
def test_any_history_of_rotations_counts_each_record_once(tmp_path_factory, actions: list[str]) -> None:
    """A crash loses the note that is written at that moment; the next start writes it again."""
    path = tmp_path_factory.mktemp("log")
    folder = Folder(path)
    number, written = 1, [0]
    current = folder.events(number, 0)
    source, position, found = folder.source(), 0, list[int]()
    for time_us, action in enumerate([*actions, "read"], start=1):
        if action == "grow":
            with current.open("ab") as file:
                file.write(event_line(time_us))
            written.append(time_us)
        elif action in ("rotate", "crash"):
            number += 1
            current = folder.events(number, time_us)
            written.append(time_us)
            if action == "crash":
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(os, "write", _no_space)
                    with pytest.raises(OSError, match="full"):
                        end_of(source)
                source = folder.source()
        elif action == "pack" and number > 1:
            before = path / f"clicks-{number - 1:02}.ndjson"
            if before.exists() and source is not None:
                end_of(source)
                packed(before)
        elif action == "restart":
            source = folder.source()
        elif action == "read":
            batches, position = read(source, position)
            found += times(batches)
    folder.close()
    shutil.rmtree(path)
    assert found == written


def _no_space(*_: object) -> int:
    raise OSError("the disk is full")
