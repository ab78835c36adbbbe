"""A tree over each epoch, and levels of nodes over many epochs, so that long ranges sum few noisy numbers.

The total of an epoch enters the levels when its last bin closes. The nodes that it completes are released
with that bin. A row over epochs holds the number of consecutive complete epochs up to this one, then one
value per level, lowest first: the value of the node that this epoch completes, or 0 if it completes none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from dphist.arrays import Int64Array
from dphist.epochs.counter import EpochLevelsCounter, EpochLevelsSnapshot
from dphist.epochs.levels import EpochLevels
from dphist.noise import NoiseSource
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.anticipating_step import BinsNoise
from stream_app.core.kinds.kind import Asked
from stream_app.core.kinds.over_epochs_cover import EpochCovers
from stream_app.core.kinds.tables import OVER_EPOCHS, Block, Closed
from stream_app.core.kinds.tree import Tree, Wrapper


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
    """Levels over the epochs of a tree. Args: levels, with the shares of epsilon of levels and tree."""

    levels: EpochLevels = field()
    width = 1

    def __post_init__(self) -> None:
        if not (self.tree.width == 1 and self.levels.epoch == self.tree.design):
            raise ValueError("strategy: levels over epochs count the total of streams without axes only")

    @property
    def epsilon(self) -> Fraction:
        """Return the epsilon that an event costs in its epoch's tree and in all levels over epochs."""
        return self.levels.epsilon

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return {**self.tree.tables, OVER_EPOCHS: 1 + len(self.levels.branching)}

    def rows_after(self, table: str, bins: int) -> int:
        return int(bins == self.design.horizon) if table == OVER_EPOCHS else super().rows_after(table, bins)

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        """Release the next bins, and the nodes over epochs with an epoch's last bin; see ``Kind.close``."""
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
        """Return the tree's nodes, and for an epoch's last bin also the nodes over epochs it completes."""
        nodes: list[object] = []  # level from 1, index within the level, and values
        if closed.first_bin + position + 1 == self.design.horizon:
            epochs, *values = closed.row(OVER_EPOCHS, 0).tolist()
            for level in self.levels.completed(epochs):
                nodes.append([level + 1, epochs // self.levels.widths[level] - 1, [values[level]]])
        return self.tree.row_part(closed, position) | {"over_epochs": nodes}

    def kept(self, state: bytes) -> bytes:
        """Return the state for the next epoch: the nodes over epochs that are not complete yet. SECRET."""
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
