"""A small stream for tests of stores: a tree of four bins, and builders of calls and releases."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from stream_app.core.counting.bounding import CapWindows
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import PUBLISHED, node_table
from stream_app.core.records import Cut, EpochRecord, LedgerEntry, StreamState
from stream_app.core.releases.tiles import tile_appends
from stream_app.core.store_writes import Ahead, Apply, Release, Users
from stream_app.core.strategy import Strategy
from tests.models.choosing import ids_of
from tests.stream_app.declared import declared_of

WIDTH = 3
BINS = 4
FIRST_BIN = 10
SHAPE = TreeShape((2, 2))
STRATEGY = Strategy(
    stream="departures",
    declared=declared_of(source="flights", epoch_bins=BINS),
    kind=kind_of(TreeDesign(SHAPE, BINS, Fraction(1), (Fraction(1, 2), Fraction(1, 2))), WIDTH),
)
TEXT, HASH = STRATEGY.to_json(), STRATEGY.hash
EPOCH = EpochRecord(epoch=0, first_bin=FIRST_BIN, bins=BINS, first_seq=1, strategy_hash=HASH)
NEXT_EPOCH = replace(EPOCH, epoch=1, first_bin=FIRST_BIN + BINS, first_seq=1 + BINS)
WINDOWS = CapWindows(FIRST_BIN + BINS - 1, BINS)
ENTRY = LedgerEntry("flights", "departures", 0, 0, 3_600_000_000, "1/1", "event", HASH)


def apply(
    expected: int,
    new: int,
    cells: Sequence[tuple[int, int, int]] = (),
    *,
    last_cut_bin: int = FIRST_BIN - 1,
    due_us: int | None = None,
    partition: str = "0",
    strategy_hash: str = HASH,
    below: Cut | None = None,
    epoch: int = 0,
) -> Apply:
    """Return a change that adds (bin, cell, delta) to the counts of cells."""
    columns = np.array(cells, dtype=np.int64).reshape(-1, 3).T
    change = Apply(strategy_hash, partition, expected, new, last_cut_bin, due_us, *columns)
    return replace(change, below=below, epoch=epoch)


def setting_aside(
    expected: int,
    new: int,
    far: Sequence[tuple[int, int, int]],
    places: Sequence[tuple[int, int]] = (),
    **how: Any,
) -> Apply:
    """Return a change that sets records aside.

    Args: far, (bin, cell, number of records); places, (bin, position) of some of the records.
    """
    rows = apply(expected, new, far, **how)
    change = apply(expected, new, **how)
    return replace(change, ahead=Ahead(rows.bins, rows.cells, rows.deltas, None, places))


def setting_users_aside(expected: int, new: int, far: Sequence[tuple[int, int, str]], **how: Any) -> Apply:
    """Return a change that sets records of users aside. Args: far, (bin, cell, user)."""
    rows = of_users(expected, new, far, **how)
    how = {name: value for name, value in how.items() if name not in ("key_mark", "later_mark")}
    ahead = Ahead(rows.bins, rows.cells, rows.deltas, rows.users)
    return replace(apply(expected, new, **how), ahead=ahead)


def of_users(
    expected: int,
    new: int,
    records: Sequence[tuple[int, int, str]],
    *,
    last_cut_bin: int = FIRST_BIN - 1,
    partition: str = "0",
    key_mark: bytes = bytes(16),
    later_mark: bytes | None = None,
) -> Apply:
    """Return a change with the records of users, in a stream with a cap per user.

    Args: records, (bin, cell, user); key_mark, of the key of their hashes; later_mark, of the key in all
        windows but the first; None: the same key.
    """
    numbers = Counter(records)
    rows = [(bin, cell, number) for (bin, cell, _), number in numbers.items()]
    change = apply(expected, new, rows, last_cut_bin=last_cut_bin, partition=partition)
    windows = WINDOWS.of(change.bins)
    later = later_mark or key_mark
    marks = {window: later if window > FIRST_BIN + BINS - 1 else key_mark for window in windows.tolist()}
    ids, places = ids_of([user for _, _, user in numbers], windows, lambda window: 2 * marks[window])
    return replace(change, users=Users(ids[places], windows, marks))


def node_value(epoch: int, level: int, index: int, cell: int) -> int:
    """Return a different number for each cell of each node."""
    return 10_000 * epoch + 1_000 * (level + 1) + 10 * index + cell


def expected_rows(epoch: int, level: int, first: int, count: int) -> list[list[int]]:
    """Return the rows that the tiles of a level must hold."""
    return [
        [node_value(epoch, level, row, cell) for cell in range(WIDTH)] for row in range(first, first + count)
    ]


def release_of(state: StreamState, bins: int, attempt: str = "a") -> Release:
    """Return the release of the next bins, with the tiles of the nodes that they complete."""
    epoch = state.epoch
    done = state.released_bin - epoch.first_bin + 1
    tiles = []
    for level in (*SHAPE.levels, 0):
        table = node_table(level) if level else PUBLISHED
        width = SHAPE.widths[level] if level else 1
        first, end = done // width, (done + bins) // width
        rows = np.array(expected_rows(epoch.epoch, level, first, end - first), dtype=np.int64)
        tiles += tile_appends(epoch.epoch, table, first, rows.reshape(-1, WIDTH))
    rows_text = [f"row {state.seq + i + 1} {attempt}".encode() for i in range(bins)]
    return Release(
        strategy_hash=HASH,
        epoch=epoch.epoch,
        expected_seq=state.seq,
        expected_head=state.head,
        first_bin=state.released_bin + 1,
        last_bin=state.released_bin + bins,
        rows=rows_text,
        head=hashlib.sha256(state.head.encode() + b"".join(rows_text)).hexdigest(),
        tiles=tiles,
        counter=f"snapshot after {bins}".encode(),
    )
