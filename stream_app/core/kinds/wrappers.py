"""Kinds that add one table to the counts of another kind: windows, levels over epochs, and numbers of users.

*Windows.* A window's histograms are released once, with its last bin, by a mechanism that draws its noise
then. Until then the exact counts are part of the counter's secret state.

*Levels over epochs.* The total of an epoch enters the levels when its last bin closes. The nodes that it
completes are released with that bin, so that long ranges sum few noisy numbers. A row over epochs holds the
number of consecutive complete epochs up to this one, then one value per level, lowest first: the value of the
node that this epoch completes, or 0 if it completes none.

*Numbers of users*, so that caps can be proposed. The tally adds to a bin's last cells how many users came
into each bucket in the bin, and how many left it (``dphist/users.py``). Their sums since the start of a cap
window are the users in each bucket. The last bin of a whole epoch releases them once, for the window that
ends there. An epoch that is shorter than others may begin inside a window: it releases none, because it has
seen a part of a user's events only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.epochs import EpochLevels, EpochLevelsCounter, EpochLevelsSnapshot
from dphist.noise import NoiseSource
from dphist.product.columns import ColumnSum
from dphist.product.design import ProductDesign
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.anticipating import BinsNoise
from dphist.tree.design import TreeDesign
from dphist.users import BUCKETS, NumbersOfUsers
from dphist.windows.design import WindowDesign
from stream_app.core.kinds.axes import Axes
from stream_app.core.kinds.epoch import EpochCovers, EpochView
from stream_app.core.kinds.errors import Errors, RowError
from stream_app.core.kinds.kind import Asked, Kind, Vector, values_hash
from stream_app.core.kinds.tables import OVER_EPOCHS, USERS, WINDOWS, Block, Closed, SeriesView
from stream_app.core.kinds.tree import Tree
from stream_app.core.records import EpochRecord

Wrapped = TypeVar("Wrapped", bound=Tree | Axes)


MEASURING = "users"  # the field of a strategy with the histogram


@dataclass(frozen=True)
class Wrapper(Kind, Generic[Wrapped]):
    """Trees over time with one more table; all else is the wrapped kind's. Args: tree, this kind."""

    tree: Wrapped

    @property
    def design(self) -> TreeDesign:  # type: ignore[override]
        return self.tree.design

    def draw_pages(self, noise: NoiseSource) -> Iterator[bytes]:
        return self.tree.draw_pages(noise)

    def row_errors(self, bins: Int64Array) -> list[RowError]:
        return self.tree.row_errors(bins)

    def errors(self, known: SeriesView = "unbiased", columns: ColumnSum | None = None) -> Errors:
        return self.tree.errors(known, columns)

    def running_variances(self, bins: int) -> FloatArray:
        return self.tree.running_variances(bins)

    def epoch(self, record: EpochRecord) -> EpochView:
        return self.tree.epoch(record)


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
        number, rest = divmod(closed.first_bin + position + 1, self.windows.bins)
        ended = [] if rest else [[number - 1, values_hash(closed.row(WINDOWS, number - 1))]]
        return self.tree.row_part(closed, position) | {"windows": ended}

    def fields(self) -> dict[str, str]:
        return self.tree.fields() | {"window": self.windows.to_json()}

    def at_epsilon(self, asked: Asked) -> Windows:
        tree = replace(self.tree, design=replace(self.design, epsilon=asked["epsilon"]))
        return replace(self, tree=tree, windows=replace(self.windows, time=tree.design))


@dataclass(frozen=True)
class EpochsState(Snapshot):
    """The counter's state of a stream with levels over epochs. SECRET.

    Args: total, the exact count of the open epoch so far; levels, a snapshot of the levels' counter, empty
        before the first epoch ends; tree, the state of the open epoch's tree, empty at its start.
    """

    total: int = field(default=0, repr=False)
    levels: bytes = field(default=b"", repr=False)
    tree: bytes = field(default=b"", repr=False)

    code, noun = b"dpES", "counter state of levels over epochs"
    first_version = FirstVersion(
        b"dpOE",
        "<qQ",
        lambda size, total, levels: {
            "total": total,
            "levels": {"bytes": levels},
            "tree": {"bytes": size - levels},
        },
    )


@dataclass(frozen=True)
class OverEpochs(Wrapper[Tree]):
    """A tree in each epoch, and levels above the epochs. Args: levels, with both shares of epsilon."""

    levels: EpochLevels = field()
    width = 1

    def __post_init__(self) -> None:
        if not (self.tree.width == 1 and self.levels.epoch == self.tree.design):
            raise ValueError("strategy: levels over epochs count the total of streams without axes only")

    @property
    def epsilon(self) -> Fraction:
        return self.levels.epsilon

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return {**self.tree.tables, OVER_EPOCHS: 1 + len(self.levels.branching)}

    def rows_after(self, table: str, bins: int) -> int:
        return int(bins == self.design.horizon) if table == OVER_EPOCHS else super().rows_after(table, bins)

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        state = EpochsState.from_bytes(held) if held else EpochsState()
        done = self.tree.close(state.tree, counts, noise, ahead)
        state = replace(state, tree=done.state, total=state.total + int(counts.sum()))
        if done.first_bin + len(done) < self.design.horizon:
            return replace(done, state=state.to_bytes())
        row, state = self._close_epoch(state, done.running[-1], noise)
        block = Block(OVER_EPOCHS, 0, row[np.newaxis])
        return replace(done, blocks=(*done.blocks, block), state=state.to_bytes())

    def _close_epoch(
        self, state: EpochsState, published: Int64Array, noise: NoiseSource
    ) -> tuple[Int64Array, EpochsState]:
        """Release the nodes that a complete epoch completes; return its row and the next epoch's first state.

        Guarantee: as ``EpochLevelsCounter``, if the store accepts one release of the epoch's last bin.
        Args: published, the epoch's total as readers see it, shape (1,), in units of 2^-16.
        """
        held = EpochLevelsSnapshot.from_bytes(state.levels) if state.levels else None
        counter = EpochLevelsCounter(self.levels, noise, snapshot=held)
        released = counter.close_epoch(np.array([state.total]), published)
        row = np.zeros(1 + len(self.levels.branching), np.int64)
        row[0] = counter.epochs
        for node in released.nodes:
            row[node.level] = node.values[0]
        return row, EpochsState(levels=counter.snapshot().to_bytes())

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        nodes: list[object] = []  # level from 1, index within the level, and values
        if closed.first_bin + position + 1 == self.design.horizon:
            epochs, *values = closed.row(OVER_EPOCHS, 0).tolist()
            for level in self.levels.completed(epochs):
                nodes.append([level + 1, epochs // self.levels.widths[level] - 1, [values[level]]])
        return self.tree.row_part(closed, position) | {"over_epochs": nodes}

    def kept(self, state: bytes) -> bytes:
        return state

    def new_covers(self) -> EpochCovers:
        return EpochCovers(self.levels)

    def fields(self) -> dict[str, str]:
        return self.tree.fields() | {"over_epochs": self.levels.to_json()}

    def at_epsilon(self, asked: Asked) -> OverEpochs:
        """Return the same levels and shares at another epsilon."""
        epsilon = asked["epsilon"]
        epoch = replace(self.design, epsilon=self.design.epsilon * epsilon / self.epsilon)
        levels = self.levels.at_epsilon(epsilon, epoch)
        return replace(self, tree=replace(self.tree, design=epoch), levels=levels)


@dataclass(frozen=True)
class MeasuringState(Snapshot):
    """The state between two closings. SECRET. Args: users, of each bucket; counts, of the other counts."""

    users: Int64Array = field(repr=False)
    counts: bytes = field(repr=False)

    code, noun = b"dpMU", "counter state of numbers of users"


@dataclass(frozen=True)
class Measuring(Wrapper[Tree | Axes]):
    """Counts, and a histogram of users. Args: tree, the kind of the counts; users, the histogram."""

    users: NumbersOfUsers = field()

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.tree.width + BUCKETS

    @property
    def epsilon(self) -> Fraction:
        return self.tree.epsilon + self.users.epsilon

    @property
    def axes(self) -> ProductDesign | None:  # type: ignore[override]
        return self.tree.axes if isinstance(self.tree, Axes) else None

    @property
    def keys_as_first_published(self) -> bool:  # type: ignore[override]
        return self.tree.keys_as_first_published

    @property
    def node_levels(self) -> Sequence[int]:
        return self.tree.node_levels

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return {**self.tree.tables, USERS: BUCKETS}

    def rows_after(self, table: str, bins: int) -> int:
        return int(bins == self.design.horizon) if table == USERS else self.tree.rows_after(table, bins)

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        state = MeasuringState.from_bytes(held) if held else MeasuringState(np.zeros(BUCKETS, np.int64), b"")
        own = self.tree.width
        done = self.tree.close(state.counts, counts[:, :own], noise, ahead)
        users, blocks = state.users, done.blocks
        for bin, changes in enumerate(counts[:, own:], start=done.first_bin):
            users = changes if bin % self.users.bins == 0 else users + changes
        if done.first_bin + len(done) == self.design.horizon:
            blocks = (*blocks, Block(USERS, 0, self.users.release(users, noise)[np.newaxis]))
        return replace(done, blocks=blocks, state=MeasuringState(users, done.state).to_bytes())

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        part = self.tree.row_part(closed, position)
        if closed.first_bin + position + 1 < self.design.horizon:
            return part
        return part | {USERS: closed.row(USERS, 0).tolist()}

    def vectors(self) -> Mapping[Vector, int]:
        return self.tree.vectors()

    def column_errors(self, bins: Int64Array, columns: ColumnSum) -> list[RowError]:
        return self.tree.column_errors(bins, columns)

    def fields(self) -> dict[str, str]:
        return self.tree.fields() | {MEASURING: self.users.to_json()}

    def at_epsilon(self, asked: Asked) -> Measuring:
        """Return the plan at another epsilon, of which the histogram takes the same part."""
        part = asked["epsilon"] * self.users.epsilon / self.epsilon
        tree = self.tree.at_epsilon(asked | {"epsilon": asked["epsilon"] - part})
        return replace(self, tree=tree, users=replace(self.users, epsilon=part))
