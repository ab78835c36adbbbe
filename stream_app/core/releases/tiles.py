"""Tiles: blocks of packed int64 that hold the public numbers of an epoch, one row per node or bin.

A public table (``kinds/tables.py``) is a matrix that grows by rows. It is divided into tiles of at most
256 KiB. A tile grows until it is full and then never changes, so a reader may cache it without limit. Writer
and reader compute addresses from the width only: no index is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.store_writes import TileAppend, TileKey

LARGEST_TILE_BYTES = 256 * 1024
CELLS_PER_TILE = 1024  # wider rows are divided, so that a reader of a few cells does not fetch all of them
_VALUE_BYTES = 8
_LITTLE_ENDIAN = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class TileSlice:
    """The location of a part of the requested rows: bytes of one tile, rows and cells of the answer."""

    key: TileKey
    offset_bytes: int
    length_bytes: int
    rows: slice
    cells: slice


@dataclass(frozen=True, slots=True)
class TileGeometry:
    """How tables of one width are divided into tiles.

    Args: width, cells per row.
    Raises: ValueError for a width below 1.

    >>> TileGeometry(1).rows_per_tile, TileGeometry(1500).cells_per_tile, TileGeometry(1500).rows_per_tile
    (32768, 1024, 32)
    """

    width: int

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width: {self.width} is not a number of cells; at least 1")

    @property
    def cells_per_tile(self) -> int:
        """Return how many cells of a row a tile holds (the last block of cells may hold fewer)."""
        return min(self.width, CELLS_PER_TILE)

    @property
    def rows_per_tile(self) -> int:
        return LARGEST_TILE_BYTES // (self.cells_per_tile * _VALUE_BYTES)

    def slices(self, epoch: int, table: str, first: int, count: int) -> Iterator[TileSlice]:
        """Yield the pieces that together hold rows [first, first + count), in order of key.

        Raises: ValueError for negative numbers.
        """
        if first < 0 or count < 0:
            raise ValueError(f"rows from {first}, {count} of them: both must be at least 0")
        row = first
        while row < first + count:
            row_block, skipped = divmod(row, self.rows_per_tile)
            taken = min(self.rows_per_tile - skipped, first + count - row)
            rows = slice(row - first, row - first + taken)
            for cell_block, start in enumerate(range(0, self.width, self.cells_per_tile)):
                cells = slice(start, min(start + self.cells_per_tile, self.width))
                row_bytes = (cells.stop - cells.start) * _VALUE_BYTES
                key = TileKey(epoch, table, row_block, cell_block)
                yield TileSlice(key, skipped * row_bytes, taken * row_bytes, rows, cells)
            row += taken


def tile_appends(epoch: int, table: str, first: int, values: Int64Array) -> list[TileAppend]:
    """Return the tile appends for new rows ``first, first + 1, ...`` of a table.

    Args: values, shape (rows, width), int64. ``first`` is the number of rows that the table already has.
    Raises: ValueError for another shape or type.

    >>> [append] = tile_appends(0, "3", 1, np.array([[7]]))
    >>> append.key.row_block, append.offset_bytes, append.data
    (0, 8, b'\\x07\\x00\\x00\\x00\\x00\\x00\\x00\\x00')
    """
    if values.ndim != 2 or values.dtype != np.int64:
        raise ValueError(f"tile rows need shape (rows, width) of int64, not {values.shape} of {values.dtype}")
    rows, width = values.shape
    geometry = TileGeometry(width)
    appends = []
    for piece in geometry.slices(epoch, table, first, rows):
        data = values[piece.rows, piece.cells].astype(_LITTLE_ENDIAN).tobytes()
        full_bytes = geometry.rows_per_tile * (piece.cells.stop - piece.cells.start) * _VALUE_BYTES
        appends.append(
            TileAppend(piece.key, piece.offset_bytes, data, piece.offset_bytes + len(data) == full_bytes)
        )
    return appends


def join_slices(count: int, width: int, pieces: Iterator[tuple[TileSlice, bytes]]) -> Int64Array:
    """Return the rows joined from pieces read from tiles, shape (count, width).

    Raises: ValueError if a tile is shorter than its released length: the store lost data.
    """
    values = np.zeros((count, width), dtype=np.int64)
    for piece, data in pieces:
        if len(data) != piece.length_bytes:
            raise ValueError(
                f"{piece.key}: {len(data)} of {piece.length_bytes} bytes; data are lost, restore a backup"
            )
        shape = (piece.rows.stop - piece.rows.start, piece.cells.stop - piece.cells.start)
        values[piece.rows, piece.cells] = np.frombuffer(data, _LITTLE_ENDIAN).reshape(shape)
    return values
