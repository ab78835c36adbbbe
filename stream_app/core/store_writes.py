"""What the loops ask the store to write in one step: cuts, applied records, released bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.epochs import FoundKeys
from stream_app.core.records import Cut, Origin, PartitionState


@dataclass(frozen=True, slots=True)
class PartitionCuts:
    """Cuts to take in one partition.

    Args: expected_last_cut_bin, the last bin with a cut there; max_ahead_bins, how far beyond the first cut's
        ``open_bin`` a record may be dated that was set aside.
    """

    partition: str
    expected_last_cut_bin: int
    cuts: Sequence[Cut]
    max_ahead_bins: int = 0

    @property
    def open_bin(self) -> int:
        return self.cuts[0].open_bin


@dataclass(frozen=True, slots=True)
class Users:
    """For capped streams, the user of each row of a slice. SECRET.

    Args: ids, a keyed hash of each row's user, shape (n, 16); windows, of each row, named by its last bin,
        shape (n,); key_marks, of each window's key: under another key, a window's caps would begin anew.
    """

    ids: NDArray[np.uint8]
    windows: Int64Array
    key_marks: Mapping[int, bytes]


class Waiting(NamedTuple):
    """How users' records wait until they are tallied (``bounding.Bounds.waiting``).

    Args:
        most: how many places (with ``of_key``: keys) of a user in a bin may count, the first by hash; 0: all.
        of_key: how many places of one key may count.
        keyed: whether places are keyed hashes.
    """

    most: int = 0
    of_key: int = 0
    keyed: bool = False


ALL_WAIT = Waiting()


@dataclass(frozen=True, slots=True)
class Ahead:
    """Records of a slice dated so far ahead that only the next cut can accept them. SECRET.

    The store keeps them apart from the cells and decides about them when the next cut is taken, because the
    cut proves before which instant they arrived. Until then nothing waits for them.
    Args: bins, cells, deltas, users, as in ``Apply``, with the records' own bins; places, (own bin, position)
        of each record, for dead letters if the records are refused; weight, the number that each record
        adds to all its cells together.
    """

    bins: Int64Array
    cells: NDArray[Any]  # int64; of users also keyed places (``bounding.KeyedPlaces``)
    deltas: Int64Array
    users: Users | None = None
    places: Sequence[tuple[int, int]] = ()
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Apply:
    """One slice of one partition: add ``deltas`` to cells and move the position.

    Each cell appears once. With ``users``, each pair of user and cell appears once. The store keeps these
    numbers apart from the cells, and decides which records count when their bin is sealed (``Store.tally``).
    ``below`` is a known cut at or beyond ``new``, if there is one. Later cuts do not change the bins of
    records below it, so the store then checks only that it has this cut.
    ``operator_counts`` are added to the operator's counters of these names, in the same step. The
    number of ``records`` with a bin, and of those that a condition has ``left_out``, are not stored.
    ``waiting`` says how users' records wait until their bin is sealed.
    Of rows of an engine, ``origins`` are as these leave them, and ``closes_bin`` is the last bin they cut.
    ``epoch`` is the one whose rules decided about the records.
    """

    strategy_hash: str
    partition: str
    expected: int
    new: int
    last_cut_bin: int  # the cuts that the caller binned against
    due_us: int | None  # when bin last_cut_bin + 1 closes, by the store's clock; None: a virtual clock
    bins: Int64Array
    cells: NDArray[Any]  # int64; of users also keyed places (``bounding.KeyedPlaces``)
    deltas: Int64Array
    users: Users | None = None
    ahead: Ahead | None = None
    operator_counts: Mapping[str, int] = field(default_factory=dict)
    records: int = 0
    left_out: int = 0
    below: Cut | None = None
    waiting: Waiting = ALL_WAIT
    origins: tuple[Origin, ...] = ()
    closes_bin: int | None = None
    epoch: int = 0

    def applied_to(self, state: PartitionState) -> PartitionState:
        """Return the state of the partition after this slice."""
        moved = state.moved(self.new)
        base_bin = moved.base_bin if self.closes_bin is None else self.closes_bin
        return replace(moved, base_bin=base_bin, origins=self.origins)


@dataclass(frozen=True, slots=True)
class TileKey:
    """The address of one tile: a block of rows and cells of one public table of one epoch."""

    epoch: int
    table: str
    row_block: int
    cell_block: int


@dataclass(frozen=True, slots=True)
class TileAppend:
    """Rows to append to one public tile. ``offset_bytes`` is its expected length, checked by the script."""

    key: TileKey
    offset_bytes: int
    data: bytes  # little-endian int64
    fills: bool = False  # the tile is then full and never changes again


@dataclass(frozen=True, slots=True)
class Release:
    """Bins released in one step: chain rows, tiles and the counter's new secret state."""

    strategy_hash: str
    epoch: int
    expected_seq: int
    expected_head: str
    first_bin: int
    last_bin: int
    rows: Sequence[bytes]  # one per bin; the message bytes that every output repeats
    head: str  # hash of the last row
    tiles: Sequence[TileAppend]
    counter: bytes  # secret
    found: FoundKeys | None = None  # by the last bin
    shown_cells: Sequence[int] | None = None  # whose counts no release needs any more; None: all
    past_bins: Sequence[int] = ()  # released before, which still have counts of the keys in ``found``
    past_cells: Sequence[int] = ()  # of these keys
