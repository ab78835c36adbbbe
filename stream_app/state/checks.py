"""Checks of a call's arguments that need no state. A store makes them before it changes anything.

Positions and cuts are secret, so no message contains one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.counting.bins import LARGEST_APPLY_CELLS
from stream_app.core.counting.bounding import CELL_BYTES, ID_BYTES, Bounds
from stream_app.core.kinds.pages import StoredNoise
from stream_app.core.records import Cut, EpochRecord
from stream_app.core.releases.tiles import LARGEST_TILE_BYTES
from stream_app.core.store_writes import Ahead, Apply, Release, Users

# Lua in Redis calculates in doubles, which are exact up to this number.
LARGEST_INTEGER = 2**53
# The most users' cells, and the most shards, in one tally: other streams must not wait long.
LARGEST_TALLY_FIELDS = 4_000
LARGEST_TALLY_SHARDS = 64
# The least entries of a shard that are merged: with more a script takes longer, fewer cost more.
LEAST_MERGED = 4_096
LARGEST_KEYS_OF_USER = 1_000  # chosen_keys.lua numbers the pages of a user's keys in one byte
LARGEST_NOISE_BYTES = (1 << 20) + 64  # a page of a mebibyte, and the overhead of encryption


def check_integers(**named: int) -> None:
    """Raise ValueError for an integer that a script could not represent."""
    for name, value in named.items():
        if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise ValueError(f"{name} is beyond 2^53; the store cannot hold it exactly")


def check_apply(change: Apply) -> None:
    """Raise ValueError unless the change moves the position forward and its arrays fit together."""
    check_integers(expected=change.expected, new=change.new, last_cut_bin=change.last_cut_bin)
    if not 0 <= change.expected < change.new:
        # A change that does not move the position could not be distinguished from its own retry.
        raise ValueError("apply: the new position is not beyond the expected one; apply a record or more")
    if change.below is not None and change.new > change.below.position:
        raise ValueError("apply: the new position is beyond the cut below which its records are said to lie")
    check_integers(**change.operator_counts)
    _check_rows(change)
    if change.ahead is not None:
        _check_rows(change.ahead)


def check_changes(changes: Sequence[Apply]) -> None:
    """Raise ValueError unless each change can be applied, and all of them together in one short script."""
    for change in changes:
        check_apply(change)
    cells = sum(len(change.cells) for change in changes)
    if cells > LARGEST_APPLY_CELLS:
        raise ValueError(f"apply: {cells} cells in one call are more than {LARGEST_APPLY_CELLS}; divide it")


def _check_rows(change: Apply | Ahead) -> None:
    cells = len(change.cells)
    if change.users is not None:
        _check_users(change.users, change.cells, change.deltas)
    if not (change.bins.shape == change.cells.shape == change.deltas.shape == (cells,)):
        raise ValueError("apply: bins, cells and deltas must be three vectors of one length")
    if cells > LARGEST_APPLY_CELLS:
        raise ValueError(
            f"apply: {cells} cells are more than {LARGEST_APPLY_CELLS}; split the slice at a position"
        )
    if cells and (
        (change.cells.dtype.kind != "V" and int(change.cells.min()) < 0)
        or int(change.deltas.min()) < 1
        or int(np.abs(change.bins).max()) > LARGEST_INTEGER
        or int(change.deltas.max()) > LARGEST_INTEGER
    ):
        raise ValueError("apply: cells must be at least 0, deltas at least 1, and bins within 2^53")


def _check_users(users: Users, cells: NDArray[Any], deltas: Int64Array) -> None:
    rows, largest = len(cells), 0 if cells.dtype.kind == "V" else int(cells.max(initial=0))
    if users.ids.shape != (rows, ID_BYTES) or users.windows.shape != (rows,):
        raise ValueError(f"apply: each row needs a user of {ID_BYTES} bytes and a window")
    if not users.key_marks.keys() >= set(users.windows.tolist()):
        raise ValueError("apply: each window needs the mark of its key of users")
    if max(largest, int(deltas.max(initial=0))) >= 1 << 8 * CELL_BYTES:
        raise ValueError(f"apply: users' cells must be below 2^{8 * CELL_BYTES}, and so must their numbers")


def check_tally(bounds: Bounds, up_to_bin: int) -> None:
    """Raise ValueError for bounds that the script could not keep."""
    check_integers(max_events=bounds.caps.l1, up_to_bin=up_to_bin)
    if (bounds.caps.max_keys or 0) > LARGEST_KEYS_OF_USER:
        raise ValueError(f"tally: {bounds.caps.max_keys} keys of a user; at most {LARGEST_KEYS_OF_USER}")
    if bounds.key_places < 1:
        raise ValueError(f"tally: keys have {bounds.key_places} places; at least 1")
    if bounds.users_at is not None and (bounds.caps.max_keys or bounds.waiting.most):
        raise ValueError("tally: users are counted under a cap on their events alone, of few places")
    if bounds.weight is not None and bounds.weight < 1:
        raise ValueError(f"tally: events have weight {bounds.weight}; at least 1")


def check_read(last_bin: int, sealed_bin: int, untallied: int) -> None:
    """Raise ValueError unless a bin and all bins before it are sealed, and their users' records tallied."""
    if last_bin > sealed_bin:
        raise ValueError(f"read_cells: bin {last_bin} is not sealed; seal it first")
    if untallied:
        raise ValueError(f"read_cells: bin {last_bin}, or one before it, is not tallied; tally it first")


def check_cuts(expected_last_cut_bin: int, cuts: Sequence[Cut]) -> None:
    """Raise ValueError unless cuts rise in bin and do not fall in position."""
    if not cuts:
        raise ValueError("take_cuts: no cut given")
    bin, position = expected_last_cut_bin, 0
    for cut in cuts:
        check_integers(bin=cut.bin, position=cut.position, overdue=cut.overdue)
        if cut.overdue < 0:
            raise ValueError("take_cuts: a cut cannot be known before its bin has closed")
        if cut.bin <= bin or cut.position < position:
            raise ValueError(
                f"take_cuts: the cut of bin {cut.bin} does not follow: bins rise, positions do not fall"
            )
        bin, position = cut.bin, cut.position


def check_epoch(record: EpochRecord) -> None:
    """Raise ValueError unless the record describes an epoch that can start."""
    check_integers(first_bin=record.first_bin, bins=record.bins, first_seq=record.first_seq)
    if record.epoch < 0 or record.bins < 1 or record.first_seq < 1:
        raise ValueError(f"open_epoch: {record} needs epoch >= 0, bins >= 1 and first_seq >= 1")
    if record.last_bin is not None or record.end_reason is not None:
        raise ValueError(f"open_epoch: {record} has already ended")


def check_noise(noise: StoredNoise | None) -> None:
    """Raise ValueError for noise without a name or pages."""
    if noise is not None and (":" in noise.nonce or not noise.nonce or noise.pages < 1):
        raise ValueError("open_epoch: noise needs a nonce without a colon, and at least one page")


def check_noise_page(nonce: str, page: int, data: bytes) -> None:
    """Raise ValueError for a page that is too large, or has no valid nonce and number."""
    if ":" in nonce or not nonce or page < 0:
        raise ValueError("write_noise: a page needs a nonce without a colon, and a number from 0 on")
    if len(data) > LARGEST_NOISE_BYTES:
        raise ValueError(f"write_noise: page {page} has {len(data)} bytes; at most {LARGEST_NOISE_BYTES}")


def check_release(release: Release) -> None:
    """Raise ValueError unless there is one row per bin and one append per tile, within the tile's limit."""
    check_integers(first_bin=release.first_bin, last_bin=release.last_bin, expected_seq=release.expected_seq)
    bins = release.last_bin - release.first_bin + 1
    if bins < 1 or len(release.rows) != bins:
        raise ValueError(f"release: {len(release.rows)} rows for {bins} bins; one a bin")
    if len({append.key for append in release.tiles}) != len(release.tiles):
        raise ValueError("release: a tile is named twice; append to it once")
    for append in release.tiles:
        if append.offset_bytes + len(append.data) > LARGEST_TILE_BYTES:
            raise ValueError(f"release: tile {append.key} would pass {LARGEST_TILE_BYTES} bytes")
