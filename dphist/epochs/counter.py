"""Release nodes over epochs, each once when its last epoch ends, and count since the stream's start."""

from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from dphist.arrays import Int64Array
from dphist.epochs.levels import EpochLevels
from dphist.laws.law import WeightedNoise
from dphist.noise import NoiseSource
from dphist.room import FullError, check_room
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.estimate import Estimate
from dphist.tree.release import NodeRelease
from dphist.tree.upward import LARGEST_COUNT, MOST_EVENTS
from dphist.units import UNITS_PER_COUNT


@dataclass(frozen=True)
class EpochRelease:
    """The values that the end of an epoch releases, besides its own bins.

    Args: nodes, those that the epoch completes, lowest level (1) first; complete, the count of all complete
        epochs, (width,), in units of 2^-16: the next epoch's running counts are added to it.
    """

    epoch: int
    nodes: tuple[NodeRelease, ...]
    complete: Int64Array


@dataclass(frozen=True)
class EpochLevelsSnapshot(Snapshot):
    """The state from which the counter continues. SECRET: it holds exact counts of incomplete nodes.

    Args: epochs, the number of closed epochs; accumulators, (levels, width), exact counts of the complete
        children of each level's incomplete node; open_sums, (levels + 1, width), public: the estimates of
        these counts, and in the last row the sum of all nodes of the highest level.
    """

    epochs: int
    accumulators: Int64Array = field(repr=False)
    open_sums: Int64Array = field(repr=False)

    code, noun = b"dpEL", "snapshot of levels over epochs"
    first_version = FirstVersion(
        b"dpEL\x01\0",
        "<HQQ",
        lambda _, levels, width, epochs: {
            "epochs": epochs,
            "accumulators": [levels, width],
            "open_sums": [levels + 1, width],
        },
    )


class EpochLevelsCounter:
    """Counts over an unlimited number of epochs. Each epoch's end releases the nodes that it completes.

    Guarantee: as ``EpochLevels``, also when later events depend on released values. A node's noise is drawn
        once, when the node completes. If anything fails, nothing was released or changed.
    Args: design; noise source; width in cells; a snapshot to continue from.
    Cost: memory O(levels * width), whatever the number of epochs.
    Source: Chan, Shi, Song (2011), the hybrid mechanism, for endless counting; Hay et al. (2010), estimates.

    >>> from fractions import Fraction
    >>> from dphist import SeededNoise, plan_tree
    >>> levels = EpochLevels(plan_tree(2, 10**9), Fraction(2 * 10**9), (2,), (Fraction(10**9),))
    >>> counter = EpochLevelsCounter(levels, SeededNoise(0))
    >>> [counter.close_epoch(np.array([n]), np.array([n << 16])).complete[0] >> 16 for n in (5, 7, 1)]
    [np.int64(5), np.int64(12), np.int64(13)]
    """

    def __init__(
        self,
        design: EpochLevels,
        noise: NoiseSource,
        width: int = 1,
        snapshot: EpochLevelsSnapshot | None = None,
    ) -> None:
        levels = len(design.branching)
        if snapshot is None:
            zeros = np.zeros((2 * levels + 1, width), np.int64)
            snapshot = EpochLevelsSnapshot(0, zeros[:levels], zeros[levels:])
        if snapshot.accumulators.shape != (levels, width) or snapshot.open_sums.shape != (levels + 1, width):
            raise ValueError(
                f"snapshot of levels over epochs: rows {snapshot.accumulators.shape} do not fit {levels} "
                f"levels of width {width}"
            )
        self.design = design
        self.width = width
        self._noise = noise
        self._state = snapshot

    def __repr__(self) -> str:
        return f"<EpochLevelsCounter branching={self.design.branching} epochs={self.epochs}>"

    @property
    def epochs(self) -> int:
        """The number of closed epochs."""
        return self._state.epochs

    @property
    def complete(self) -> Int64Array:
        """The count of all complete epochs, shape (width,), in units of 2^-16."""
        return np.asarray(self._state.open_sums.sum(axis=0))

    def close_epoch(self, total: Int64Array, published: Int64Array) -> EpochRelease:
        """End an epoch: release the nodes over epochs that it completes, each exactly once.

        Args: total, exact; published, the epoch's published total in units of 2^-16; both int64 (width,).
        Raises: ValueError for totals of a wrong kind, FullError if the epochs are full; the message never
            shows a total.
        """
        check_room(float(self.complete.sum(dtype=np.float64)) / UNITS_PER_COUNT, MOST_EVENTS)
        exact, estimate = self._checked(total, "total"), self._checked(published, "published total")
        if exact.min(initial=0) < 0:
            raise ValueError("total: below 0; check what is counted")
        accumulators, open_sums = self._state.accumulators.copy(), self._state.open_sums.copy()
        epoch, nodes = self.epochs, []
        for level, width in enumerate(self.design.widths):
            accumulators[level] += exact
            open_sums[level] += estimate
            if accumulators[level].max(initial=0) > LARGEST_COUNT:
                raise FullError("total: a node over epochs holds more than 2^45 events")
            if (epoch + 1) % width:
                break
            exact, children = accumulators[level].copy(), open_sums[level].copy()
            accumulators[level] = open_sums[level] = 0
            values = exact + self._noise.discrete_laplace(self.design.scales[level], (self.width,))
            nodes.append(NodeRelease(level + 1, epoch // width, values))
            estimate = self.design.pooled(level, values, children)
        else:
            open_sums[-1] += estimate
        self._state = EpochLevelsSnapshot(epoch + 1, accumulators, open_sums)
        return EpochRelease(epoch, tuple(nodes), self.complete)

    def running(self, within: Estimate | None = None) -> Estimate:
        """Return the count since the stream's start: all complete epochs, plus ``within`` of the open epoch.

        Guarantee: unbiased, with the exact law of its error, because the two parts are independent.
        Args: within, the open epoch's running count as first published; None at an epoch's edge.
        """
        law, rounding = self.design.complete_law(self.epochs)
        complete = Estimate.of_units(self.complete, law, rounding / UNITS_PER_COUNT)
        if within is None:
            return complete
        law = WeightedNoise.joined([law, within.law])
        rounding = complete.rounding + within.rounding
        return Estimate(complete.value + within.value, law.variance, law, rounding)

    def snapshot(self) -> EpochLevelsSnapshot:
        """Return a copy of the state. SECRET."""
        return deepcopy(self._state)

    def _checked(self, values: Int64Array, name: str) -> Int64Array:
        rows = np.asarray(values)
        if rows.dtype != np.int64 or rows.shape != (self.width,):
            raise ValueError(
                f"{name}: {rows.dtype} {rows.shape} given; int64 of shape ({self.width},) is needed"
            )
        return rows
