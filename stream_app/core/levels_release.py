"""The end of an epoch of a stream with levels over epochs: its total enters them, and what it completes is
released with its last bin.

A row over epochs holds how many complete epochs follow one another up to this one, then a value for each
level, lowest first: that of the node which this epoch completes, 0 where it completes none.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from dphist.noise import NoiseSource
from dphist.tree.epoch_levels import EpochLevels
from dphist.tree.epoch_levels_counter import EpochLevelsCounter, EpochLevelsSnapshot
from stream_app.core.records import Int64Array

_HEADER = struct.Struct("<4sqQ")
_MAGIC = b"dpOE"


@dataclass(frozen=True, slots=True)
class EpochsState:
    """The counter's state of a stream with levels over epochs. SECRET.

    Args: total, exact, of the open epoch so far; levels, a snapshot of their counter, empty before the first
        epoch ends; tree, the state of the open epoch's tree, empty at its start.
    """

    total: int = field(default=0, repr=False)
    levels: bytes = field(default=b"", repr=False)
    tree: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> bytes:
        """Return a platform-independent copy, as secret."""
        return _HEADER.pack(_MAGIC, self.total, len(self.levels)) + self.levels + self.tree

    @classmethod
    def from_bytes(cls, held: bytes) -> EpochsState:
        """Read what ``to_bytes`` wrote; nothing stands for a beginning.

        Raises: ValueError for bytes of another kind.
        """
        if not held:
            return cls()
        if len(held) < _HEADER.size or not held.startswith(_MAGIC):
            raise ValueError("counter state: not that of levels over epochs; the stored bytes are damaged")
        _, total, length = _HEADER.unpack_from(held)
        stop = _HEADER.size + length
        return cls(total, held[_HEADER.size : stop], held[stop:])


def close_epoch(
    design: EpochLevels, state: EpochsState, published: Int64Array, noise: NoiseSource
) -> tuple[Int64Array, EpochsState]:
    """Release the nodes that a complete epoch completes; return its row and what the next one begins with.

    Guarantee: that of ``EpochLevelsCounter``, if the store accepts one release of the epoch's last bin.
    Args: published, the epoch's total as readers see it, shape (1,), in units of 2^-16.
    """
    held = EpochLevelsSnapshot.from_bytes(state.levels) if state.levels else None
    counter = EpochLevelsCounter(design, noise, snapshot=held)
    released = counter.close_epoch(np.array([state.total]), published)
    row = np.zeros(1 + len(design.branching), np.int64)
    row[0] = counter.epochs
    for node in released.nodes:
        row[node.level] = node.values[0]
    return row, EpochsState(levels=counter.snapshot().to_bytes())


def nodes_of_row(design: EpochLevels, row: Int64Array) -> list[list[object]]:
    """Return a row's nodes as they are published: level from 1, index among its like, and values."""
    epochs = int(row[0])
    return [
        [level + 1, epochs // design.widths[level] - 1, [int(row[level + 1])]]
        for level in design.completed(epochs)
    ]
