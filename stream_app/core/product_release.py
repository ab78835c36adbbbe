"""Closing bins over several axes: what is released for every column, and the total as the running count.

A causal stream releases the columns of completed nodes, an anticipating one those of the running count. There
is a column for every cell and every sum of cells, thousands of them. They are public in the tiles; a row of
the chain holds their hashes, so that the chain vouches for them, and the total.
"""

from __future__ import annotations

import hashlib

import numpy as np

from dphist.noise import NoiseSource
from dphist.product.columns import column_sum
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.published import CellTotals, publish_bins
from dphist.tree.anticipating_step import BinsNoise
from dphist.tree.release import BinReleases
from stream_app.core.records import Int64Array


def close_bins(
    design: ProductDesign, held: bytes, counts: Int64Array, noise: NoiseSource
) -> tuple[BinReleases, bytes]:
    """Noise sealed bins causally: return what they make public, the running count the total's, and the state.

    Args: held, the counter's state before them, empty at an epoch's start; counts, shape (bins, cells). Both
        are SECRET, and so is the new state.
    """
    counter = ProductCounter.restore(design, noise, held) if held else ProductCounter(design, noise)
    releases = counter.push_many(counts)
    total = totals(design, releases.published)
    shown = BinReleases(releases.shape, releases.first_bin, releases.levels, total)
    return shown, counter.to_bytes()


def publish_columns(
    design: ProductDesign, held: bytes, counts: Int64Array, noise: BinsNoise
) -> tuple[BinReleases, bytes]:
    """Publish the running count of every column, under noise that was drawn before the epoch.

    Args, Returns: as ``close_bins``; the noise is that of exactly these bins.
    Raises: ValueError for the noise of other bins.
    """
    before = CellTotals.from_bytes(held) if held else CellTotals.first(design)
    if noise.first_bin != before.bin:
        raise ValueError(f"noise: that of bins from {noise.first_bin} given; bins from {before.bin} needed")
    published, after = publish_bins(design, before, counts, noise.errors)
    return BinReleases(design.time.shape, before.bin, (), published), after.to_bytes()


def totals(design: ProductDesign, published: Int64Array) -> Int64Array:
    """Return the total's running counts, (bins, 1), from those of all columns, in units of 2^-16."""
    return np.rint(published @ column_sum(design).weights).astype(np.int64)[:, np.newaxis]


def columns_hash(values: Int64Array) -> str:
    """Return the SHA-256 of a node's or a row's columns as the tiles hold them: little-endian int64."""
    return hashlib.sha256(values.astype("<i8").tobytes()).hexdigest()
