"""Release over all axes: turns exact cell counts of closed bins into noisy columns, each released once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dphist.noise import NoiseSource, SystemNoise
from dphist.product.columns import check_room
from dphist.product.design import ProductDesign
from dphist.tree.anticipating import AnticipatingCounter, new_counter
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.tree.release import BinReleases, LevelRelease
from dphist.tree.upward import checked_counts
from dphist.units import UNITS_PER_COUNT


class ProductCounter:
    """Counts the cells of closed bins; every push releases all columns of the nodes that it completes.

    Guarantee: all releases of one epoch together are ``design.epsilon``-DP for the design's neighbours, also
        if later events depend on released values. Only ``to_bytes()`` reveals exact counts, no repr or error.
    Args: design; noise source, by default the system's. An anticipating design draws the noise of the whole
        epoch from it now.
    Cost: a push draws noise ``design.columns`` times (1 + 1/k + 1/k^2 + ...) times on average; memory
        O(height * columns), or 24 bytes per bin and column if anticipating.

    >>> from dphist import SeededNoise, plan_product
    >>> counter = ProductCounter(plan_product(4, 1e9, keys=2, buckets=2), SeededNoise(0))
    >>> [level.values.tolist() for level in counter.push([5, 0, 1, 2]).levels]
    [[[5, 0, 1, 2]]]
    """

    def __init__(self, design: ProductDesign, noise: NoiseSource | None = None) -> None:
        self.design = design
        self._noise = SystemNoise() if noise is None else noise
        self._counters = [
            new_counter(group.design, self._noise, group.width, history=False) for group in design.groups
        ]

    def __repr__(self) -> str:
        return f"<ProductCounter columns={self.design.columns} bin={self.bin}>"

    @property
    def bin(self) -> int:
        """The number of bins pushed so far: the index of the next one."""
        return self._counters[0].bin

    def push(self, cells: ArrayLike) -> BinReleases:
        """Close the next bin, as ``push_many`` of one bin. Args: the counts of its cells, shape (cells,)."""
        return self.push_many(np.asarray(cells)[np.newaxis])

    def push_many(self, cells: ArrayLike) -> BinReleases:
        """Close many bins; return the nodes that they complete and the running counts, as arrays.

        Guarantee: see the class. If anything fails, nothing was released and the counter is unchanged.
        Args: exact counts of shape (bins, cells), none negative.
        Returns: per time level int64 (nodes, columns); ``published`` (bins, columns), in units of 2^-16.
        Raises: ValueError beyond the horizon, for counts of a wrong kind (the message never shows a count),
            and FullError if the published counts already fill the epoch.
        Cost: one call of the noise source per group and time level.
        """
        self._check_room()
        columns = self.design.columns_of(
            checked_counts(cells, self.design.cells, self.bin, self.design.time.horizon)
        )
        counters = [_copied(counter, self._noise) for counter in self._counters]
        releases = [
            counter.push_many(columns[:, group.columns])
            for counter, group in zip(counters, self.design.groups, strict=True)
        ]
        # Nothing before this line has changed the counter: a failure leaves every noise draw unused.
        self._counters = counters
        levels = tuple(
            LevelRelease(
                level,
                releases[0].levels[level - 1].first_index,
                np.concatenate([release.levels[level - 1].values for release in releases], axis=1),
            )
            for level in self.design.time.shape.levels
        )
        published = np.concatenate([release.published for release in releases], axis=1)
        return BinReleases(self.design.time.shape, releases[0].first_bin, levels, published)

    def _check_room(self) -> None:
        """Refuse to go on if the running counts as last published fill a causal epoch."""
        causal = [counter.live_units() for counter in self._counters if isinstance(counter, TreeCounter)]
        if causal:
            check_room(self.design, np.concatenate(causal) / UNITS_PER_COUNT)

    def to_bytes(self) -> bytes:
        """Return a copy of a causal counter's state: SECRET, it holds exact counts of incomplete nodes.

        Raises: ValueError for an anticipating counter, whose noise is not part of its state.
        """
        snapshots = []
        for counter in self._counters:
            if not isinstance(counter, TreeCounter):
                raise ValueError("product counter: an anticipating one has no copy without its noise")
            snapshots.append(counter.snapshot())
        return _joined(snapshots).to_bytes()

    @classmethod
    def restore(cls, design: ProductDesign, noise: NoiseSource, data: bytes) -> ProductCounter:
        """Continue from ``to_bytes`` of a causal counter, as if nothing had happened between.

        Raises: ValueError if the bytes are damaged or belong to another design.
        """
        snapshot = CounterSnapshot.from_bytes(data) if data.startswith(CounterSnapshot.code) else _first(data)
        if snapshot.accumulators.shape[1] != design.columns:
            raise ValueError("product counter: the stored bytes are damaged or belong to another design")
        counter = cls(design, noise)
        for number, group in enumerate(design.groups):
            rows = snapshot.accumulators[:, group.columns], snapshot.open_sums[:, group.columns]
            own = CounterSnapshot(snapshot.bin, *rows)
            counter._counters[number] = TreeCounter.restore(group.design, noise, own)
        return counter


def _joined(snapshots: Sequence[CounterSnapshot]) -> CounterSnapshot:
    """Return the snapshots of all groups as one snapshot: their columns are placed side by side."""
    return CounterSnapshot(
        snapshots[0].bin,
        np.concatenate([one.accumulators for one in snapshots], axis=1),
        np.concatenate([one.open_sums for one in snapshots], axis=1),
    )


def _first(data: bytes) -> CounterSnapshot:
    """Read the format of version 1: for each group, the size of its snapshot, then the bytes."""
    snapshots = []
    while data:
        stop = 8 + int.from_bytes(data[:8], "little")
        snapshots.append(CounterSnapshot.from_bytes(data[8:stop]))
        data = data[stop:]
    if len({(one.bin, len(one.accumulators)) for one in snapshots}) != 1:
        raise ValueError("product counter: the stored bytes are damaged")
    return _joined(snapshots)


def _copied(
    counter: TreeCounter | AnticipatingCounter, noise: NoiseSource
) -> TreeCounter | AnticipatingCounter:
    # An anticipating push only adds noise drawn earlier, so it cannot fail after the checks.
    if isinstance(counter, AnticipatingCounter):
        return counter
    return TreeCounter.restore(counter.design, noise, counter.snapshot())
