"""Public tables: what a release appends to, and readers read. A table only grows, by whole rows of int64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from dphist.arrays import Int64Array

SeriesKind = Literal["running", "bin", "window"]  # what each point of a series counts
SeriesView = Literal["unbiased", "first_published"]  # as it is known now, or as it was first shown

PUBLISHED = "published"  # the running counts as first published: one row for each bin
WINDOWS = "windows"  # the histograms of complete windows
OVER_EPOCHS = "over_epochs"  # the nodes over epochs that an epoch completes: one row for a complete epoch


def node_table(level: int) -> str:
    """Return the name of the table of released nodes of one level of the tree over time, 1 or more."""
    return str(level)


class Span(NamedTuple):
    """A range of bins, half-open: absolute, or within one epoch."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of one table.

    Args: first, the index of the first row in its epoch; values, shape (rows, width).
    """

    table: str
    first: int
    values: Int64Array


@dataclass(frozen=True, slots=True)
class Closed:
    """What closing consecutive bins makes public, and what the next closing goes on from.

    Args:
        first_bin: of the epoch.
        running: the running count that the rows of the chain show, shape (bins, cells), in units of 2^-16.
        blocks: rows of tables; the published ones come first.
        state: SECRET.
    """

    first_bin: int
    running: Int64Array
    blocks: tuple[Block, ...]
    state: bytes

    def __len__(self) -> int:
        return len(self.running)

    def row(self, table: str, index: int) -> Int64Array:
        """Return one row of a table. Raises: KeyError if these bins did not release it."""
        for block in self.blocks:
            if block.table == table and 0 <= index - block.first < len(block.values):
                found: Int64Array = block.values[index - block.first]
                return found
        raise KeyError((table, index))
