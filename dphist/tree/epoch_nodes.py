"""The nodes of one epoch: a level-uniform tree cut off at the horizon.

The last node of a level may hold fewer bins and fewer children than the others. Arrays over the children of a
level's nodes are padded with zeros, which change no sum.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dphist.tree.shape import TreeShape

Scalar = TypeVar("Scalar", bound=np.generic)


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
