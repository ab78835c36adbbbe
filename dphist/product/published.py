"""Anticipating running counts of every column: draw an epoch's noise, then publish bins with it.

All noise is drawn before the epoch. Group by group, the noise of the nodes is turned into the errors of the
running counts of every column. To publish a bin, its row of errors is added to the exact counts. The counts
of any range of time are the difference of two published rows. Nodes are not published: the rows already hold
the best estimate from all nodes, and the nodes would need as much storage again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource
from dphist.product.columns import check_room
from dphist.product.design import ColumnDesign, ProductDesign
from dphist.product.forest import GroupSum, RangeSum
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.decoder import decode_noise, draw_epoch_noise
from dphist.tree.shape import node_counts
from dphist.tree.upward import LARGEST_COUNT, checked_counts
from dphist.units import UNITS_PER_COUNT, VALUE_BITS, FullError

# Decoding needs several times the memory of the noise, so columns are decoded in blocks of this many nodes.
NODES_AT_ONCE = 2**20


@dataclass(frozen=True)
class CellTotals(Snapshot):
    """The state of an epoch's release, without its noise. SECRET: the exact counts of cells so far."""

    bin: int
    cells: Int64Array = field(repr=False)

    code, noun = b"dpPT", "cell totals"
    first_version = FirstVersion(b"dpPT\x01\0", "<QQ", lambda _, bin, cells: {"bin": bin, "cells": [cells]})

    @classmethod
    def first(cls, design: ProductDesign) -> CellTotals:
        """Return the state before an epoch's first bin."""
        return cls(0, np.zeros(design.cells, np.int64))


def draw_errors(design: ProductDesign, noise: NoiseSource) -> Int64Array:
    """Draw an epoch's noise and return the error of every running count, (horizon, columns), units of 2^-16.

    SECRET until the bins are published. Never draw it again for the same epoch.
    Guarantee: exact noise of every node, independent of all data; integers throughout (``tree/decoder.py``).
    Raises: ValueError for scales above 2^32.
    Cost: one call of the source per time level and million nodes; 8 bytes per bin and column.
    """
    errors = np.empty((design.time.horizon, design.columns), np.int64)
    nodes = sum(node_counts(design.time.shape, design.time.horizon))
    step = max(1, NODES_AT_ONCE // nodes)
    for group in design.groups:
        stop = group.first + group.width
        for first in range(group.first, stop, step):
            last = min(first + step, stop)
            drawn = draw_epoch_noise(group.design, noise, last - first)
            errors[:, first:last] = decode_noise(group.design, drawn)
    return errors


def publish_bins(
    design: ProductDesign, before: CellTotals, counts: ArrayLike, errors: Int64Array
) -> tuple[Int64Array, CellTotals]:
    """Publish the running counts of every column after each of the next bins.

    Guarantee: all rows of an epoch together are ``design.epsilon``-DP for the design's neighbours, also if
        later events depend on them: a row is a function of one noisy tree per column, R x + Z
        (``tree/decoder.py`` says why). A row depends on bins up to its own only and is never revised.
    Args: the state before these bins; exact counts, shape (bins, cells), none negative; the errors of exactly
        these bins, shape (bins, columns).
    Returns: int64 (bins, columns), in units of 2^-16, and the state after them.
    Raises: ValueError beyond the horizon, for arrays of a wrong kind (the message never shows a count), and
        FullError if these bins, noise included, fill the epoch.
    Cost: O(bins * columns).
    """
    rows = checked_counts(counts, design.cells, before.bin, design.time.horizon)
    if errors.dtype != np.int64 or errors.shape != (len(rows), design.columns):
        raise ValueError(
            f"noise: {errors.dtype} {errors.shape} given; int64 {len(rows), design.columns} needed"
        )
    running = before.cells + rows.cumsum(axis=0)
    columns = design.columns_of(running)
    if columns.size:
        # By noisy values, before exact counts: a reader who sees the stream stop learns nothing else.
        check_room(design, columns[-1] + errors[-1] / UNITS_PER_COUNT)
    if running.size and int(running[-1].sum(dtype=np.float64)) > LARGEST_COUNT:
        raise FullError("counts: an epoch holds more than 2^45 events; shorten it")
    published = (columns << VALUE_BITS) + errors
    after = running[-1].copy() if len(running) else before.cells
    return published, CellTotals(before.bin + len(rows), after)


def published_range(design: ColumnDesign, rows: Int64Array, a: int, b: int) -> RangeSum:
    """Return the counts of all cells over bins [a, b) of an epoch. Args: rows, published, (bins, columns).

    Guarantee: unbiased, with the exact law of each group's error; within a group the best linear estimate
        from the noisy nodes of the whole epoch, never revised.
    Raises: ValueError unless 0 <= a <= b <= bins.
    """
    if not 0 <= a <= b <= len(rows):
        raise ValueError(f"range [{a}, {b}): published bins are [0, {len(rows)})")
    units = rows[b - 1] if b else np.zeros(design.columns, np.int64)
    units = units - rows[a - 1] if a else units
    groups = []
    for group in design.groups:
        values = (units[group.columns] / UNITS_PER_COUNT).reshape(group.keys, group.nodes)
        rounding = group.published_rounding(a) if a < b else 0.0
        law = group.published_laws(np.array([a]), np.array([b])).law(0)
        groups.append(GroupSum(values, law, rounding))
    return RangeSum(design, tuple(groups))
