"""The release of a closed bin: its nodes and its row of published values, by bin or in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dphist.arrays import Int64Array
from dphist.tree.shape import TreeShape


@dataclass(frozen=True)
class NodeRelease:
    """One node's noisy counts, ``values`` of shape (width,): public, final, drawn once."""

    level: int
    index: int
    values: Int64Array


@dataclass(frozen=True)
class BinRelease(Sequence[NodeRelease]):
    """Everything that closing one bin makes public.

    ``nodes``, leaf first, are those that the bin completes; iteration is over them. ``published`` (width,)
    is the running count after this bin, in units of 2^-16. It is never revised, and every kind of release
    has it.
    """

    bin: int
    nodes: tuple[NodeRelease, ...]
    published: Int64Array

    def __iter__(self) -> Iterator[NodeRelease]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, position: int) -> NodeRelease:  # type: ignore[override]
        return self.nodes[position]


@dataclass(frozen=True)
class LevelRelease:
    """Consecutive nodes of one level, ``values`` of shape (n, width); the first has ``first_index``."""

    level: int
    first_index: int
    values: Int64Array


@dataclass(frozen=True)
class BinReleases(Sequence[BinRelease]):
    """The releases of consecutive bins in columns; also a sequence of ``BinRelease``.

    ``levels``, root side first, hold the nodes that these bins complete on every measured level;
    ``published`` (bins, width) the running count after each bin, in units of 2^-16.
    """

    shape: TreeShape
    first_bin: int
    levels: tuple[LevelRelease, ...]
    published: Int64Array

    def __len__(self) -> int:
        return len(self.published)

    def __getitem__(self, position: int) -> BinRelease:  # type: ignore[override]
        return self.bin(position)

    def bin(self, position: int) -> BinRelease:
        """Return the release of the bin at a position of this batch: 0 is ``first_bin``.

        Raises: IndexError outside the batch.
        """
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} is outside a batch of {len(self)} bins")
        number = self.first_bin + position
        nodes = []
        for level, index in self.shape.completed_by(number):
            column = self.levels[level - 1]
            nodes.append(NodeRelease(level, index, column.values[index - column.first_index]))
        return BinRelease(number, tuple(nodes), self.published[position])
