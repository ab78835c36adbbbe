"""A stream with amounts per key that a test releases through the store, for pages and answers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dphist.arrays import Int64Array
from dphist.planning.product import plan_sums
from stream_app.core.counting.cells import Amounts
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy
from tests.stream_app.published import Published
from tests.stream_app.published_axes import PublishedAxes

AMOUNTS = Amounts("amount", Fraction(0), Fraction(500), Fraction(1, 100))


@dataclass
class PublishedSums(PublishedAxes):
    """Sales per country. ``close_cells`` takes what ``sales_of`` returns."""

    name: str = "sales"
    carriers: tuple[str, ...] = ("FR", "DE", "ES", "IT")
    amounts: Amounts = AMOUNTS

    def __post_init__(self) -> None:
        weight, keys = self.amounts.range.weight, KeyList("country", self.carriers, True, False)
        product = plan_sums(self.epoch_bins, self.epsilon, weight, self.keys, branching=self.branching)
        Published.__post_init__(self)
        self.strategy = Strategy(self.name, self.declared(keys=keys, amounts=self.amounts), kind_of(product))


def sales_of(
    stream: PublishedSums, bins: int, busiest: int = 60, seed: int = 5
) -> tuple[Int64Array, Int64Array]:
    """Return the cells of random sales, (bins, keys, 2), and their amounts in cents, (bins, keys).

    The number of sales of a bin varies over the day, up to ``busiest`` for the first key.
    """
    random, weight = np.random.default_rng(seed), stream.amounts.range.weight
    cells, cents = np.zeros((bins, stream.keys, 2), np.int64), np.zeros((bins, stream.keys), np.int64)
    for bin in range(bins):
        busy = 0.5 + 0.5 * np.sin((bin % 24 - 8) / 24 * 2 * np.pi)
        for key in range(stream.keys):
            sold = random.gamma(2.0, 1000 + 200 * key, random.poisson(busiest * busy / (key + 1)))
            units = np.minimum(sold.astype(np.int64), weight)
            cells[bin, key] = np.sum(weight - units), np.sum(units)
            cents[bin, key] = units.sum()
    return cells, cents
