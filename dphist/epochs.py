"""Levels over epochs: nodes that count whole epochs, so that a running count over years stays accurate.

Each epoch has its own tree and ends with a published total of variance V. So the sum of E totals has variance
E V, which grows with the stream's age. Levels over epochs are a tree whose leaves are these totals. When a
node's last epoch ends, the node is measured with its own share of epsilon, and averaged with its children's
sum. A running count since the stream's first bin is then the sum of the few largest nodes that cover the
complete epochs, plus the running count of the open epoch.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import WeightedNoise, discrete_laplace_variance
from dphist.noise import NoiseSource, checked_scale
from dphist.privacy import exact, path_epsilon
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.decoder import WEIGHT_BITS, decoder_weights, scaled
from dphist.tree.design import LARGEST_SCALE, TreeDesign
from dphist.tree.estimate import Estimate
from dphist.tree.forest_laws import live_errors
from dphist.tree.published_laws import published_law, published_prefix_variances
from dphist.tree.release import NodeRelease
from dphist.tree.upward import LARGEST_COUNT, MOST_EVENTS
from dphist.units import UNITS_PER_COUNT, VALUE_BITS, FullError, check_room


@dataclass(frozen=True)
class EpochLevels:
    """An epoch's design and the levels over such epochs, all inside one epsilon.

    Guarantee: the epochs' releases and all nodes over epochs together are ``epsilon``-DP for streams that
        differ by at most the design's ``sensitivity`` in L1 over their whole life. An event is in one epoch
        and in one node of each level, so it costs the sum of their epsilons (added up in fractions, with
        scales rounded up). Neighbours that differ in every epoch (the unit user) are not covered.
    Args: epoch, the design of one epoch; branching, lowest level first: the epochs per lowest node, then the
        children per node, each at least 2, but the lowest may be 1 (each epoch's total is then measured
        twice); epsilons, one per level, lowest first.
    Raises: ValueError naming the wrong field.
    """

    epoch: TreeDesign
    epsilon: Fraction
    branching: tuple[int, ...] = ()
    epsilons: tuple[Fraction, ...] = ()

    def __post_init__(self) -> None:
        if len(self.branching) != len(self.epsilons):
            raise ValueError(f"epsilons: {len(self.epsilons)} given for {len(self.branching)} levels")
        if any(k < (2 if level else 1) for level, k in enumerate(self.branching)):
            raise ValueError(f"branching: {self.branching} joins nothing; the lowest is at least 1, others 2")
        if any(not isinstance(epsilon, Fraction) or epsilon <= 0 for epsilon in self.epsilons):
            raise ValueError("epsilons: every level's is a fraction above zero; use privacy.exact")
        if any(scale > LARGEST_SCALE for scale in self.scales):
            raise ValueError("epsilons: a level needs noise beyond 2^38 per node; leave that level out")
        spent = self.epoch.epsilon + path_epsilon(self.scales, self.epoch.sensitivity)
        if spent > self.epsilon:
            raise ValueError(
                f"epsilon: epoch and levels add up to {float(spent):g} > {float(self.epsilon):g}"
            )

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number of epochs that a node of each level covers, lowest first."""
        widths, epochs = [], 1
        for k in self.branching:
            epochs *= k
            widths.append(epochs)
        return tuple(widths)

    @cached_property
    def scales(self) -> tuple[float, ...]:
        """The noise scale of each level, in counts, rounded up."""
        return tuple(checked_scale(self.epoch.sensitivity / epsilon) for epsilon in self.epsilons)

    @cached_property
    def total_variance(self) -> float:
        """The variance of a complete epoch's published total."""
        return float(self.prefix_variances[-1])

    @cached_property
    def prefix_variances(self) -> FloatArray:
        """The variance of the running count within an epoch, t = 1..horizon."""
        return published_prefix_variances(self.epoch)

    @cached_property
    def children_weights(self) -> tuple[int, ...]:
        """The weight of the children's sum in a node's estimate, per level, in units of 2^-24."""
        return tuple(round(passed * (1 << WEIGHT_BITS)) for passed, _ in self._from_below)

    @cached_property
    def variances_from_below(self) -> tuple[float, ...]:
        """The variance of an epoch's total, then per level, lowest first, of the results of ``pooled``."""
        return (self.total_variance, *(variance for _, variance in self._from_below))

    @cached_property
    def _from_below(self) -> tuple[tuple[float, float], ...]:
        rows, below = [], self.total_variance
        for k, scale in zip(self.branching, self.scales, strict=True):
            own, children = discrete_laplace_variance(scale), k * below
            passed = own / (own + children) if own + children > 0 else 0.0
            below = passed * children
            rows.append((passed, below))
        return tuple(rows)

    def digits(self, epochs: int | Int64Array) -> list[Int64Array]:
        """Return how many single epochs, and nodes of each level, cover the first ``epochs`` epochs."""
        rest, digits = np.asarray(epochs), []
        for k in self.branching:
            rest, digit = np.divmod(rest, k)
            digits.append(digit)
        return [*digits, rest]

    def complete_variance(self, epochs: int | Int64Array) -> FloatArray:
        """Return the variance of the estimated count of the first ``epochs`` epochs, all complete."""
        pairs = zip(self.digits(epochs), self.variances_from_below, strict=True)
        return np.asarray(sum(digit * variance for digit, variance in pairs), np.float64)

    def mean_squared_error(self, epochs: int) -> float:
        """Return the expected squared error of the count since the stream's start, averaged over time.

        Guarantee: exact, up to the rounding of published values to 2^-16.
        Args: epochs, the number of epochs; the average is over all their bins.
        Cost: O(epochs * levels + horizon).
        """
        complete = self.complete_variance(np.arange(epochs))
        return float(complete.mean() + self.prefix_variances.mean())

    def complete_law(self, epochs: int) -> tuple[WeightedNoise, float]:
        """Return the law of the first ``epochs`` epochs' error, and a rounding bound in units of 2^-16."""
        digits = [int(digit) for digit in self.digits(epochs)]
        rows = (self._total_law, *self.node_laws)
        law = WeightedNoise.joined(
            WeightedNoise.joined([own], digit) for (own, _), digit in zip(rows, digits, strict=True)
        )
        return law, sum(digit * units for (_, units), digit in zip(rows, digits, strict=True))

    @cached_property
    def node_laws(self) -> tuple[tuple[WeightedNoise, float], ...]:
        """The law of one node's error, and a rounding bound in units of 2^-16, per level, lowest first."""
        law, units = self._total_law
        rows = []
        for level, k in enumerate(self.branching):
            passed = self.children_weights[level] / (1 << WEIGHT_BITS)
            below = ((weight * passed, copies * k, scale) for weight, copies, scale in law.groups)
            law = WeightedNoise.of([*below, (1.0 - passed, 1, self.scales[level])])
            units = units * k * passed + 0.5
            rows.append((law, units))
        return tuple(rows)

    def completed(self, epochs: int) -> list[int]:
        """Return the levels, counted from 0, of the nodes that end with epoch number ``epochs``."""
        return [level for level, width in enumerate(self.widths) if epochs % width == 0]

    def pooled(self, level: int, value: Int64Array, children: Int64Array) -> Int64Array:
        """Return the weighted mean of a node's own value and its children's estimated sum, in units of 2^-16.

        Args: level, from 0; value, in counts; children, in units of 2^-16.
        """
        own = value << VALUE_BITS
        return own + scaled(np.array([self.children_weights[level]]), children - own)

    def at_epsilon(self, epsilon: Fraction, epoch: TreeDesign) -> EpochLevels:
        """Return the same levels for another epsilon. Args: epoch, the epoch's design for that epsilon."""
        parts = tuple(own * epsilon / self.epsilon for own in self.epsilons)
        return EpochLevels(epoch, epsilon, self.branching, parts)

    def to_json(self) -> str:
        """Return the levels as canonical JSON text; the epoch's design is stored separately."""
        fields = {
            "branching": list(self.branching),
            "epsilon": str(self.epsilon),
            "epsilons": [str(epsilon) for epsilon in self.epsilons],
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, epoch: TreeDesign) -> EpochLevels:
        """Read the text of ``to_json`` and check it. Raises: ValueError for bad values."""
        fields = json.loads(text)
        epsilons = tuple(exact(epsilon) for epsilon in fields["epsilons"])
        return cls(epoch, exact(fields["epsilon"]), tuple(fields["branching"]), epsilons)

    @cached_property
    def _total_law(self) -> tuple[WeightedNoise, float]:
        design = self.epoch
        if design.anticipates:
            return published_law(design, 0, design.horizon), decoder_weights(design).rounding_units
        law, rounding = live_errors(design, np.array([design.horizon])).error(0)
        return law, rounding * UNITS_PER_COUNT


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
