"""The geometry of a level-uniform tree over time, in integers only.

Level 0 is the root, which is not measured; levels 1 to ``height`` are. Level ``height`` holds the bins. Node
``index`` of level i covers ``widths[i]`` bins from bin ``index * widths[i]`` on. Node addresses (level,
index) are stored and published, so they may not change.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

# Bins are counted in int64 and turned into doubles when shares are planned.
LARGEST_CAPACITY = 2**53
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class TreeShape:
    """The shape of a tree: the number of children per node on each level, from the root down.

    Args: branching, root to leaf, each at least 2 (a single 1 is the tree of one bin).
    Raises: ValueError for an empty branching, a factor below 2, or more than 2^53 bins.

    >>> shape = TreeShape((2, 3))
    >>> shape.capacity, shape.height, shape.widths
    (6, 2, (6, 3, 1))
    >>> shape.completed_by(2)
    ((2, 2), (1, 0))
    """

    branching: tuple[int, ...]

    def __post_init__(self) -> None:
        branching = tuple(self.branching)
        least = 1 if len(branching) == 1 else 2
        if not branching or any(
            isinstance(k, bool) or not isinstance(k, int) or k < least for k in branching
        ):
            raise ValueError(f"branching: {branching} needs whole numbers of at least 2, root to leaf")
        if math.prod(branching) > LARGEST_CAPACITY:
            raise ValueError(f"branching: {branching} covers more than 2^53 bins; choose a shorter epoch")
        object.__setattr__(self, "branching", branching)

    @property
    def height(self) -> int:
        """The number of measured levels."""
        return len(self.branching)

    @property
    def capacity(self) -> int:
        """The number of bins under the root."""
        return self.widths[0]

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number of bins under a node of each level, root first: ``widths[height]`` is 1."""
        widths = [1]
        for k in reversed(self.branching):
            widths.append(widths[-1] * k)
        return tuple(reversed(widths))

    @property
    def levels(self) -> range:
        """The measured levels, root side first."""
        return range(1, self.height + 1)

    def span(self, level: int, index: int) -> range:
        """Return the bins under a node. Raises: ValueError for a node that is not in the tree."""
        width = self._width(level)
        if not 0 <= index < self.capacity // width:
            raise ValueError(f"node ({level}, {index}) is not in a tree of branching {self.branching}")
        return range(index * width, (index + 1) * width)

    def completed_by(self, bin: int) -> tuple[tuple[int, int], ...]:
        """Return the nodes (level, index) that this bin completes, and so releases, leaf first."""
        if not 0 <= bin < self.capacity:
            raise ValueError(f"bin {bin} is outside [0, {self.capacity})")
        end, widths = bin + 1, self.widths
        done = [level for level in reversed(self.levels) if end % widths[level] == 0]
        return tuple((level, end // widths[level] - 1) for level in done)

    def completed_count(self, bins: int, level: int) -> int:
        """Return how many nodes of a level are complete once ``bins`` bins are closed."""
        return self.checked_bins(bins) // self._width(level)

    def digits(self, bins: int) -> tuple[int, ...]:
        """Return, for each measured level, how many of its nodes are in the greedy cover of [0, bins).

        >>> TreeShape((2, 3)).digits(4), TreeShape((2, 3)).digits(6)
        ((1, 1), (2, 0))
        """
        rest, digits = self.checked_bins(bins), []
        for width in self.widths[1:]:
            digit, rest = divmod(rest, width)
            digits.append(digit)
        return tuple(digits)

    def cover(self, bins: int) -> list[tuple[int, int, int]]:
        """Return the greedy cover of [0, bins) by maximal complete nodes: (level, first index, count).

        No node above the cover is complete, so the cover's nodes are the roots of the released forest.

        >>> TreeShape((2, 3)).cover(4)
        [(1, 0, 1), (2, 3, 1)]
        """
        cover, start = [], 0
        for level, digit in zip(self.levels, self.digits(bins), strict=True):
            if digit:
                cover.append((level, start // self.widths[level], digit))
                start += digit * self.widths[level]
        return cover

    def mean_digits(self, horizon: int) -> tuple[float, ...]:
        """Return the mean of ``digits(t)`` over t = 1..horizon. Cost: O(height), for any horizon."""
        self.checked_bins(horizon)
        means = []
        for level in self.levels:
            # The top level's digit does not wrap around: it is k_1 at t = capacity.
            period = self.widths[level - 1] if level > 1 else self.capacity + self.widths[1]
            means.append(_digit_sum(horizon + 1, period, self.widths[level]) / max(horizon, 1))
        return tuple(means)

    def checked_bins(self, bins: int) -> int:
        """Return ``bins`` unchanged if the tree can hold that many. Raises: ValueError if it cannot."""
        if not 0 <= bins <= self.capacity:
            raise ValueError(
                f"{bins} bins are outside [0, {self.capacity}], the capacity of {self.branching}"
            )
        return bins

    def _width(self, level: int) -> int:
        if not 1 <= level <= self.height:
            raise ValueError(f"level {level} is not measured; measured levels are 1 to {self.height}")
        return self.widths[level]


def _digit_sum(stop: int, period: int, width: int) -> int:
    """Sum (t mod period) // width over t in [0, stop), exactly."""
    periods, rest = divmod(stop, period)
    factor = period // width
    blocks, partial = divmod(rest, width)
    whole = periods * width * (factor * (factor - 1) // 2)
    return whole + width * (blocks * (blocks - 1) // 2) + partial * blocks


def node_counts(shape: TreeShape, horizon: int) -> tuple[int, ...]:
    """Return how many nodes of each measured level hold a bin of the epoch, root side first.

    >>> node_counts(TreeShape((2, 3)), 4)
    (2, 4)
    """
    return tuple(-(-horizon // width) for width in shape.widths[1:])


def by_parent(children: NDArray[Scalar], branching: int) -> NDArray[Scalar]:
    """Return the values of a level's nodes as (parents, branching, ...), zeros where no child exists.

    >>> by_parent(np.array([1, 2, 3, 4]), 3).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    parents = -(-len(children) // branching)
    missing = parents * branching - len(children)
    if missing:
        padding: NDArray[Any] = np.zeros((missing, *children.shape[1:]), children.dtype)
        children = np.concatenate([children, padding])
    return children.reshape(parents, branching, *children.shape[1:])


def to_children(values: NDArray[Scalar], branching: int, children: int) -> NDArray[Scalar]:
    """Repeat each parent's value for its children; ``children`` is their total number."""
    return np.repeat(values, branching, axis=0)[:children]
