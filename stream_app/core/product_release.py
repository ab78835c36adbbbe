"""Closing bins over several axes: all columns of completed nodes, and the total as the running count.

A node over time holds a number for every cell and every sum of cells, thousands of them. They are public in
the tiles; a row of the chain holds the hash of each node, so that the chain vouches for them, and the total.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from dphist.noise import NoiseSource
from dphist.product.columns import column_sum
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.tree.interval import half_widths
from dphist.tree.law import LawTable
from dphist.tree.release import BinReleases, NodeRelease
from stream_app.core.records import Int64Array


def close_bins(
    design: ProductDesign, held: bytes, counts: Int64Array, noise: NoiseSource
) -> tuple[BinReleases, bytes]:
    """Noise sealed bins: return what they make public, its running count the total's, and the new state.

    Args: held, the counter's state before them, empty at an epoch's start; counts, shape (bins, cells). Both
        are SECRET, and so is the new state.
    """
    counter = ProductCounter.restore(design, noise, held) if held else ProductCounter(design, noise)
    releases = counter.push_many(counts)
    total = np.rint(releases.published @ column_sum(design).weights).astype(np.int64)
    shown = BinReleases(releases.shape, releases.first_bin, releases.levels, total[:, np.newaxis])
    return shown, counter.to_bytes()


def running_errors(
    design: ProductDesign, first_bin: int, bins: int, confidence: float
) -> Iterator[tuple[float, float]]:
    """Yield variance and half width, in counts, of the total after each bin as it is first published."""
    total = column_sum(design)
    errors = [total.live_error(bin + 1) for bin in range(first_bin, first_bin + bins)]
    halves, _ = half_widths(LawTable.of([error.law for error in errors]), confidence)
    for error, half_width in zip(errors, halves.tolist(), strict=True):
        # The total itself is rounded to whole units once more.
        yield error.variance, half_width + error.rounding + 2.0**-16


def node_hash(node: NodeRelease) -> str:
    """Return the SHA-256 of a node's columns as the tiles hold them: little-endian int64."""
    return hashlib.sha256(node.values.astype("<i8").tobytes()).hexdigest()
