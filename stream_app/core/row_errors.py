"""How far a row's running count may be off: the same bits however many bins share a release.

How many do follows how fast raw events were read, and rows are kept for ever. The last bits of a float depend
on what was computed along with it, so errors come from blocks of bins that no release can shift. They depend
on no count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dphist.product.columns import column_sum
from dphist.product.design import ProductDesign
from dphist.tree.design import TreeDesign
from dphist.tree.interval import half_widths
from dphist.tree.law import LawTable
from dphist.tree.published_error import published_rounding
from dphist.tree.published_laws import published_laws
from dphist.tree.series import series_laws, series_variance
from dphist.tree.upward import UNITS_PER_COUNT
from dphist.tree.weights import rounding_bounds
from stream_app.core.strategy import Strategy

CONFIDENCE = 0.95
BLOCK_BINS = 64

RowError = tuple[float, float]


def row_errors(strategy: Strategy, first_bin: int, bins: int) -> list[RowError]:
    """Return variance and half width, in counts, of the running count after each bin of an epoch.

    Over several axes it is the total's, as it is first published.
    Cost: a block of bins at its first one (20 ms), then nothing.
    """
    stop = first_bin + bins
    blocks = range(first_bin // BLOCK_BINS, (stop - 1) // BLOCK_BINS + 1)
    errors = [error for block in blocks for error in _block(_Block(strategy.hash, block, strategy))]
    before = blocks.start * BLOCK_BINS
    return errors[first_bin - before : stop - before]


@dataclass(frozen=True, slots=True)
class _Block:
    strategy_hash: str
    index: int
    strategy: Strategy = field(compare=False)


@lru_cache(maxsize=512)
def _block(block: _Block) -> tuple[RowError, ...]:
    first = block.index * BLOCK_BINS
    points = np.arange(first, min(first + BLOCK_BINS, block.strategy.design.horizon))
    if block.strategy.product is None:
        return _tree_errors(block.strategy.design, points)
    return _total_errors(block.strategy.product, points)


def _tree_errors(design: TreeDesign, points: np.ndarray) -> tuple[RowError, ...]:
    """Return the errors of the running counts, the same for every cell."""
    if design.release == "anticipating":
        published = published_laws(design, np.zeros_like(points), points + 1)
        halves, _ = half_widths(published, CONFIDENCE)
        return _pairs(published.deviations() ** 2, halves + published_rounding(design, 0))
    bins_so_far = int(points[-1]) + 1
    laws, row_of_point = series_laws(design, bins_so_far, "live", points)
    halves_of_rows, _ = half_widths(laws, CONFIDENCE)
    # A running count sums at most k - 1 estimates of each level, each rounded to whole units.
    rounding = sum(
        (k - 1) * bound for k, bound in zip(design.branching, rounding_bounds(design), strict=True)
    )
    variances = series_variance(design, bins_so_far, "live", points)
    return _pairs(variances, halves_of_rows[row_of_point] + rounding / UNITS_PER_COUNT)


def _total_errors(design: ProductDesign, points: np.ndarray) -> tuple[RowError, ...]:
    """Return the errors of the total's running counts, which is rounded to whole units once more."""
    total, once_more = column_sum(design), 2.0**-16
    if design.time.release == "anticipating":
        laws = total.published_laws(np.zeros_like(points), points + 1)
        halves, _ = half_widths(laws, CONFIDENCE)
        return _pairs(laws.deviations() ** 2, halves + total.published_rounding(0) + once_more)
    errors = [total.live_error(int(point) + 1) for point in points]
    halves, _ = half_widths(LawTable.of([error.law for error in errors]), CONFIDENCE)
    roundings = np.array([error.rounding for error in errors])
    return _pairs(np.array([error.variance for error in errors]), halves + roundings + once_more)


def _pairs(variances: np.ndarray, half_widths: np.ndarray) -> tuple[RowError, ...]:
    return tuple(zip(variances.tolist(), half_widths.tolist(), strict=True))
