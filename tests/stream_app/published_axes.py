"""A stream over keys and a value that a test releases through the store, for pages and answers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dphist import plan_product
from dphist.arrays import Int64Array
from stream_app.core.counting.cells import Buckets, KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.records import Apply, Cut, Reply
from stream_app.core.releases.release import make_release
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

    async def close_cells(self, cells: Int64Array) -> None:
        """Count, seal and release the next bins. Args: cells, shape (bins, keys, buckets)."""
        state = await self._state()
        first = state.released_bin + 1
        last, width = first + len(cells) - 1, self.strategy.width
        partition = state.partitions["0"]
        for bin, counts in enumerate(cells.reshape(len(cells), width), start=first):
            places = np.flatnonzero(counts).astype(np.int64)
            change = Apply(
                self.strategy.hash,
                "0",
                self.position,
                self.position + 1,
                partition.last_cut_bin,
                None,
                np.full(len(places), bin, np.int64),
                places,
                counts[places],
            )
            assert await self.store.apply(self.name, change) is Reply.DONE
            self.position += 1
        cuts = [Cut(last, self.position)]
        await self.store.take_cuts(self.name, self.strategy.hash, "0", partition.last_cut_bin, cuts)
        assert await self.store.seal(self.name, self.strategy.hash, ["0"], last) == last
        exact = await self.store.read_cells(self.name, first, last, width)
        state = await self._state()
        release = make_release(state, self.strategy, exact, self.noise, nonce=str(state.seq))
        assert await self.store.release(self.name, release) is Reply.DONE
        await self.show()


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
