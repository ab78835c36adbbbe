"""Closing bins of a stream with tumbling windows: their cells add up until a window is complete.

A window's histograms are released once, with its last bin, by a mechanism that draws noise then. Until that,
its exact counts are part of the counter's secret state.
"""

from __future__ import annotations

import struct

import numpy as np

from dphist.noise import NoiseSource
from dphist.tree.release import LevelRelease
from dphist.window import WindowDesign
from stream_app.core.records import WINDOWS, Int64Array

_HEADER = struct.Struct("<4sQ")
_MAGIC = b"dpWD"


def split_state(design: WindowDesign, held: bytes) -> tuple[bytes, Int64Array]:
    """Return the tree's state and the exact counts of the open window's cells. SECRET, both.

    Args: held, what ``joined_state`` made; empty at an epoch's start.
    Raises: ValueError for bytes of another kind.
    """
    if not held:
        return b"", np.zeros(design.cells, np.int64)
    stop = _HEADER.size + 8 * design.cells
    if len(held) < stop or _HEADER.unpack_from(held) != (_MAGIC, design.cells):
        raise ValueError("counter state: not that of these windows; the stored bytes are damaged")
    return held[stop:], np.frombuffer(held[_HEADER.size : stop], "<i8").astype(np.int64)


def joined_state(tree: bytes, cells: Int64Array) -> bytes:
    """Return both parts of the counter's state as bytes. SECRET."""
    return _HEADER.pack(_MAGIC, len(cells)) + cells.astype("<i8").tobytes() + tree


def close_windows(
    design: WindowDesign, first_bin: int, open_cells: Int64Array, counts: Int64Array, noise: NoiseSource
) -> tuple[LevelRelease, Int64Array]:
    """Release the windows that the next bins complete; return them and the counts of the one still open.

    Args: first_bin, of the epoch; open_cells, the counts of its window so far; counts of the bins from it
        on, shape (bins, cells). SECRET.
    """
    released, cells = [], open_cells
    for bin, row in enumerate(counts, start=first_bin):
        cells = cells + row
        if (bin + 1) % design.bins == 0:
            released.append(design.release(cells, noise))
            cells = np.zeros_like(cells)
    values = np.array(released, np.int64).reshape(-1, design.cells)
    return LevelRelease(WINDOWS, first_bin // design.bins, values), cells
