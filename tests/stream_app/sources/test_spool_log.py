"""A spool is read as one log: each batch once, only whole and durable ones, over parts and restarts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from stream_app.ports import OperatorError
from stream_app.receiving import spool_writer
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from stream_app.sources.spool_log import SpoolSource
from stream_app.spool import delete_parts, parts
from tests.stream_app.one_source import AT, end_of, event_line, read, times

DAY_US = 86_400_000_000


class Spool:
    """A writer and a source over one directory, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_us = 1_000
        self.writer = SpoolWriter(directory, 1 << 30, KnownKeys(DAY_US, 100), lambda: self.now_us)
        self.source = SpoolSource(directory, AT, directory.parent / "notes")

    def send(self, *times_us: int) -> None:
        """Store one batch."""
        self.writer.append([Incoming(b"".join(map(event_line, times_us)))])

    def read(self, position: int = 0) -> tuple[list[int], int]:
        """Return the times of all events from a position, and where they end."""
        batches, end = read(self.source, position)
        return times(batches), end

    def end(self) -> int:
        """Return where the log ends now: the next cut."""
        return end_of(self.source)


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Yield a spool with parts of two events."""
    monkeypatch.setattr(spool_writer, "PART_BYTES", 15)
    spool = Spool(tmp_path / "spool")
    yield spool
    spool.writer.close()
    asyncio.run(spool.source.close())


def test_batches_are_read_over_parts(spool: Spool) -> None:
    for number in range(10):
        spool.send(number, number)
    assert len(parts(spool.directory)) > 4
    found, position = spool.read()
    assert found == [number for number in range(10) for _ in range(2)]
    assert position == spool.end()
    spool.send(77)
    assert spool.read(position)[0] == [77]


def test_a_source_goes_on_from_any_record(spool: Spool) -> None:
    sizes = [len(event_line(number)) for number in range(8)]
    for number in range(0, 8, 2):
        spool.send(number, number + 1)
    for number in range(8):
        asyncio.run(spool.source.close())
        spool.source = SpoolSource(spool.directory, AT, spool.directory.parent / "notes")
        assert spool.read(sum(sizes[:number]))[0] == list(range(number, 8))


def test_bytes_without_a_line_in_batches_are_not_the_log(spool: Spool) -> None:
    spool.send(1)
    end = spool.end()
    last = parts(spool.directory)[-1]
    with last.records.open("ab") as file:
        file.write(event_line(2))
    assert (spool.end(), spool.read()[0]) == (end, [1])


def test_an_end_is_synced_before_it_is_used(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.send(1)
    synced: list[str] = []
    fdatasync = os.fdatasync

    def noted(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).suffix)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", noted)
    spool.end()
    assert synced == [".ndjson", ".batches"]
    spool.end()
    assert len(synced) == 2


def test_an_end_that_cannot_be_synced_is_not_used(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.send(1)

    def refused(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refused)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                spool.end()
    assert spool.read()[0] == [1]


def test_a_spool_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    source = SpoolSource(tmp_path / "later", AT, tmp_path / "notes")
    assert asyncio.run(source.positions_at(["0"], [1])) == {"0": [0]}
    assert asyncio.run(source.read({"0": 0}, 0.0)) == ()
    with pytest.raises(OperatorError, match="not the spool counted so far"):
        asyncio.run(source.read({"0": 5}, 0.0))


def test_old_parts_are_deleted_and_the_rest_is_kept(spool: Spool) -> None:
    for number in range(6):
        spool.now_us = 1_000 + number
        spool.send(number, number)
    before = len(parts(spool.directory))
    assert asyncio.run(spool.source.kept_since_us()) is None
    assert delete_parts(spool.directory, before_us=1_003) == 3
    assert len(parts(spool.directory)) == before - 3
    assert len(list(spool.directory.glob("*.batches"))) == before - 3
    first = asyncio.run(spool.source.first_position("0", None))
    assert spool.read(first)[0] == [3, 3, 4, 4, 5, 5]
    assert asyncio.run(spool.source.kept_since_us()) == 1_003
    assert asyncio.run(spool.source.first_position("0", 1_005)) > first
    with pytest.raises(OperatorError, match="deleted before they were counted"):
        spool.read()


def test_the_last_part_is_never_deleted(spool: Spool) -> None:
    spool.send(1)
    last = parts(spool.directory)[-1]
    delete_parts(spool.directory, before_us=DAY_US)
    assert parts(spool.directory) == [last]
    spool.send(2)
    assert spool.read(last.start)[0] == [1, 2]
