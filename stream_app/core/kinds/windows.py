"""A tree over the total, and tumbling windows whose cells add up until a window is complete.

A window's histograms are released once, with its last bin, by a mechanism that draws its noise then. Until
then the exact counts are part of the counter's secret state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.anticipating_step import BinsNoise
from dphist.windows.design import WindowDesign
from stream_app.core.kinds.kind import Asked, values_hash
from stream_app.core.kinds.tables import WINDOWS, Block, Closed
from stream_app.core.kinds.tree import Tree, Wrapper


@dataclass(frozen=True)
class WindowsState(Snapshot):
    """The counter's state of a stream with windows. SECRET.

    Args: cells, the exact counts of the open window's cells; tree, the state of the tree, empty at its start.
    """

    cells: Int64Array = field(repr=False)
    tree: bytes = field(repr=False)

    code, noun = b"dpWS", "counter state of windows"
    first_version = FirstVersion(
        b"dpWD", "<Q", lambda size, cells: {"cells": [cells], "tree": {"bytes": size - 8 * cells}}
    )


@dataclass(frozen=True)
class Windows(Wrapper[Tree]):
    """Cells released in windows, beside a tree over their total. Args: windows, with mechanism and share."""

    windows: WindowDesign = field()
    slow = True  # a mechanism may take long, depending on the counts

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.windows.cells

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return {**self.tree.tables, WINDOWS: self.windows.cells}

    def rows_after(self, table: str, bins: int) -> int:
        return bins // self.windows.bins if table == WINDOWS else super().rows_after(table, bins)

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        """Release the next bins, and the windows that they complete; see ``Kind.close``."""
        cells = np.zeros(self.windows.cells, np.int64)
        state = WindowsState.from_bytes(held) if held else WindowsState(cells, b"")
        done = self.tree.close(state.tree, counts.sum(axis=1, keepdims=True), noise, ahead)
        block, cells = self._complete(done.first_bin, state.cells, counts, noise)
        after = WindowsState(cells, done.state).to_bytes()
        return replace(done, blocks=(*done.blocks, block), state=after)

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

    def fields(self) -> dict[str, str]:
        return self.tree.fields() | {"window": self.windows.to_json()}

    def at_epsilon(self, asked: Asked) -> Windows:
        """Return the same trees and shares at another epsilon."""
        tree = replace(self.tree, design=replace(self.design, epsilon=asked["epsilon"]))
        return replace(self, tree=tree, windows=replace(self.windows, time=tree.design))
