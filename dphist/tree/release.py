"""Values that closed bins release: nodes and published running counts, per bin or as arrays over bins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dphist.arrays import Int64Array
from dphist.tree.shape import TreeShape


@dataclass(frozen=True)
class NodeRelease:
    """One node's noisy counts, ``values`` of shape (width,): public and final."""

    level: int
    index: int
    values: Int64Array


@dataclass(frozen=True)
class BinRelease(Sequence[NodeRelease]):
    """Everything that closing one bin makes public. It is also a sequence of the bin's nodes.

    Args: nodes, those that the bin completes, leaf first; published, the running count after this bin,
        (width,), in units of 2^-16, which is never revised.
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
    """The releases of consecutive bins, as arrays. It is also a sequence of ``BinRelease``.

    Args: levels, root side first, with the nodes that these bins complete on every measured level; published,
        the running count after each bin, (bins, width), in units of 2^-16.
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
        """Return the release of bin ``first_bin + position``. Raises: IndexError outside the batch."""
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} is outside a batch of {len(self)} bins")
        number = self.first_bin + position
        places = ((self.levels[level - 1], index) for level, index in self.shape.completed_by(number))
        nodes = (NodeRelease(one.level, index, one.values[index - one.first_index]) for one, index in places)
        return BinRelease(number, tuple(nodes), self.published[position])
