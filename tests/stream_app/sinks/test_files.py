"""The witness and the dead letters as files."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.incoming import Reason, Refusal
from stream_app.core.records import WitnessRow
from stream_app.core.releases.release import row_hash
from stream_app.durable import LineLog
from stream_app.ports import OperatorError
from stream_app.sinks import dead_letter_file
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping, expire
from stream_app.sinks.witness_file import WitnessFile
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@cache
def row(seq: int, text: str = "", stream: str = "visits", values: bytes = b"") -> WitnessRow:
    """Return a row of the chain with only the fields that the witness reads."""
    prev = row_hash(row(seq - 1, "", stream).row) if seq > 1 else ""
    fields = {"seq": seq, "stream": stream, "epoch": 0, "bin": seq, "start": "", "strategy": "", "prev": prev}
    return WitnessRow(seq, json.dumps({**fields, "text": text}).encode(), values)


def head(directory: Path, stream: str = "visits") -> tuple[int, bytes] | None:
    """Return the last row of a stream, as a new process finds it."""
    with closing(WitnessFile(directory)) as witness:
        return asyncio.run(witness.head(stream))


def append(directory: Path, *rows: WitnessRow, stream: str = "visits") -> list[WitnessRow]:
    """Append rows in a new process; return all rows of the stream."""
    with closing(WitnessFile(directory)) as witness:
        asyncio.run(witness.append(stream, rows))
        return asyncio.run(witness.rows(stream, 0))


def test_rows_and_values_survive_a_restart_and_are_kept_once(tmp_path: Path) -> None:
    rows = [row(1, values=bytes(range(256))), row(2), row(3, values=b"\n\t")]
    assert head(tmp_path) is None
    assert append(tmp_path, *rows[:2]) == rows[:2]
    assert append(tmp_path, row(1, "other", "sales"), stream="sales") == [row(1, "other", "sales")]
    assert append(tmp_path, *rows) == append(tmp_path, rows[1]) == rows
    assert (head(tmp_path), head(tmp_path, "sales")) == (rows[2][:2], row(1, "other", "sales")[:2])
    with closing(WitnessFile(tmp_path)) as witness:
        assert asyncio.run(witness.rows("visits", 1)) == rows[1:]


def test_another_row_under_the_last_seq_is_refused(tmp_path: Path) -> None:
    append(tmp_path, row(1), row(2))
    with pytest.raises(OperatorError, match="row 2 differs"):
        append(tmp_path, row(2, "redrawn"), row(3))
    assert append(tmp_path) == [row(1), row(2)]


def test_a_torn_row_is_written_again(tmp_path: Path) -> None:
    append(tmp_path, row(1), row(2))
    [path] = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size - 3)
    assert head(tmp_path) == row(1)[:2]
    assert append(tmp_path, row(2)) == [row(1), row(2)]


async def test_a_cancelled_append_is_finished_before_the_next_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow, and the caller ends meanwhile: the rows are on the disk once, in order."""
    begun, may_end = threading.Event(), threading.Event()
    sync = os.fsync

    def slow_sync(descriptor: int) -> None:
        begun.set()
        assert may_end.wait(120)
        sync(descriptor)

    witness = WitnessFile(tmp_path)
    assert await witness.head("visits") is None
    monkeypatch.setattr(os, "fsync", slow_sync)
    first = asyncio.create_task(witness.append("visits", [row(1)]))
    while not begun.is_set():  # noqa: ASYNC110  (a thread sets it)
        await asyncio.sleep(0.001)  # the event loop goes on while the disk works
    first.cancel()
    second = asyncio.create_task(witness.append("visits", [row(1), row(2)]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not first.done()
    may_end.set()
    await asyncio.wait([first, second])
    assert first.cancelled()
    assert await witness.rows("visits", 0) == [row(1), row(2)]
    witness.close()


def test_a_stream_s_name_cannot_leave_the_directory(tmp_path: Path) -> None:
    append(tmp_path / "witness", row(1, stream="../sales"), stream="../sales")
    assert [path.name for path in tmp_path.iterdir()] == ["witness"]


NULL = Refusal("0", 7, Reason.NULL, '{"at": null, "name": "Zoë\n"}'.encode())


class Letters:
    """The dead letters of one source, with a clock that the test moves."""

    def __init__(self, directory: Path, keep_s: float = 80, most_bytes: int = 10**6, content: bool = True):
        self.directory = directory
        self.now_s = 1e9
        self.log = DeadLetterFiles(directory, Keeping(keep_s, most_bytes, content), lambda: self.now_s)

    def write(self, *refusals: Refusal, stream: str | None = None) -> int:
        """Write dead letters; return how many are new."""
        [written] = asyncio.run(self.log.write(refusals, (stream,)))
        return written

    def write_for(self, *positions: int, stream: str | None = None, size: int = 0) -> int:
        """Write one dead letter per position, each for a record of ``size`` bytes."""
        return self.write(*(Refusal("0", at, Reason.NULL, b"x" * size) for at in positions), stream=stream)

    def kept(self) -> list[dict[str, Any]]:
        """Return the letters that are on the disk, oldest first."""
        lines = [line for file in self.files() for line in file.read_bytes().splitlines()]
        return [json.loads(line) for line in lines]

    def positions(self) -> list[int]:
        """Return the positions of the refused records."""
        return [letter["position"] for letter in self.kept()]

    def files(self) -> list[Path]:
        """Return the files, oldest first."""
        return sorted(self.directory.iterdir()) if self.directory.exists() else []

    def close(self) -> None:
        """Close the file."""
        self.log.close()


def test_dead_letters_say_where_why_and_what(tmp_path: Path) -> None:
    with closing(Letters(tmp_path / "letters")) as letters:
        letters.write()
        assert not letters.directory.exists()
        binary = Refusal("1", 9, Reason.UNDECODABLE, b"\xff\xfe")
        letters.write(NULL, binary)
        first, second = letters.kept()
        assert first == {"partition": "0", "position": 7, "reason": "null", "record": NULL.record.decode()}
        assert base64.b64decode(second.pop("record_base64")) == binary.record
        assert second == {"partition": "1", "position": 9, "reason": "undecodable"}
        [file] = letters.files()
        assert file.stat().st_mode & 0o777 == 0o600
        assert letters.directory.stat().st_mode & 0o777 == 0o700


def test_without_content_a_letter_says_where_and_why_only(tmp_path: Path) -> None:
    with closing(Letters(tmp_path, content=False)) as letters:
        letters.write(NULL, stream="visits")
        bytes_ = len(NULL.record)
        place = {"partition": "0", "position": 7, "streams": ["visits"]}
        assert letters.kept() == [place | {"reason": "null", "bytes": bytes_}]


def test_streams_that_refuse_the_same_record_share_a_letter_unless_they_have_one(tmp_path: Path) -> None:
    with closing(DeadLetterFiles(tmp_path, Keeping(80, 10**6, content=False))) as files:
        bad = Refusal("0", 8, Reason.BAD_TIME, b"")
        assert asyncio.run(files.write([bad], ("sales",))) == [1]
        assert asyncio.run(files.write([NULL, bad], ("visits", "sales", "orders"))) == [2, 1, 2]
        [file] = tmp_path.iterdir()
        kept = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [(letter["position"], letter["streams"]) for letter in kept] == [
        (8, ["sales"]),
        (7, ["visits", "sales", "orders"]),
        (8, ["visits", "orders"]),
    ]


def test_a_letter_is_written_once_per_stream_and_again_only_after_a_restart(tmp_path: Path) -> None:
    with closing(Letters(tmp_path)) as letters:
        assert letters.write_for(0, 1, stream="visits") == 2
        assert letters.write_for(1, 2, stream="visits") == 1  # the batch, read again, has one more record
        assert letters.write_for(0, stream="sales") == 1
        assert letters.write_for(0) == 1
        assert letters.write_for(0, 1, 2, stream="visits") == 0
    once = [(0, ["visits"]), (1, ["visits"]), (2, ["visits"]), (0, ["sales"]), (0, None)]
    with closing(Letters(tmp_path)) as letters:
        assert letters.write_for(0, stream="visits") == 1
        places = [(letter["position"], letter.get("streams")) for letter in letters.kept()]
    assert places == [*once, (0, ["visits"])]  # same position and stream: known as a repeat


def test_the_last_letters_are_remembered_however_many_there_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_file, "_REMEMBERED", 5)
    with closing(Letters(tmp_path)) as letters:
        batches = [range(10 * batch, 10 * batch + 7) for batch in range(9)]
        assert [letters.write_for(*batch) for batch in batches for _ in range(2)] == [7, 0] * 9
        assert letters.write_for(*range(7)) == 7, "the first ones are forgotten"


def test_as_many_records_are_remembered_however_many_streams_refuse_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_file, "_REMEMBERED", 5)
    refused = [Refusal("0", position, Reason.NULL, b"") for position in range(3)]
    with closing(Letters(tmp_path)) as letters:
        assert letters.write_for(9) == 1
        assert asyncio.run(letters.log.write(refused, ("a", "b", "c", "d", "e"))) == [3] * 5
        assert letters.write_for(9) == 0


def test_letters_that_a_failing_disk_took_are_counted_and_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full, real = [False, True], LineLog.append

    def append(file: LineLog, lines: Iterable[bytes]) -> None:
        if full and full.pop(0):
            raise OSError("the disk is full")
        real(file, lines)

    monkeypatch.setattr(LineLog, "append", append)
    with closing(Letters(tmp_path, most_bytes=80_000)) as letters:
        assert letters.write_for(*range(6), size=4_000) == 2, "a file has room for two"
        assert caplog.messages == ["dead letters: the disk is full; records are refused without a letter"]
        assert letters.write_for(*range(6), size=4_000) == 4
        assert letters.positions() == list(range(6))


def test_a_file_that_expires_meanwhile_loses_no_letter(tmp_path: Path) -> None:
    with closing(Letters(tmp_path)) as letters:
        (tmp_path / "1.ndjson").symlink_to(tmp_path / "gone")  # in the directory, and not there any more
        assert letters.write_for(1) == 1


def test_letters_are_deleted_at_their_age_and_not_much_earlier(tmp_path: Path) -> None:
    """This also holds if nothing more is refused, and after a restart, which continues the last file."""
    for second in range(200):
        with closing(Letters(tmp_path / "clicks")) as letters:
            letters.now_s += second
            letters.write_for(second)
            expire(tmp_path, 80, letters.now_s)
            assert letters.positions() == list(range(letters.positions()[0], second + 1))
            assert max(0, second - 79) <= letters.positions()[0] <= max(0, second - 69)
            assert len(letters.files()) <= 9
    expire(tmp_path, 80, letters.now_s + 70)
    assert letters.positions() != []
    expire(tmp_path, 80, letters.now_s + 80)
    assert letters.files() == []


def test_a_file_of_another_name_is_as_old_as_its_last_letter(tmp_path: Path) -> None:
    (tmp_path / "clicks.ndjson").write_bytes(b"{}\n")
    os.utime(tmp_path / "clicks.ndjson", (1e9, 1e9))
    expire(tmp_path, 80, 1e9 + 79)
    assert (tmp_path / "clicks.ndjson").exists()
    expire(tmp_path, 80, 1e9 + 80)
    assert not (tmp_path / "clicks.ndjson").exists()


def test_the_oldest_letters_are_deleted_when_there_is_no_room(tmp_path: Path) -> None:
    def size() -> int:
        return sum(file.stat().st_size for file in tmp_path.iterdir())

    with closing(Letters(tmp_path, most_bytes=80_000)) as letters:
        for position in range(0, 400, 2):
            assert letters.write_for(position, position + 1, size=1_000) == 2
            assert size() <= 80_000
        kept = letters.positions()
        assert kept == list(range(kept[0], 400))
        assert size() > 60_000
        assert letters.write_for(*range(400, 800), size=1_000) == 400  # more than fits in one write
        assert size() <= 80_000
        assert letters.positions()[-1] == 799
        letters.write_for(800, size=50_000)  # more than a file has room for
        assert letters.kept()[-1]["bytes"] == 50_000
        assert "record" not in letters.kept()[-1]


def test_a_failing_disk_is_logged_and_delays_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "letters").write_text("a file in the directory's place")
    with closing(Letters(tmp_path / "letters" / "clicks")) as letters:
        assert letters.write_for(1) == 0
        [line] = [record.getMessage() for record in caplog.records]
        assert line.startswith("dead letters: ")
        assert line.endswith("records are refused without a letter")
        (tmp_path / "letters").unlink()
        assert letters.write_for(1) == 1


async def test_letters_of_all_workers_and_of_sources_that_are_gone_expire_while_a_worker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_file, "LOOK_EVERY_S", 0.01)
    old = [tmp_path / "dead_letters/gone/1.ndjson", tmp_path / "worker-3/dead_letters/clicks/1.ndjson"]
    old.append(tmp_path / "dead_letters/ahead/9999999999999999.ndjson")  # written while a clock was wrong
    now_us = time.time_ns() // 1_000
    others = [tmp_path / f"dead_letters/clicks/{now_us}.ndjson", tmp_path / "witness/1.ndjson"]
    for file in (*old, *others):
        file.parent.mkdir(parents=True)
        file.touch()
    async with asyncio.timeout(PATIENCE_S), dead_letter_file.expiring_letters(tmp_path, 60):
        while any(file.exists() for file in old):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert all(file.exists() for file in others)
