"""Closing bins over several axes: what is released for every column, and the total as the running count.

A causal stream releases the columns of completed nodes, an anticipating one those of the running count. There
is a column for every cell and every sum of cells, thousands of them. They are public in the tiles; a row of
the chain holds their hashes, so that the chain vouches for them, and the total.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from dphist.noise import NoiseSource
from dphist.product.columns import column_sum
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.published import CellTotals, publish_bins
from dphist.tree.anticipating_step import BinsNoise
from dphist.tree.interval import half_widths
from dphist.tree.law import LawTable
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


def running_errors(
    design: ProductDesign, first_bin: int, bins: int, confidence: float
) -> Iterator[tuple[float, float]]:
    """Yield variance and half width, in counts, of the total after each bin as it is first published."""
    total = column_sum(design)
    if design.time.release == "anticipating":
        points = np.arange(first_bin, first_bin + bins)
        laws = total.published_laws(np.zeros_like(points), points + 1)
        halves, _ = half_widths(laws, confidence)
        reaches = halves + total.published_rounding(0) + 2.0**-16
        yield from zip((laws.deviations() ** 2).tolist(), reaches.tolist(), strict=True)
        return
    errors = [total.live_error(bin + 1) for bin in range(first_bin, first_bin + bins)]
    halves, _ = half_widths(LawTable.of([error.law for error in errors]), confidence)
    for error, half_width in zip(errors, halves.tolist(), strict=True):
        # The total itself is rounded to whole units once more.
        yield error.variance, half_width + error.rounding + 2.0**-16


def columns_hash(values: Int64Array) -> str:
    """Return the SHA-256 of a node's or a row's columns as the tiles hold them: little-endian int64."""
    return hashlib.sha256(values.astype("<i8").tobytes()).hexdigest()
