"""A list refuses a file whose events another of its files has: a link, a copy, a file that was renamed."""

from __future__ import annotations

import asyncio
import gzip
import json
import lzma
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stream_app.config import SourceSettings, load_text
from stream_app.ports import OperatorError
from stream_app.sources.copies import MOST_COMPARED, check_copies
from stream_app.sources.file_list import files_of
from stream_app.sources.file_sequence import FileSequence
from stream_app.sources.finished_files import open_whole
from stream_app.sources.lines import FileFormat
from stream_app.wiring.event_logs import check_log
from tests.stream_app.one_source import AT, event_line, packed, read, times, write_events

FORMS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
LINES = [event_line(time_us, n=time_us) for time_us in range(200)]
HEADER = b"at,n\n"


class Log:
    """A list ``a-*`` that a worker follows, and what it has read of it."""

    def __init__(self, path: Path, format: FileFormat = "ndjson") -> None:
        self.path, self.format = path, format
        self.pattern = path / f"a-*.{format}"
        self.times: list[int] = []
        self.position = 0
        self.source: FileSequence | None = None

    def file(self, number: int, *parts: bytes) -> Path:
        """Write a file."""
        path = self.path / f"a-{number}.{self.format}"
        path.write_bytes(b"".join(parts))
        return path

    def read(self) -> list[int]:
        """Read all there is; return the times of everything that was read."""
        if self.source is None:
            self.source = FileSequence(self.pattern, self.format, AT, self.path / "notes")
        batches, self.position = read(self.source, self.position)
        self.times += times(batches)
        return self.times

    def close(self) -> None:
        """End the worker."""
        if self.source is not None:
            asyncio.run(self.source.close())
        self.source = None


@pytest.fixture
def log(tmp_path: Path):
    log = Log(tmp_path)
    yield log
    log.close()


def chain(target: Path, name: Path) -> None:
    name.with_name("other").symlink_to(target)
    name.symlink_to("other")


def through_a_folder(target: Path, name: Path) -> None:
    name.with_name("folder").symlink_to(".")
    name.symlink_to(Path("folder") / target.name)


# Each gives a file another name.
LINKS: dict[str, Callable[[Path, Path], object]] = {
    "soft": lambda target, name: name.symlink_to(target.name),
    "absolute": lambda target, name: name.symlink_to(target.absolute()),
    "chain": chain,
    "through a folder": through_a_folder,
    "of a compressed file": lambda target, name: name.with_name(f"{name.name}.gz").symlink_to(
        packed(target).name
    ),
    "hard": lambda target, name: os.link(target, name),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("when", ["from the start", "live", "a replay"])
@pytest.mark.parametrize("name", ["a-current.ndjson", "a-3.ndjson"])
def test_two_names_of_one_file_are_refused(log: Log, link: str, when: str, name: str) -> None:
    log.file(1, *LINES[:5])
    target = log.file(2, *LINES[5:9])
    if when == "live":
        assert log.read() == list(range(9))
    LINKS[link](target, log.path / name)
    with pytest.raises(OperatorError, match=r": it is another name of .*, whose events would count twice"):
        open_whole(log.pattern, "ndjson", AT, log.path) if when == "a replay" else log.read()


def test_links_to_files_elsewhere_are_one_name_each(log: Log, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for number in (1, 2):
        write_events(elsewhere / f"{number}", range(10 * number, 10 * number + 2))
        (tmp_path / f"a-{number}.ndjson").symlink_to(elsewhere / f"{number}")
    assert log.read() == [10, 11, 20, 21]


@pytest.mark.parametrize(("first", "second"), [("", ".gz"), (".gz", ".xz"), ("", ".xz")])
@pytest.mark.parametrize("when", ["from the start", "live", "a replay"])
def test_of_two_forms_of_one_file_one_is_read_and_the_other_named(
    log: Log, when: str, first: str, second: str, caplog: pytest.LogCaptureFixture
) -> None:
    log.file(1, *LINES[:5])
    if when == "live":
        assert log.read() == list(range(5))
    file = log.file(2, *LINES[5:9])
    for ending in (first, second):
        file.with_name(f"{file.name}{ending}").write_bytes(FORMS[ending](b"".join(LINES[5:9])))
    if first:
        file.unlink()
    read_form, other = (file.with_name(f"{file.name}{ending}") for ending in (first, second))
    os.utime(other, (9, 9))  # no program is writing it
    if when == "a replay":
        whole = open_whole(log.pattern, "ndjson", AT, log.path)
        assert whole.stat().st_size == sum(map(len, LINES[:9]))
        whole.close()
    else:
        assert log.read() == list(range(9))
    said = f"{other}: it is another form of {read_form}, which is read; it is not counted"
    assert caplog.messages == [said]
    other.write_bytes(FORMS[second](b"".join(LINES[5:10])))  # it has a record that the other one lacks
    with pytest.raises(OperatorError, match=r"a-2\.ndjson\..z: its records are not those of .*a-2"):
        files_of(log.pattern)


def copied_and_deleted(log: Log, of: Path) -> None:
    log.file(3, of.read_bytes())
    of.unlink()


# What becomes of a file that was counted.
REPLACED: dict[str, Callable[[Log, Path], object]] = {
    "copied": lambda log, of: log.file(3, of.read_bytes()),
    "copied and grown": lambda log, of: log.file(3, of.read_bytes(), LINES[150]),
    "copied and compressed": lambda log, of: packed(log.file(3, of.read_bytes())),
    "compressed and copied": lambda log, of: (log.file(3, of.read_bytes()), packed(of)),
    "copied in part and followed": lambda log, of: (
        log.file(3, *of.read_bytes().splitlines(keepends=True)[:5]),
        log.file(4, LINES[190]),
    ),
    "copied behind a mark": lambda log, of: log.file(3, b"\xef\xbb\xbf", of.read_bytes()),
    "copied behind zeros": lambda log, of: log.file(3, bytes(99), of.read_bytes()),
    "copied without a line end": lambda log, of: (
        log.file(3, of.read_bytes()[:-1]),
        log.file(4, LINES[190]),
    ),
    "copied and followed": lambda log, of: (log.file(3, of.read_bytes()), log.file(4, LINES[190])),
    "renamed": lambda log, of: of.rename(log.path / f"a-3.{log.format}"),
    "copied and truncated": lambda log, of: (log.file(3, of.read_bytes()), of.write_bytes(b"")),
    "copied and deleted": copied_and_deleted,
}
COPIES = [*REPLACED][:9]  # both files have the events


@pytest.mark.parametrize("copy", REPLACED)
@pytest.mark.parametrize("records", [5, 150])
@pytest.mark.parametrize("restart", [False, True])
def test_a_later_file_with_the_records_of_an_earlier_one_is_refused(
    log: Log, copy: str, records: int, restart: bool
) -> None:
    first = log.file(1, *LINES[:records])
    log.file(2, LINES[180])
    assert log.read() == [*range(records), 180]
    if restart:
        log.close()
    REPLACED[copy](log, first)
    with pytest.raises(OperatorError, match=r"a-3.*: it begins with the records of .*a-1.*; move it"):
        log.read()
    assert log.times[: records + 1] == [*range(records), 180]
    assert not set(log.times[records + 1 :]) & set(range(records))


@pytest.mark.parametrize("last", [1, 2])
def test_a_copy_of_csv_is_refused_and_a_common_header_is_not(tmp_path: Path, last: int) -> None:
    log = Log(tmp_path, "csv")
    for number in (1, 2):
        log.file(number, HEADER, *(b"%d,%d\n" % (number, n) for n in range(5)))
    assert log.read() == [1] * 5 + [2] * 5
    log.file(3, HEADER)
    assert log.read()[10:] == []
    log.file(3, HEADER, b"3,0\n")
    assert log.read()[10:] == [3]
    log.file(4, HEADER, *(b"%d,%d\n" % (last, n) for n in range(5)))
    with pytest.raises(OperatorError, match=rf"a-4.csv: it begins with the records of .*a-{last}.csv"):
        log.read()
    log.close()


@pytest.mark.parametrize(
    ("files", "counted", "format"),
    [
        ([LINES[:6], LINES[:4] + LINES[6:9]], [*range(6), *range(4), 6, 7, 8], "ndjson"),
        ([LINES[:8], LINES[:7] + LINES[9:12]], [*range(8), *range(7), 9, 10, 11], "ndjson"),
        ([[b'{"log": "begins"}\n', LINES[1]], [b'{"log": "begins"}\n', LINES[2]]], [1, 2], "ndjson"),
        ([LINES[:3], LINES[1:3]], [0, 1, 2, 1, 2], "ndjson"),
        ([LINES[:6], [b"\n", *LINES[:6]]], [*range(6)] * 2, "ndjson"),  # as the refusal says
        ([[b"\n", LINES[1]], [b"\n", LINES[2]]], [1, 2], "ndjson"),
        ([[], LINES[:1]], [0], "ndjson"),
        ([[HEADER, b"1,0\n"], [HEADER]], [1], "csv"),
        ([[HEADER], [HEADER], [HEADER, b"1,0\n"]], [1], "csv"),
        ([[HEADER, b"1,0\n"], [HEADER, b"\n1,0\n"]], [1, 1], "csv"),
        ([[HEADER, b"1,0\n1,1\n"], [HEADER, b"1,0\n1,2\n"]], [1, 1, 1, 1], "csv"),
        ([[b"at,", b"n" * 9_000, b"\n1,0\n"], [b"at,", b"n" * 9_000, b"\n2,0\n"]], [1, 2], "csv"),
        (
            [[LINES[0] * 300, LINES[1]], [LINES[0] * 300, LINES[2]]],
            [0] * 300 + [1] + [0] * 300 + [2],
            "ndjson",
        ),
    ],
)
@pytest.mark.parametrize("pack", [False, True])
def test_files_of_different_events_are_not_refused(
    tmp_path: Path, files: Sequence[Sequence[bytes]], counted: list[int], format: FileFormat, pack: bool
) -> None:
    log = Log(tmp_path, format)
    for number, parts in enumerate(files):
        path = log.file(number, *parts)
        if pack:
            packed(path)
    check_copies(list(files_of(log.pattern).values()), format == "csv")
    assert log.read() == counted
    log.close()
    assert log.read() == counted
    log.close()


SHORT = [LINES[0], *[LINES[1]] * 3, LINES[2], LINES[0], LINES[3]]  # four different records


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (SHORT, SHORT),
        (SHORT, SHORT[:2]),
        (SHORT[:1], LINES[:9]),
        (LINES[:1] * 9_999, LINES[:1] * 9_999),
        (LINES[:9], SHORT[:2]),
        (LINES[:9], LINES[:4]),
    ],
)
def test_files_with_few_different_records_in_common_count_with_a_warning(
    log: Log,
    caplog: pytest.LogCaptureFixture,
    first: list[bytes],
    second: list[bytes],
    gone: bool,
    restart: bool,
) -> None:
    """No one record stops the list: it goes on without any of them, too."""
    one = log.file(1, *first)
    log.file(2, LINES[0])
    log.read()
    if gone:
        one.unlink()
    if restart:
        log.close()
    log.file(3, *second)
    log.file(4, LINES[190])
    assert len(log.read()) == len(first) + len(second) + 2
    [said] = [record.getMessage() for record in caplog.records if "a-3" in record.getMessage()]
    common = len(set(first) & set(second))
    assert f"a-3.ndjson: it begins with {common} different records of a-1.ndjson, too few to tell" in said


def test_a_file_that_may_become_a_copy_waits_until_it_differs(log: Log) -> None:
    log.file(1, *LINES[:5])
    log.file(2, LINES[180])
    log.read()
    third = log.file(3, *LINES[:2])
    assert log.read()[6:] == []
    with third.open("ab") as file:
        file.write(LINES[9])
    assert log.read()[6:] == [0, 1, 9]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("ends", ["grows as the copy", "differs"])
def test_a_file_that_may_become_a_copy_of_a_file_that_is_gone_waits(
    log: Log, restart: bool, ends: str
) -> None:
    first = log.file(1, *LINES[:5])
    log.file(2, LINES[180])
    log.read()
    third = log.file(3, *LINES[:2])
    first.unlink()
    if restart:
        log.close()
    assert log.read()[6:] == []
    with third.open("ab") as file:
        file.write(b"".join(LINES[100:105] if ends == "differs" else LINES[2:6]))
    if ends == "differs":
        assert log.read()[6:] == [0, 1, *range(100, 105)]
        return
    log.file(4, LINES[190])
    with pytest.raises(OperatorError, match=r"a-3.ndjson: it begins with the records of .*a-1.ndjson"):
        log.read()


@pytest.mark.parametrize("restart", [False, True])
def test_what_was_written_just_before_the_next_file_came_tells_a_copy(log: Log, restart: bool) -> None:
    first = log.file(1, *LINES[:2])
    log.read()
    log.file(1, *LINES[:9])
    log.file(2, LINES[180])
    assert log.read() == [*range(9), 180]
    first.unlink()
    if restart:
        log.close()
    log.file(3, *LINES[:9])
    with pytest.raises(OperatorError, match=r"a-3.ndjson: it begins with the records of .*a-1.ndjson"):
        log.read()


@pytest.mark.parametrize("gone", [False, True])
def test_a_copy_is_refused_by_the_notes_of_an_older_version(log: Log, gone: bool) -> None:
    first = log.file(1, *LINES[:9])
    log.file(2, LINES[180])
    log.read()
    log.close()
    notes = log.path / "notes" / "files.ndjson"
    old = [{**json.loads(line), "line": "a digest"} for line in notes.read_bytes().splitlines()]
    notes.write_text("".join(json.dumps({**fact, "marks": []}) + "\n" for fact in old))
    log.file(3, first.read_bytes())
    if gone:
        first.unlink()
    with pytest.raises(OperatorError, match=r"a-3.ndjson: it begins with the records of .*a-1.ndjson"):
        log.read()


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("copy", COPIES)
def test_check_config_refuses_what_a_start_refuses(log: Log, copy: str, replay: bool) -> None:
    first = log.file(1, *LINES[:6])
    log.file(2, LINES[180])
    REPLACED[copy](log, first)
    source = "file: 'a-*.ndjson'" + (
        ", replay: {from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}" * replay
    )
    text = f"streams: {{x: {{source: {{{source}}}, time: {{field: at, format: us, bin: 1h, epoch: 1d"
    text += f"{'' if replay else ', grace: 1m'}}}, privacy: {{epsilon: 1}}}}}}"
    [stream] = load_text(text, log.path / "app.yaml", {}).streams
    assert isinstance(stream.source, SourceSettings)
    with pytest.raises(OperatorError, match=r"source.file: .*a-3.*: it begins with the records of .*a-1"):
        check_log(stream, stream.source, log.path / "state")


def test_large_files_are_compared_beyond_their_first_bytes(log: Log) -> None:
    first = log.file(1, LINES[0] * (MOST_COMPARED // 2 // len(LINES[0])), *LINES[:5])
    log.file(2, first.read_bytes(), LINES[6])
    with pytest.raises(OperatorError, match="it begins with the records"):
        open_whole(log.pattern, "ndjson", AT, log.path)


@pytest.mark.parametrize("copy", COPIES)
def test_a_replay_refuses_copies(log: Log, copy: str) -> None:
    first = log.file(1, *LINES[:6])
    log.file(2, LINES[180])
    REPLACED[copy](log, first)
    with pytest.raises(OperatorError, match=r"a-3.*: it begins with the records of .*a-1"):
        open_whole(log.pattern, "ndjson", AT, log.path)
