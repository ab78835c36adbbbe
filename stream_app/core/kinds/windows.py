"""A tree over the total, and tumbling windows whose cells add up until a window is complete.

A window's histograms are released once, with its last bin, by a mechanism that draws its noise then. Until
then the exact counts are part of the counter's secret state.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource
from dphist.tree.anticipating_step import BinsNoise
from dphist.windows.design import WindowDesign
from stream_app.core.kinds.kind import values_hash
from stream_app.core.kinds.tables import WINDOWS, Block, Closed
from stream_app.core.kinds.wrapper import Wrapper

_HEADER = struct.Struct("<4sQ")
_MAGIC = b"dpWD"


@dataclass(frozen=True)
class Windows(Wrapper):
    """Cells released in windows, beside a tree over their total. Args: windows, with mechanism and share."""

    windows: WindowDesign = field()
    slow = True  # a mechanism may take long, depending on the counts

    @property
    def width(self) -> int:  # type: ignore[override]
        """The number of counted cells per bin."""
        return self.windows.cells

    @property
    def added(self) -> tuple[str, int]:
        """The name and width of the table of windows."""
        return WINDOWS, self.windows.cells

    def rows_after(self, table: str, bins: int) -> int:
        """Return how many rows of a table the first ``bins`` bins of an epoch release."""
        return bins // self.windows.bins if table == WINDOWS else self.tree.rows_after(table, bins)

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        """Release the next bins, and the windows that they complete; see ``Kind.close``."""
        tree_state, open_cells = split_state(self.windows, held)
        done = self.tree.close(tree_state, counts.sum(axis=1, keepdims=True), noise, ahead)
        block, open_cells = self._complete(done.first_bin, open_cells, counts, noise)
        return replace(done, blocks=(*done.blocks, block), state=_joined_state(done.state, open_cells))

    def _complete(
        self, first_bin: int, open_cells: Int64Array, counts: Int64Array, noise: NoiseSource
    ) -> tuple[Block, Int64Array]:
        """Return the windows that the next bins complete, and the exact counts of the open window."""
        design, released, cells = self.windows, [], open_cells
        for bin, row in enumerate(counts, start=first_bin):
            cells = cells + row
            if (bin + 1) % design.bins == 0:
                released.append(design.release(cells, noise))
                cells = np.zeros_like(cells)
        values = np.array(released, np.int64).reshape(-1, design.cells)
        return Block(WINDOWS, first_bin // design.bins, values), cells

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        """Return the tree's nodes, and the index and hash of the window that the bin completes."""
        number, rest = divmod(closed.first_bin + position + 1, self.windows.bins)
        ended = [] if rest else [[number - 1, values_hash(closed.row(WINDOWS, number - 1))]]
        return self.tree.row_part(closed, position) | {"windows": ended}

    def fields(self) -> dict[str, Any]:
        """Return the texts of the designs."""
        return self.tree.fields() | {"width": self.width, "window": self.windows.to_json()}

    def at_epsilon(self, epsilon: Fraction, asked: Mapping[str, Any]) -> Windows:
        """Return the same trees and shares at another epsilon."""
        tree = replace(self.tree, design=replace(self.design, epsilon=epsilon))
        return replace(self, tree=tree, windows=replace(self.windows, time=tree.design))


def split_state(design: WindowDesign, held: bytes) -> tuple[bytes, Int64Array]:
    """Return the tree's state and the exact counts of the open window's cells. SECRET, both.

    Args: held, the state after a closing; empty at an epoch's start.
    Raises: ValueError for bytes of another kind.
    """
    if not held:
        return b"", np.zeros(design.cells, np.int64)
    stop = _HEADER.size + 8 * design.cells
    if len(held) < stop or _HEADER.unpack_from(held) != (_MAGIC, design.cells):
        raise ValueError("counter state: not that of these windows; the stored bytes are damaged")
    return held[stop:], np.frombuffer(held[_HEADER.size : stop], "<i8").astype(np.int64)


def _joined_state(tree: bytes, cells: Int64Array) -> bytes:
    return _HEADER.pack(_MAGIC, len(cells)) + cells.astype("<i8").tobytes() + tree
