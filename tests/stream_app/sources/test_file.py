"""A source that follows a growing file reads each complete line once, and refuses a replaced file."""

from __future__ import annotations

import asyncio
import os
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.incoming import Reason, RecordBatch, Refusal
from stream_app.ports import OperatorError
from stream_app.sources import lines as lines_module
from stream_app.sources.decode import BYTES_AT_ONCE, RECORDS_AT_ONCE, TimeField
from stream_app.sources.file import FileSource
from stream_app.sources.lines import ENOUGH_RECORDS, FileFormat, LineFile, open_lines
from tests.stream_app.one_source import AT, event_line, times, write_events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a file of three events."""
    return write_events(tmp_path / "events.ndjson", [1, 2, 3])


@pytest.fixture
def source(path: Path, tmp_path: Path) -> Iterator[FileSource]:
    """Yield a source over the file."""
    source = FileSource(path, "ndjson", AT, tmp_path / "notes")
    yield source
    asyncio.run(source.close())


def read(source: FileSource, position: int) -> list[RecordBatch]:
    """Return the records that can be read now."""
    return list(asyncio.run(source.read({"0": position}, 0.0)))


def append(path: Path, data: bytes) -> None:
    """Append to the file."""
    with path.open("ab") as file:
        file.write(data)


def test_only_complete_lines_are_read(path: Path, source: FileSource) -> None:
    append(path, event_line(4)[:-3])
    [batch] = read(source, 0)
    assert times([batch]) == [1, 2, 3]
    assert read(source, batch.end) == []
    append(path, event_line(4)[-3:])
    assert times(read(source, batch.end)) == [4]


def test_positions_are_where_records_start(path: Path, source: FileSource) -> None:
    [batch] = read(source, 0)
    data = path.read_bytes()
    for position, record in zip(batch.positions.tolist(), batch.records, strict=True):
        assert data[position:].startswith(record + b"\n")
        assert read(source, position)[0].records[0] == record


def test_a_cut_is_after_the_last_complete_line(path: Path, source: FileSource) -> None:
    size = path.stat().st_size
    append(path, b'{"at"')
    assert asyncio.run(source.positions_at(["0"], [70, 80])) == {"0": [size, size]}


def test_the_wait_ends_when_a_line_arrives(path: Path, source: FileSource) -> None:
    end = path.stat().st_size

    async def arrive() -> list[RecordBatch]:
        reading = asyncio.create_task(source.read({"0": end}, 30.0))
        await asyncio.sleep(0.01)
        append(path, event_line(9))
        return list(await reading)

    assert times(asyncio.run(arrive())) == [9]


def test_broken_and_blank_lines(path: Path, source: FileSource) -> None:
    start = path.stat().st_size
    append(path, b"{\n\n   \n" + event_line(5).replace(b"\n", b"\r\n") + b'{"at": null}\n')
    [batch] = read(source, start)
    assert times([batch]) == [5]
    assert batch.refused == [
        Refusal("0", start, "undecodable", b"{"),
        Refusal("0", path.stat().st_size - 13, "null", b'{"at": null}'),
    ]


@given(st.lists(st.text("a\n", max_size=6), max_size=8), st.integers(1, 9), st.booleans())
def test_last_line_end_is_found_in_new_bytes_alone(
    written: list[str], most_bytes: int, follows: bool
) -> None:
    """An unfinished line may have gigabytes, and each cut looks for the end of the last complete line."""
    with pytest.MonkeyPatch.context() as patch, NamedTemporaryFile() as named:
        patch.setattr(lines_module, "MOST_BYTES", most_bytes)
        path, after = Path(named.name), 0
        with open_lines(path, "ndjson", AT) as file:
            looked_at = 0
            bytes_at = file.bytes_at

            def count_bytes(start: int, count: int) -> bytes:
                nonlocal looked_at
                looked_at += count
                return bytes_at(start, count)

            patch.setattr(file, "bytes_at", count_bytes)
            for text in written:
                with path.open("a") as appending:
                    appending.write(text)
                looked_at = 0
                complete = path.read_bytes().rfind(b"\n") + 1
                assert file.after_last_line(after if follows else 0) == complete
                assert looked_at <= len(text)
                after = complete


@given(st.lists(st.integers(0, 99) | st.none(), max_size=12), st.integers(1, 40))
def test_batches_of_any_size_hold_each_line_once(times_us: list[int | None], most_bytes: int) -> None:
    data = b"".join(b"?\n" if time_us is None else event_line(time_us) for time_us in times_us)
    found: list[int | None] = []
    start = 0
    with pytest.MonkeyPatch.context() as patch, NamedTemporaryFile() as named:
        patch.setattr(lines_module, "BATCH_BYTES", most_bytes)
        Path(named.name).write_bytes(data)
        with open_lines(Path(named.name), "ndjson", AT) as file:
            assert file.after_last_line(0) == len(data)
            while (batch := file.read(start, len(data))) is not None:
                assert batch.start == start
                here = dict(zip(batch.positions.tolist(), batch.columns["at"].tolist(), strict=True))
                here |= {refusal.position: None for refusal in batch.refused}
                found += [here[position] for position in sorted(here)]
                start = batch.end
    assert start == len(data)
    assert found == times_us


@pytest.mark.parametrize("line", [event_line(1), b"?\n", b"\n", b"x" * 100_000 + b"\n"])
def test_others_run_while_lines_are_decoded(
    path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    """A due cut waits for one turn of decoding, not for the whole batch."""
    start = path.stat().st_size
    append(path, line * (250_000 // len(line)))
    seen: list[tuple[int, int]] = []  # lines and bytes decoded since other tasks ran
    decode = LineFile.decode

    def watched(lines: LineFile, start: int, data: bytes) -> RecordBatch:
        count, size = seen.pop()
        seen.append((count + data.count(b"\n"), size + len(data)))
        return decode(lines, start, data)

    async def both() -> None:
        reading = asyncio.create_task(source.read({"0": start}, 0.0))
        while not reading.done():
            seen.append((0, 0))
            await asyncio.sleep(0)

    monkeypatch.setattr(LineFile, "decode", watched)
    asyncio.run(both())
    assert len([turn for turn in seen if turn != (0, 0)]) > 1
    assert all(count == 1 or (count <= RECORDS_AT_ONCE and size <= BYTES_AT_ONCE) for count, size in seen)


def test_batch_of_many_short_lines_ends_early(path: Path, source: FileSource) -> None:
    start = path.stat().st_size
    append(path, b"?\n" * 100_000)
    [batch] = read(source, start)
    assert ENOUGH_RECORDS <= len(batch.refused) < ENOUGH_RECORDS + RECORDS_AT_ONCE
    assert batch.end - start == 2 * len(batch.refused)


@pytest.mark.parametrize(
    ("content", "positions"),
    [
        (b"id,at\r\na,5\r\nb,6\r\n", [7, 12]),
        (b'\xef\xbb\xbf"at",id\r\n5,a\r\n6,b\r\n', [12, 17]),  # a byte order mark is no part of a name
    ],
)
def test_a_csv_header_is_no_record(tmp_path: Path, content: bytes, positions: list[int]) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(content)
    source = FileSource(path, "csv", AT, tmp_path / "notes")
    [batch] = read(source, 0)
    assert times([batch]) == [5, 6]
    assert batch.positions.tolist() == positions
    assert times(read(source, positions[1])) == [6]
    asyncio.run(source.close())


def test_a_field_configured_with_the_byte_order_mark_is_still_read(tmp_path: Path) -> None:
    """Before the mark was passed over, this was the only way to read the first column."""
    path, field = tmp_path / "events.csv", "\ufeffat"
    path.write_text("at,id\n5,a\n", encoding="utf-8-sig")
    source = FileSource(path, "csv", TimeField(field, "us"), tmp_path / "notes")
    [batch] = read(source, 0)
    assert batch.columns[field].tolist() == [5]
    asyncio.run(source.close())


def test_a_byte_order_mark_is_no_part_of_the_first_event(path: Path, tmp_path: Path) -> None:
    path.write_bytes(BOM_UTF8 + path.read_bytes())
    source = FileSource(path, "ndjson", AT, tmp_path / "notes")
    [batch] = read(source, 0)
    assert (times([batch]), batch.positions[0], batch.refused) == ([1, 2, 3], 0, [])
    asyncio.run(source.close())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"", "no header line"), (b"id,when\n", "no column at"), (None, "cannot be read")],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    path = tmp_path / "events.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OperatorError, match=complaint) as refusal:
        FileSource(path, "csv", AT, tmp_path / "notes")
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def _replace(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    write_events(path, [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Path.unlink, "it is gone"),
        (_replace, "it was replaced"),
        (lambda path: os.truncate(path, path.stat().st_size - 5), "it was truncated"),
    ],
)
def test_a_changed_file_is_refused(
    path: Path, source: FileSource, change: Callable[[Path], object], said: str
) -> None:
    change(path)
    with pytest.raises(OperatorError, match=said):
        asyncio.run(source.positions_at(["0"], [10]))


CSV = b"at,n\n"


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "format"),
    [
        (b"".join(map(event_line, range(10))), b"".join(map(event_line, range(20, 35))), "ndjson"),
        (event_line(1) * 10, event_line(2) * 15, "ndjson"),
        (event_line(1) * 500, event_line(2) * 501, "ndjson"),
        (event_line(1), event_line(2), "ndjson"),  # as long as before
        (event_line(1), event_line(2) + event_line(1), "ndjson"),
        (event_line(1) + b'{"at"', event_line(2) * 9, "ndjson"),
        (b"\n" + event_line(1), b"\n" + event_line(2) * 2, "ndjson"),
        (b'{"log": 1}\n' * 9 + event_line(1), b'{"log": 1}\n' * 9 + event_line(2) * 2, "ndjson"),
        (CSV + b"1,0\n", CSV + b"2,0\n3,0\n", "csv"),
        (CSV + b"1,0\n" * 2_000, CSV + b"2,0\n" * 2_001, "csv"),
        (b"at," + b"n" * 5_000 + b"\n1,0\n", b"at," + b"n" * 5_000 + b"\n2,0\n3,0\n", "csv"),
    ],
)
def test_a_file_that_is_truncated_and_regrown_between_two_looks_is_refused(
    tmp_path: Path, before: bytes, after: bytes, format: FileFormat, restart: bool
) -> None:
    path, notes = tmp_path / "events", tmp_path / "notes"
    path.write_bytes(before)
    source = FileSource(path, format, AT, notes)
    [batch] = read(source, 0)
    path.write_bytes(after)  # the same inode, as copytruncate leaves it
    later = path.stat().st_mtime_ns + 10**7
    os.utime(path, ns=(later, later))  # the system's clock is coarse
    with pytest.raises(OperatorError, match=r"it was truncated|not the file counted so far"):
        read(FileSource(path, format, AT, notes) if restart else source, batch.end)
    asyncio.run(source.close())


def test_a_look_at_a_file_that_has_not_changed_reads_nothing(
    path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    [batch] = read(source, 0)
    read(source, batch.end)
    monkeypatch.setattr(LineFile, "bytes_at", None)
    monkeypatch.setattr(source, "_check_position", lambda position: None)
    assert read(source, batch.end) == []


def test_another_file_after_a_restart_is_refused(path: Path, source: FileSource, tmp_path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"1", b"7", 1))
    with pytest.raises(OperatorError, match="not the file counted so far"):
        FileSource(path, "ndjson", AT, tmp_path / "notes")


@pytest.mark.parametrize("position", [3, 10_000])
def test_a_position_of_another_file_is_refused(source: FileSource, position: int) -> None:
    with pytest.raises(OperatorError, match="not the file counted so far"):
        read(source, position)


def test_an_empty_file_may_begin_later(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.touch()
    source = FileSource(path, "ndjson", AT, tmp_path / "notes")
    assert read(source, 0) == []
    append(path, event_line(1))
    assert times(read(source, 0)) == [1]
    asyncio.run(source.close())
    asyncio.run(FileSource(path, "ndjson", AT, tmp_path / "notes").close())


@pytest.mark.parametrize(("length", "counted"), [(63, True), (64, False), (500, False)])
def test_a_line_that_is_too_long_is_a_dead_letter_and_ends_nothing(
    path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch, length: int, counted: bool
) -> None:
    """If one event ended a stream, everybody would see that this event came."""
    monkeypatch.setattr(lines_module, "BATCH_BYTES", 16)
    monkeypatch.setattr(lines_module, "LONGEST_RECORD_BYTES", 64)
    start = path.stat().st_size
    line = b'{"at": 5}'.ljust(length) + b"\n"
    append(path, line + event_line(9))
    [long] = read(source, start)
    assert (long.start, long.end) == (start, start + len(line))
    assert times([long]) == ([5] if counted else [])
    assert [(refusal.position, refusal.reason) for refusal in long.refused] == (
        [] if counted else [(start, Reason.UNDECODABLE)]
    )
    assert times(read(source, long.end)) == [9]
