"""Public tables, to which releases append and which readers read. A table only grows, by rows of int64."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple, Protocol

import numpy as np

from dphist.arrays import Int64Array
from dphist.privacy import Neighbours
from dphist.tree.release import BinReleases
from stream_app.core.epochs import ROOM

SeriesKind = Literal["running", "bin", "window"]  # what each point of a series counts
SeriesView = Literal["unbiased", "first_published"]  # the current estimate, or the value first published

PUBLISHED = "published"  # the running counts as first published: one row per bin
WINDOWS = "windows"  # the histograms of complete windows
USERS = "users"  # users by their numbers of events: one row per complete epoch
OVER_EPOCHS = "over_epochs"  # the nodes over epochs that an epoch completes: one row per complete epoch


def node_table(level: int) -> str:
    """Return the name of the table of released nodes of one level of the tree over time, 1 or more."""
    return str(level)


class TimeDesign(Protocol):
    """The facts that every design over time states, whatever it releases."""

    @property
    def horizon(self) -> int:
        """The bins of an epoch."""
        ...

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of an epoch."""
        ...

    @property
    def neighbours(self) -> Neighbours:
        """How two neighbouring streams differ."""
        ...


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
class Named:
    """The keys that the last of some closed bins shows for the first time. SECRET.

    Args: names, in the order of names; counts, their exact counts in all bins since the start of the epoch,
        shape (bins, names), with two columns for each name if amounts are added up; room, for events of
        hidden keys (``epochs.thinned_for``).
    """

    names: tuple[str, ...] = ()
    counts: Int64Array = field(default_factory=lambda: np.zeros((0, 0), np.int64), repr=False)
    room: int = ROOM


@dataclass(frozen=True, slots=True)
class Closed:
    """The public result of closing consecutive bins, and the secret state for the next closing.

    Args:
        first_bin: the first closed bin, counted from the start of the epoch.
        running: the running count that the chain rows show, shape (bins, cells), in units of 2^-16.
        blocks: rows of tables; those of the published table come first.
        state: of the counter. SECRET.
        columns: the running count of every column, with noise, shape (bins, columns), in units of 2^-16; None
            for a kind without axes.
        found: the names of keys that the last bin shows for the first time.
        thinned: how often the hidden keys have to be halved by then (``epochs.thinned_for``).
    """

    first_bin: int
    running: Int64Array
    blocks: tuple[Block, ...]
    state: bytes
    columns: Int64Array | None = None
    found: tuple[str, ...] = ()
    thinned: int = 0

    @classmethod
    def of(
        cls, releases: BinReleases, running: Int64Array, state: bytes, columns: Int64Array | None = None
    ) -> Closed:
        """Return a counter's releases as blocks of tables. Args: running, state, columns, as in the class."""
        nodes = (Block(node_table(one.level), one.first_index, one.values) for one in releases.levels)
        published = Block(PUBLISHED, releases.first_bin, running)
        return cls(releases.first_bin, running, (published, *nodes), state, columns)

    def __len__(self) -> int:
        return len(self.running)

    def rows(self, table: str) -> Int64Array:
        """Return all rows of a table, in one sequence of numbers. Raises: KeyError if there are none."""
        for block in self.blocks:
            if block.table == table:
                return block.values.ravel()
        raise KeyError(table)

    def row(self, table: str, index: int) -> Int64Array:
        """Return one row of a table. Raises: KeyError if these bins did not release it."""
        for block in self.blocks:
            if block.table == table and 0 <= index - block.first < len(block.values):
                found: Int64Array = block.values[index - block.first]
                return found
        raise KeyError((table, index))
