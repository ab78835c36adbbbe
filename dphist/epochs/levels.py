"""Levels over epochs: nodes that count whole epochs, so that a running count over years stays accurate.

Each epoch has its own tree and ends with a published total of variance V. So the sum of E totals has variance
E V, which grows with the stream's age. Levels over epochs are a tree whose leaves are these totals. When a
node's last epoch ends, the node is measured with its own share of epsilon, and averaged with its children's
sum. A running count since the stream's first bin is then the sum of the few largest nodes that cover the
complete epochs, plus the running count of the open epoch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import WeightedNoise, discrete_laplace_variance
from dphist.noise import checked_scale
from dphist.privacy import exact, path_epsilon
from dphist.tree.decoder import WEIGHT_BITS, decoder_weights, scaled
from dphist.tree.design import LARGEST_SCALE, TreeDesign
from dphist.tree.forest_laws import live_errors
from dphist.tree.published_laws import published_law, published_prefix_variances
from dphist.units import UNITS_PER_COUNT, VALUE_BITS


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
