"""A stream over listed keys alone that a test releases through the store."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dphist import plan_product
from dphist.arrays import Int64Array
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy
from tests.stream_app.published import Published
from tests.stream_app.published_axes import PublishedAxes


@dataclass
class PublishedKeys(PublishedAxes):
    """Departures per carrier. ``close_cells`` counts bins of cells and makes them visible."""

    name: str = "carriers"
    other: bool = False
    total: bool = False  # measured beside the keys
    buckets: int = 1

    def __post_init__(self) -> None:
        Published.__post_init__(self)
        share = Fraction(int(self.total), 4)
        keys = len(self.carriers) + self.other
        product = plan_product(
            self.epoch_bins,
            self.epsilon,
            keys,
            1,
            total_share=share,
            release=self.release,
            branching=self.branching,
        )
        declared = self.declared(keys=KeyList("carrier", self.carriers, self.other, self.total))
        self.strategy = Strategy(self.name, declared, kind_of(product))

    async def fill(self, cells: Int64Array) -> None:
        """Open as many epochs as some bins need, and release them. Args: cells, shape (bins, keys)."""
        for number, first in enumerate(range(0, len(cells), self.epoch_bins)):
            await self.open(number, self.first_bin + first)
            await self.close_cells(cells[first : first + self.epoch_bins, :, np.newaxis])
