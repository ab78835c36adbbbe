"""The causal counter: turns exact counts of closed bins into noisy nodes, each released once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray, Int64Array
from dphist.curve import Curve
from dphist.noise import NoiseSource, SystemNoise
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate, ReleasedForest, live_estimate
from dphist.tree.release import BinRelease, BinReleases, LevelRelease
from dphist.tree.upward import LARGEST_COUNT, UpwardPass, checked_counts, exact_nodes
from dphist.units import FullError


@dataclass(frozen=True)
class CounterSnapshot(Snapshot):
    """The state from which a counter continues. SECRET: it holds exact counts of incomplete nodes.

    Args: bin, the number of closed bins; accumulators, (height, width): row i - 1 is the exact count of the
        complete children of the incomplete level-i node (0 in the last row); open_sums, (height, width),
        public, as in ``UpwardPass``.
    """

    bin: int
    accumulators: Int64Array = field(repr=False)
    open_sums: Int64Array = field(repr=False)

    code, noun = b"dpTC", "counter snapshot"
    first_version = FirstVersion(
        b"dpTC\x01\0",
        "<HQQ",
        lambda _, rows, width, bin: {"bin": bin, "accumulators": [rows, width], "open_sums": [rows, width]},
    )


def check_snapshot(design: TreeDesign, bin: int, accumulators: Int64Array, others_fit: bool) -> None:
    """Check that a snapshot belongs to a counter of a design. Raises: ValueError if it does not."""
    rows = accumulators.shape
    if len(rows) != 2 or rows[0] != design.shape.height or not others_fit:
        raise ValueError(f"counter snapshot: rows {rows} do not fit a tree of height {design.shape.height}")
    if not 0 <= bin <= design.horizon:
        raise ValueError(f"counter snapshot: bin {bin} is outside the horizon {design.horizon}")


class BinCounter(ABC):
    """Counts the closed bins of an epoch. Args: design; width in cells."""

    def __init__(self, design: TreeDesign, width: int) -> None:
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            raise ValueError(f"width: {width!r} is not a whole number of at least 1 cell")
        self.design = design
        self.width = width

    def __repr__(self) -> str:
        return f"<{type(self).__name__} branching={self.design.branching} width={self.width} bin={self.bin}>"

    @property
    @abstractmethod
    def bin(self) -> int:
        """The number of bins pushed so far: the index of the next one."""

    def push(self, counts: ArrayLike) -> BinRelease:
        """Close the next bin and release the nodes that it completes.

        Args: counts of the bin, an integer or shape (width,), none negative.
        Guarantee, Raises: as ``push_many``.
        """
        return self.push_many(np.atleast_1d(counts)[np.newaxis]).bin(0)

    def prefix(self, t: int | None = None) -> Estimate:
        """Return the count of bins [0, t), by default of all closed bins. Raises: as ``range``."""
        return self.range(0, self.bin if t is None else t)

    @abstractmethod
    def range(self, a: int, b: int) -> Estimate:
        """Return the best estimate of the events in bins [a, b). Raises: ValueError unless all are closed."""

    def curve(self, confidence: float = 0.95) -> Curve:
        """Return the best estimates of the running count after each closed bin, with an interval of each.

        Guarantee: each interval, by itself, contains the true count with at least this confidence.
        Raises: ValueError for several cells, without a closed bin or without history; a bad confidence.
        """
        if self.width != 1 or not self.bin:
            raise ValueError(f"curve: {self.width} cells and {self.bin} bins; it needs 1 cell and a bin")
        values, reach = self._running(confidence)
        at = np.arange(1, self.bin + 1)
        return Curve("running count", "bin", at, values, values - reach, values + reach, confidence)

    @abstractmethod
    def _running(self, confidence: float) -> tuple[FloatArray, FloatArray]:
        """Return the running count after each bin and half the width of its interval."""

    @abstractmethod
    def push_many(self, counts: ArrayLike) -> BinReleases:
        """Close many bins at once; return the same releases as pushing them one by one, as arrays.

        Guarantee: see the class. If anything fails, nothing was released and the counter is unchanged.
        Args: counts of shape (bins, width), integers, none negative.
        Raises: ValueError beyond the horizon or for counts of a wrong kind; FullError if the epoch is full.
            The message never shows a count.
        Cost: O(bins * width) arithmetic.
        """


class TreeCounter(BinCounter):
    """Counts closed bins under continual observation: every push releases the nodes that it completes.

    Guarantee: the nodes of one epoch together are ``design.epsilon``-DP for the design's neighbours, also if
        later events depend on released values. Each node's noise is drawn when the node completes. All
        estimates come from released nodes; only ``snapshot()`` reveals exact counts, no repr or error.
    Args: design, causal; noise source, by default the system's; width in cells (1 for a running count);
        history, whether to keep released nodes: without them ``prefix`` and ``range`` raise ValueError,
        ``live`` still works.
    Cost: a push draws noise for 1 + 1/k + 1/k^2 + ... nodes on average; memory O(height * width), plus
        history.
    Source: Chan, Shi, Song (2011) for continual release on trees; Hay et al. (2010) for the estimates.

    >>> from dphist import SeededNoise, plan_tree
    >>> counter = TreeCounter(plan_tree(horizon=4, epsilon=1e9), SeededNoise(0))
    >>> [node.values.tolist() for node in counter.push(5)]
    [[5]]
    >>> counter.live().value
    5.0
    """

    def __init__(
        self, design: TreeDesign, noise: NoiseSource | None = None, width: int = 1, history: bool = True
    ) -> None:
        super().__init__(design, width)
        if design.anticipates:
            raise ValueError(f"release: TreeCounter is causal; {design.release!r} needs another decoder")
        self._noise = SystemNoise() if noise is None else noise
        self._accumulators = np.zeros((design.shape.height, width), np.int64)
        self._upward = UpwardPass(design, width)
        self._forest = ReleasedForest(design, width) if history else None

    @property
    def bin(self) -> int:
        return self._upward.bins

    def push_many(self, counts: ArrayLike) -> BinReleases:
        first_bin, shape = self.bin, self.design.shape
        leaves = checked_counts(counts, self.width, first_bin, self.design.horizon)
        exact, accumulators = exact_nodes(shape, self._accumulators, leaves, first_bin)
        if max(int(sums.max(initial=0)) for sums in (*exact, accumulators)) > LARGEST_COUNT:
            raise FullError("counts: a node holds more than 2^45 events; shorten the epoch")
        nodes = self._noised(exact)
        # Nothing before this line has changed the counter: a failure leaves every noise draw unused.
        _, live = self._upward.advance(nodes)
        self._accumulators = accumulators
        levels = tuple(
            LevelRelease(level, first_bin // shape.widths[level], values)
            for level, values in zip(shape.levels, nodes, strict=True)
        )
        releases = BinReleases(shape, first_bin, levels, live)
        if self._forest is not None:
            self._forest.append_many(releases)
        return releases

    def live_units(self) -> Int64Array:
        """Return the running count as last published, shape (width,), in units of 2^-16."""
        return self._upward.live()

    def live(self) -> Estimate:
        """Return the running count after the last closed bin: the best estimate from complete nodes."""
        return live_estimate(self.design, self.bin, self._upward.live())

    def range(self, a: int, b: int) -> Estimate:
        """Return the best estimate from all released nodes. Raises: ValueError also without history."""
        return self._kept().range(a, b)

    def _running(self, confidence: float) -> tuple[FloatArray, FloatArray]:
        forest = self._kept()
        return forest.series("running")[:, 0], forest.series_half_widths("running", confidence)

    def _kept(self) -> ReleasedForest:
        if self._forest is None:
            raise ValueError("history: this counter keeps no released nodes; ask a ReleasedForest, or live()")
        return self._forest

    def snapshot(self) -> CounterSnapshot:
        """Return a copy of the state. SECRET."""
        return CounterSnapshot(self.bin, self._accumulators.copy(), self._upward.open_sums.copy())

    @classmethod
    def restore(
        cls,
        design: TreeDesign,
        noise: NoiseSource,
        snapshot: CounterSnapshot,
        history: ReleasedForest | None = None,
    ) -> TreeCounter:
        """Continue from a snapshot, as if nothing had happened between.

        Args: the design of the snapshot's counter; history, with all releases up to the snapshot's bin, or
            None to continue without history.
        Raises: ValueError if snapshot, design and history do not fit together.
        """
        accumulators, open_sums, bin = snapshot.accumulators, snapshot.open_sums, snapshot.bin
        check_snapshot(design, bin, accumulators, open_sums.shape == accumulators.shape)
        width = accumulators.shape[1]
        if history is not None and (history.design, history.width, history.bins) != (design, width, bin):
            raise ValueError(f"history: it holds {history.bins} bins of its design, the snapshot {bin}")
        counter = cls(design, noise, width, history=False)
        counter._accumulators = accumulators.astype(np.int64)
        counter._upward = UpwardPass(design, width, bin, open_sums)
        counter._forest = history
        return counter

    def _noised(self, exact: list[Int64Array]) -> list[Int64Array]:
        # Leaves first: the order in which single pushes draw.
        nodes = []
        for counts, scale in zip(reversed(exact), reversed(self.design.scales), strict=True):
            noise = self._noise.discrete_laplace(scale, counts.shape) if len(counts) else 0
            nodes.append(counts + noise)
        return nodes[::-1]
