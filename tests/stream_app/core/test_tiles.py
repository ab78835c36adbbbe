"""Rows are appended to tiles and read back from them, in a dictionary of byte strings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.records import TileKey
from stream_app.core.releases.tiles import LARGEST_TILE_BYTES, TileGeometry, join_slices, tile_appends

widths = st.sampled_from([1, 2, 1023, 1024, 1025, 3000])


def stored(tiles: dict[TileKey, bytes], width: int, first: int, count: int) -> np.ndarray:
    pieces = TileGeometry(width).slices(0, PUBLISHED, first, count)
    return join_slices(
        count, width, ((p, tiles[p.key][p.offset_bytes : p.offset_bytes + p.length_bytes]) for p in pieces)
    )


@given(width=widths, steps=st.lists(st.integers(0, 40), max_size=3), data=st.data())
def test_appended_rows_are_read_back(width: int, steps: list[int], data: st.DataObject) -> None:
    total = sum(steps)
    values = np.arange(total * width, dtype=np.int64).reshape(total, width) * -(2**41) + 7
    tiles: dict[TileKey, bytes] = {}
    done = 0
    for step in steps:
        appends = tile_appends(0, PUBLISHED, done, values[done : done + step])
        assert len({append.key for append in appends}) == len(appends)
        for append in appends:
            held = tiles.get(append.key, b"")
            assert len(held) == append.offset_bytes
            tiles[append.key] = held + append.data
            cells = min(width - append.key.cell_block * 1024, 1024)
            assert append.fills == (len(tiles[append.key]) == TileGeometry(width).rows_per_tile * cells * 8)
        done += step
    assert all(len(tile) <= LARGEST_TILE_BYTES for tile in tiles.values())
    first = data.draw(st.integers(0, total))
    count = data.draw(st.integers(0, total - first))
    np.testing.assert_array_equal(stored(tiles, width, first, count), values[first : first + count])


@given(width=widths, row_block=st.integers(0, 10**6))
def test_tiles_fill_before_the_next_one_starts(width: int, row_block: int) -> None:
    geometry = TileGeometry(width)
    first = row_block * geometry.rows_per_tile
    pieces = list(geometry.slices(3, "2", first, geometry.rows_per_tile))
    assert {(piece.key.epoch, piece.key.table, piece.key.row_block) for piece in pieces} == {
        (3, "2", row_block)
    }
    assert sum(piece.length_bytes for piece in pieces) == geometry.rows_per_tile * width * 8
    assert all(piece.offset_bytes == 0 for piece in pieces)
    last = next(geometry.slices(3, "2", first + geometry.rows_per_tile - 1, 1))
    assert (last.key, last.offset_bytes + last.length_bytes) == (pieces[0].key, pieces[0].length_bytes)
    assert next(geometry.slices(3, "2", first + geometry.rows_per_tile, 1)).key.row_block == row_block + 1


def test_bytes_are_little_endian_int64() -> None:
    [append] = tile_appends(1, "4", 2, np.array([[-2, 258]]))
    assert append.key == TileKey(1, "4", 0, 0)
    assert append.offset_bytes == 2 * 2 * 8
    assert append.data == b"\xfe" + b"\xff" * 7 + b"\x02\x01" + bytes(6)


def test_wrong_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        tile_appends(0, PUBLISHED, 0, np.array([1, 2]))
    with pytest.raises(ValueError, match="float64"):
        tile_appends(0, PUBLISHED, 0, np.array([[1.5]]))
    with pytest.raises(ValueError, match="at least 0"):
        list(TileGeometry(1).slices(0, PUBLISHED, -1, 2))
    with pytest.raises(ValueError, match="at least 1"):
        TileGeometry(0)


def test_lost_bytes_are_not_read_as_zeros() -> None:
    [append] = tile_appends(0, PUBLISHED, 0, np.ones((3, 2), dtype=np.int64))
    with pytest.raises(ValueError, match="40 of 48 bytes; data are lost"):
        stored({append.key: append.data[:-8]}, 2, 0, 3)
