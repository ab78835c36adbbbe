"""Streams over keys, values, amounts or windows that a test releases through the store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from msgspec import structs

from dphist import plan_product, plan_tree
from dphist.arrays import Int64Array
from dphist.planning.product import plan_sums
from dphist.tree.design import TreeDesign
from dphist.windows.design import WindowDesign
from stream_app.core.counting.cells import Amounts, Buckets
from stream_app.core.counting.keys import Axis, KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy
from tests.stream_app.published import Published

AMOUNTS = Amounts("amount", Fraction(0), Fraction(500), Fraction(1, 100))

SHARE = Fraction(4, 5)


@dataclass
class PublishedAxes(Published):
    """Departures per carrier and delay. ``close_cells`` counts bins of cells and makes them visible."""

    name: str = "delays"
    carriers: tuple[str, ...] = ("UA", "B6", "EV", "DL")
    low: int = -30
    high: int = 120
    buckets: int = 50

    def __post_init__(self) -> None:
        product = plan_product(
            self.epoch_bins,
            self.epsilon,
            keys=len(self.carriers) + 1,
            buckets=self.buckets,
            branching=self.branching,
        )
        keys, value = self.axes()
        said = self.declared(keys=keys, value=value)
        super().__post_init__()
        self.strategy = Strategy(self.name, said, kind_of(product))

    def axes(self) -> tuple[KeyList, Buckets]:
        """Return the declared keys and value."""
        keys = KeyList("carrier", self.carriers, True, False)
        return keys, Buckets("delay", Fraction(self.low), Fraction(self.high), self.buckets)

    @property
    def keys(self) -> int:
        """The number of keys, including the key of all other values."""
        return len(self.carriers) + 1


def delays(stream: PublishedAxes, bins: int, seed: int = 7) -> Int64Array:
    """Return departures whose number varies over the day, and whose delays grow towards the evening."""
    generator = np.random.default_rng(seed)
    cells = np.zeros((bins, stream.keys, stream.buckets), np.int64)
    for bin in range(bins):
        busy = 1.0 + np.sin((bin % 24 - 8) / 24 * 2 * np.pi)
        for key in range(stream.keys):
            flights = generator.poisson(60 * busy / (key + 1))
            minutes = generator.gamma(1.6, 10 + 1.2 * (bin % 24), flights) - 12
            place = ((minutes - stream.low) * stream.buckets / (stream.high - stream.low)).astype(np.int64)
            np.add.at(cells[bin, key], np.clip(place, 0, stream.buckets - 1), 1)
    return cells


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


@dataclass
class PublishedWindows(PublishedAxes):
    """Windows of delays: one histogram per carrier, or the carriers' counts.

    ``close_cells`` works as in ``PublishedAxes``.
    """

    name: str = "windows"
    mechanism: str = "hb"
    window_bins: int = 24
    over_keys: bool = False  # False: over the value

    def __post_init__(self) -> None:
        super().__post_init__()
        keys, value = self.axes()
        window: dict[str, Any] = {
            "mode": "window",
            "window_us": self.window_bins * self.bin_us,
            "mechanism": self.mechanism,
            "share": SHARE,
        }
        axes: dict[str, Axis] = {"keys": keys, "value": value}
        if self.over_keys:
            axes = {"keys": structs.replace(keys, **window)}
        else:
            axes["value"] = structs.replace(value, **window)
        said = self.declared(**axes)
        whole = plan_tree(self.epoch_bins, self.epsilon, branching=self.branching)
        assert isinstance(whole, TreeDesign)
        time = replace(whole, shares=tuple(share * (1 - SHARE) for share in whole.shares))
        histograms, buckets = (1, self.keys) if self.over_keys else (self.keys, self.buckets)
        design = WindowDesign(time, self.window_bins, histograms, buckets, self.mechanism, SHARE)
        self.strategy = Strategy(self.name, said, kind_of(design))

    async def close_cells(self, cells: Int64Array, show: bool = True) -> None:
        """Count, seal and release the next bins. Args: cells, shape (bins, keys, buckets)."""
        cells = cells.sum(axis=2, keepdims=True) if self.over_keys else np.asarray(cells)
        await super().close_cells(cells, show)
