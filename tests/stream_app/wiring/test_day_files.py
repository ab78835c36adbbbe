"""Whole days as Parquet files: each day once, the same bytes whenever it is written, and after any crash."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.answers.days import whole_days
from stream_app.core.counting.keys import KeyField, KeyList
from stream_app.core.records import EpochRecord, History, PublicState, Trimmed
from stream_app.ports import OperatorError
from stream_app.sinks.day_files import MANIFEST, DayFiles, day_files
from stream_app.wiring.day_files import add_days
from tests.models.memory import MemoryStore
from tests.stream_app.published import FIRST_BIN, Published, declared
from tests.stream_app.published_axes import PublishedKeys, PublishedSums, sales_of

pytestmark = pytest.mark.slow

DAYS = 3
EPOCH_BINS = 64  # an edge of two epochs lies inside a day
TREE: dict[str, Any] = {
    "epoch_bins": EPOCH_BINS,
    "branching": (2,) * 6,
}  # nodes go on beyond the end of a day
KINDS: dict[str, Callable[[MemoryStore], Published]] = {
    "events": lambda store: Published(store, **TREE),
    "ahead": lambda store: Published(store, **TREE, release="anticipating"),
    "keys": lambda store: PublishedKeys(store, **TREE, carriers=("AA", "B6", "UA"), other=True),
    "sums": lambda store: PublishedSums(store, **TREE),
}


def cells_of(stream: Published, bins: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    if isinstance(stream, PublishedSums):
        return sales_of(stream, bins)[0]
    return np.random.default_rng(4).poisson(20, (bins, stream.strategy.width))


async def release(stream: Published, step: int, after: Callable[[], Any] | None = None) -> None:
    """Release all days in steps of bins; call ``after`` each of them."""
    cells = cells_of(stream, DAYS * 24 + 1)
    for first in range(0, len(cells), EPOCH_BINS):
        await stream.open(first // EPOCH_BINS, FIRST_BIN + first)
        for at in range(first, min(first + EPOCH_BINS, len(cells)), step):
            await stream.close_cells(cells[at : min(at + step, first + EPOCH_BINS)])
            if after is not None:
                await after()


async def add(stream: Published, folder: Path) -> str:
    with day_files(f"{folder}") as files:
        return await add_days(stream.store.reader(), stream.name, files)


def opened(place: str) -> None:
    with day_files(place):
        pass


def contents(folder: Path) -> dict[str, bytes]:
    return {f"{file.relative_to(folder)}": file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def rows(data: bytes) -> list[dict[str, Any]]:
    from pyarrow import parquet

    found: list[dict[str, Any]] = parquet.read_table(io.BytesIO(data)).to_pylist()
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_files_are_the_same_whenever_days_are_written(kind: str, tmp_path: Path) -> None:
    """A view of all that is released now would give other numbers: later nodes make estimates better."""
    stream = KINDS[kind](MemoryStore())
    seen: dict[str, bytes] = {}

    async def add_now() -> None:
        await add(stream, tmp_path / "often")
        now = contents(tmp_path / "often")
        assert {path: now[path] for path in seen if path != MANIFEST} == {
            path: data for path, data in seen.items() if path != MANIFEST
        }
        seen.update(now)

    await release(stream, 5, add_now)
    assert await add(stream, tmp_path / "once") == f"{stream.name}: 3 new days, until 2013-01-03"
    assert contents(tmp_path / "once") == contents(tmp_path / "often")
    assert "no new day is whole" in await add(stream, tmp_path / "once")
    tables = {"bin", "key_bin"} if kind in ("keys", "sums") else {"bin"}
    tables |= {"sum_bin", "key_sum_bin"} if kind == "sums" else set()
    files = json.loads(seen[MANIFEST])["files"]
    assert {(one["path"].split("/")[1], one["day"]) for one in files} == {
        (table, f"2013-01-0{day}") for table in tables for day in (1, 2, 3)
    }
    for one in files:
        data = seen[one["path"]]
        assert (one["bins"], one["segment"], one["bytes"]) == (24, 1, len(data))
        assert one["sha256"] == hashlib.sha256(data).hexdigest()
        assert one["rows"] == len(found := rows(data))
        assert min(row["start"] for row in found) == datetime.fromisoformat(one["start"])
        assert max(row["end"] for row in found) == datetime.fromisoformat(one["end"])


async def test_keys_add_up_to_all_events_and_have_the_numbers_of_the_api(tmp_path: Path) -> None:
    stream = PublishedKeys(MemoryStore(), **TREE, carriers=("AA", "B6", "UA"), other=True)

    await release(stream, 8)
    await add(stream, tmp_path)
    found = contents(tmp_path)
    for day in (1, 2, 3):
        whole = {row["start"]: row["value"] for row in rows(found[f"carriers/bin/2013-01-0{day}.parquet"])}
        keys = rows(found[f"carriers/key_bin/2013-01-0{day}.parquet"])
        for start, value in whole.items():
            assert sum(row["value"] for row in keys if row["start"] == start) == pytest.approx(value)
        assert {row["key"] for row in keys} == {"AA", "B6", "UA", "other"}


async def test_no_field_of_a_key_hides_a_column_of_the_file(tmp_path: Path) -> None:
    stream = PublishedKeys(MemoryStore(), **TREE, carriers=("N", "S"))
    fields = KeyField("end", ("N", "S"), False), KeyField("Value", ("a",), False)
    stream.strategy = replace(stream.strategy, declared=stream.declared(keys=KeyList(fields=fields)))
    await release(stream, 8)
    await add(stream, tmp_path)
    found = rows(contents(tmp_path)["carriers/key_bin/2013-01-02.parquet"])
    assert {(row["key"], row["field_end"], row["field_Value"]) for row in found} == {
        ("N/a", "N", "a"),
        ("S/a", "S", "a"),
    }
    assert all(row["end"] - row["start"] == timedelta(hours=1) for row in found)
    assert all(isinstance(row["value"], float) for row in found)


class Died(Exception):
    """The process was killed."""


@contextmanager
def dying(files: DayFiles, after: int) -> Iterator[list[int]]:
    """Let the process die at a write: the file is then half there under another name, or not at all."""
    written, write = [0], files._place.write

    def write_or_die(path: str, data: bytes) -> None:
        written[0] += 1
        if written[0] > after:
            raise Died
        write(path, data)

    files._place.write = write_or_die  # type: ignore[method-assign]
    yield written


@pytest.mark.parametrize(("every_days", "writes"), [(30, 7), (1, 9)])  # of six files, and the manifest
async def test_a_crash_at_any_write_leaves_listed_files_that_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every_days: int, writes: int
) -> None:
    monkeypatch.setattr("stream_app.wiring.day_files.SAVE_EVERY_DAYS", every_days)
    stream = KINDS["keys"](MemoryStore())

    await release(stream, 24)
    await add(stream, tmp_path / "whole")
    for after in range(20):
        folder = tmp_path / f"{after}"
        try:
            with day_files(f"{folder}") as files, dying(files, after):
                await add_days(stream.store.reader(), stream.name, files)
        except Died:
            listed = json.loads(contents(folder).get(MANIFEST, b'{"files": []}'))["files"]
            assert len(listed) == (2 * (after // 3) if every_days == 1 else 0)
            for one in listed:
                assert hashlib.sha256((folder / one["path"]).read_bytes()).hexdigest() == one["sha256"]
        else:
            assert after == writes
            break
        await add(stream, folder)
        assert contents(folder) == contents(tmp_path / "whole")


async def test_an_export_that_lists_less_takes_nothing_from_the_manifest(tmp_path: Path) -> None:
    """Two exports into one bucket, which cannot be locked."""
    stream = KINDS["events"](MemoryStore())

    with day_files(f"{tmp_path}") as locked:
        early = DayFiles(locked.target, locked._place)
    await release(stream, 24)
    await add(stream, tmp_path)
    early.add("other/bin/2013-01-01.parquet", b"", {"stream": "other", "day": "2013-01-01", "seq": 1})
    early.save()
    assert len(json.loads((tmp_path / MANIFEST).read_text())["files"]) == DAYS + 1


async def test_places_that_are_not_ours_are_refused_in_one_line(tmp_path: Path) -> None:
    ours = f"{tmp_path / 'ours'}"
    stream, other = (KINDS["events"](MemoryStore()) for _ in range(2))
    other.noise = type(other.noise)(2)

    for one in (stream, other):
        await release(one, 24)
    await add(stream, tmp_path / "ours")
    with pytest.raises(OperatorError, match="is of another store"):
        await add(other, tmp_path / "ours")
    with day_files(ours), pytest.raises(OperatorError, match="another export"):
        opened(ours)
    for text, said in (("{}", "is no manifest"), ('{"private_counts_parquet": 2, "files": []}', "version 2")):
        (tmp_path / "ours" / MANIFEST).write_text(text)
        with pytest.raises(OperatorError, match=said):
            opened(ours)
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="cannot be used"):
        opened(f"{tmp_path / 'file'}")


DAY_US = 86_400_000_000


@given(
    bin_us=st.sampled_from([DAY_US // 24, DAY_US // 7, 7 * 3_600_000_000, 7 * DAY_US, DAY_US]),
    epochs=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 60)), min_size=1, max_size=4),
    hidden=st.integers(0, 30),
    ended=st.booleans(),
    trimmed=st.booleans(),
)
def test_a_day_is_whole_if_the_next_bin_begins_after_it(
    bin_us: int, epochs: list[tuple[int, int]], hidden: int, ended: bool, trimmed: bool
) -> None:
    records, following, seq = list[EpochRecord](), 100_000, 0
    for number, (gap, bins) in enumerate(epochs):
        records.append(EpochRecord(number, following + gap, bins, seq + 1, "h"))
        following, seq = following + gap + bins, seq + bins
    visible = max(0, seq - hidden)
    records = [one for one in records if one.first_seq <= visible + 1]
    gone = Trimmed(-1, records[0].first_bin - 1, 1, "h") if trimmed else Trimmed()
    history = History(retired_us=1) if ended else None
    state = PublicState(b"", tuple(records), visible, history, trimmed=gone)
    found = whole_days(declared("1", bin_us), state)

    def day(bin: int) -> str:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=bin * bin_us)).date().isoformat()

    seen = [one.first_bin + at for one in records for at in range(one.bins) if one.first_seq + at <= visible]
    following = seen[-1] + 1 if seen and seen[-1] >= records[-1].first_bin else records[-1].first_bin
    whole = {day(bin) for bin in seen} - ({day(records[0].first_bin - 1)} if trimmed else set())
    whole -= set() if ended else {day(following)}
    assert set(found) == whole
    assert [bin for parts in found.values() for part in parts for bin in range(part.first, part.stop)] == [
        bin for bin in seen if day(bin) in whole
    ]
    assert list(found) == sorted(found)
