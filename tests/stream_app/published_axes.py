"""A stream over keys and a value that a test releases through the store, for pages and answers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dphist import plan_product
from dphist.arrays import Int64Array
from stream_app.core.counting.cells import Buckets
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy
from tests.stream_app.published import Published


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
