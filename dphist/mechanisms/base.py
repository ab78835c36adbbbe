"""The input of a mechanism (``Request``) and its output (``HistogramRelease``)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.arrays import FloatArray, Int64Array
from dphist.curve import Curve
from dphist.laws.interval import Interval, least_draws, order_statistic
from dphist.laws.law import discrete_laplace_variance
from dphist.mechanisms.ranges import checked_ranges, range_sums, spread_ranges
from dphist.noise import NoiseSource, Scale, SeededNoise
from dphist.privacy import NEIGHBOURS_IN_WORDS, Neighbours, exact, shortly

Epsilon = Fraction | int | float
# A total of this size, in units of 2^-20 and with noise, stays inside int64.
LARGEST_TOTAL = 2**42
_SEED = 20100913
_DRAWS = 2048  # at 0.95, the true confidence is about 0.97
_FLOATING_ERROR = 1e-10
RangeFunction = Callable[[Int64Array], FloatArray]
Numbers = NDArray[np.int64] | NDArray[np.float64]


class BudgetLedger:
    """Records the epsilon of each step of a release, in exact fractions, and refuses to overspend.

    Guarantee: the ledger keeps the sum of the steps' epsilons at most at epsilon. If each step, given the
        earlier outputs, is DP with its own epsilon, the release is epsilon-DP by sequential composition.

    >>> ledger = BudgetLedger(1)
    >>> ledger.spend("partition", Fraction(1, 4)), ledger.spend_rest("counts")
    (Fraction(1, 4), Fraction(3, 4))
    >>> ledger.spend("again", Fraction(1, 10**9))
    Traceback (most recent call last):
        ...
    ValueError: step 'again' asks for epsilon 1/1000000000 but 0 of 1 is left
    """

    def __init__(self, epsilon: Epsilon) -> None:
        self.epsilon = exact(epsilon)
        self._steps: list[tuple[str, Fraction]] = []

    @property
    def steps(self) -> list[tuple[str, Fraction]]:
        """The steps so far as (name, epsilon), in the order they were spent."""
        return list(self._steps)

    @property
    def left(self) -> Fraction:
        """The epsilon that is not yet spent."""
        return self.epsilon - sum((spent for _, spent in self._steps), Fraction(0))

    def spend(self, step: str, epsilon: Epsilon) -> Fraction:
        """Record a step's epsilon and return it exactly.

        Raises: ValueError if the epsilon is not above zero, or more than is left.
        """
        spent = exact(epsilon, f"epsilon of step {step!r}")
        if spent > self.left:
            raise ValueError(
                f"step {step!r} asks for epsilon {spent} but {self.left} of {self.epsilon} is left"
            )
        self._steps.append((step, spent))
        return spent

    def spend_share(self, step: str, share: Epsilon) -> Fraction:
        """Spend this share, in (0, 1], of the total epsilon."""
        return self.spend(step, self.epsilon * exact(share, f"share of step {step!r}"))

    def spend_rest(self, step: str) -> Fraction:
        """Spend all that is left."""
        return self.spend(step, self.left)


@dataclass(frozen=True, eq=False, repr=False)
class HistogramRelease:
    """A published histogram: everything that a mechanism releases.

    Guarantee: if ``private``, ``epsilon``-DP for histograms that are ``neighbours``: "add_remove" means that
        they differ by one event added or removed, "substitute" by one event moved to another bin. The second
        does not hide whether an event is present: the number of events is then public.
    Args: ``counts`` are the estimates, of the input's shape; ``budget`` is the epsilon of each step, adding
        up to ``epsilon``; ``published`` holds other released values (bucket edges, tree nodes); ``of_zeros``
        releases zeros in the same way, if the error does not depend on the counts.
    """

    mechanism: str
    epsilon: Fraction
    counts: FloatArray
    budget: list[tuple[str, Fraction]]
    private: bool
    neighbours: Neighbours = "add_remove"
    published: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    answer_from: RangeFunction | None = field(default=None, repr=False)
    variance_from: RangeFunction | None = field(default=None, repr=False)
    of_zeros: Callable[[NoiseSource], "HistogramRelease"] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.counts.shape))
        error = self.variance(self._every_bin()[:1])
        stated = "not stated" if error is None or np.isnan(error[0]) else f"{np.sqrt(error[0]):,.3g}"
        lines = [
            f"<release of {shape} bins by {self.mechanism}, about {self.counts.sum():,.0f} events",
            f"  epsilon {shortly(self.epsilon)} for one event {NEIGHBOURS_IN_WORDS[self.neighbours]}",
            f"  standard error of the first bin, from noise: {stated}",
            "  counts, answer(ranges), interval(ranges), cdf(), to_pandas(), plot()",
        ]
        if not self.private:
            lines.append("  NOT PRIVATE: its noise was seeded or continuous")
        return "\n".join(lines) + ">"

    def answer(self, ranges: ArrayLike) -> FloatArray:
        """Estimate the count of each range.

        Args: (m, 2) half-open bins; for a two-dimensional histogram (m, 4) half-open rectangles,
            row start, row end, column start, column end.
        Returns: (m,) estimates: the mechanism's own if they are better than sums of ``counts``, else sums.
        """
        checked = checked_ranges(ranges, self.counts.shape)
        return range_sums(self.counts, checked) if self.answer_from is None else self.answer_from(checked)

    def variance(self, ranges: ArrayLike) -> FloatArray | None:
        """Return the noise variance of each answer; nan where it is unknown, None if it is for all.

        The variance is computed from public facts and published values, so it may be published too. Only for
        unbiased mechanisms is it the whole mean squared error. If the same noise also chooses which bins are
        averaged, no variance is stated: a formula for a fixed choice would then be wrong.
        """
        checked = checked_ranges(ranges, self.counts.shape)
        return None if self.variance_from is None else self.variance_from(checked)

    def interval(self, ranges: ArrayLike, confidence: float = 0.95) -> Interval:
        """Return an interval around each answer that contains the true count with this confidence.

        Guarantee: for each range by itself, chosen before looking at the counts. The half width is an order
            statistic of the errors of seeded releases of zeros, and too small with one chance in 10^6 over
            seeds. It is public: it depends on no count.
        Raises: ValueError for a mechanism whose error depends on the counts, and for a confidence outside
            (0, 0.999].
        Cost: thousands of releases of zeros; about a second for 1,000 bins.
        """
        draws = max(_DRAWS, least_draws(confidence))
        if self.of_zeros is None:
            raise ValueError(
                f"interval: the error of {self.mechanism} depends on the counts, so no interval can be "
                "stated; ask variance(ranges) for the part that noise adds, or release 'hb' or 'identity'"
            )
        answers, noise = self.answer(ranges), SeededNoise(_SEED)
        errors = np.array([self.of_zeros(noise).answer(ranges) for _ in range(draws)])
        reach = np.sort(np.abs(errors), axis=0)[order_statistic(draws, confidence) - 1]
        reach += _FLOATING_ERROR * (1.0 + np.abs(answers)) * (reach > 0)
        return Interval(answers - reach, answers + reach, confidence)

    def curve(self, confidence: float = 0.95) -> Curve:
        """Return the counts of the bins as a curve, with an interval of each bin if one can be stated.

        Raises: ValueError for a histogram of two dimensions.
        """
        return self._curve(f"events by {self.mechanism}", "bin", self._every_bin(), confidence)

    def cdf(self, confidence: float = 0.95) -> Curve:
        """Return the number of events before each of the n + 1 edges of bins, as a curve.

        Raises: as ``curve``.
        """
        edges = np.arange(self.counts.size + 1)
        before = np.stack([np.zeros_like(edges), edges], axis=1)
        return self._curve(f"events before, by {self.mechanism}", "edge", before, confidence)

    def to_pandas(self, confidence: float = 0.95) -> Any:
        """Return ``curve(confidence)`` as a DataFrame. Raises: as ``curve``; without pandas."""
        return self.curve(confidence).to_pandas()

    def plot(self, axes: Any = None, confidence: float = 0.95) -> Any:
        """Draw ``curve(confidence)`` with its band; return the axes. Raises: as ``curve``; no matplotlib."""
        return self.curve(confidence).plot(axes)

    def _every_bin(self) -> Int64Array:
        places = np.indices(self.counts.shape).reshape(self.counts.ndim, -1)
        return np.stack([edge for place in places for edge in (place, place + 1)], axis=1)

    def _curve(self, name: str, axis: str, ranges: Int64Array, confidence: float) -> Curve:
        if self.counts.ndim != 1:
            raise ValueError("curve: this histogram has two dimensions; ask answer(rectangles)")
        at, values = np.arange(len(ranges)), self.answer(ranges)
        if self.of_zeros is None:
            return Curve(name, axis, at, values)
        found = self.interval(ranges, confidence)
        return Curve(name, axis, at, values, np.asarray(found.lower), np.asarray(found.upper), confidence)


@dataclass(frozen=True, eq=False)
class Request:
    """The checked input of a mechanism: counts, budget, noise, workload.

    A mechanism reads ``counts`` only to pass integers to ``measure`` or ``select``, records the spent
    epsilon in ``ledger``, and ends with ``release``.
    """

    mechanism: str
    counts: Int64Array
    ledger: BudgetLedger
    noise: NoiseSource
    workload: Int64Array | None = None
    continuous: bool = False

    @property
    def ranges(self) -> Int64Array:
        """The workload, or ranges spread evenly over all ranges if none was given."""
        return spread_ranges(self.counts.shape) if self.workload is None else self.workload

    def measure(self, values: Int64Array, scale: Scale) -> Numbers:
        """Return ``values`` with independent integer noise added to each.

        Guarantee: D / scale-DP, with D the largest L1 change of ``values`` between neighbours.
        """
        if not np.issubdtype(values.dtype, np.integer):
            raise TypeError(f"{self.mechanism} measures {values.dtype}; put it on an integer lattice first")
        if self.continuous:  # the papers' noise, for research only
            assert isinstance(self.noise, SeededNoise)
            return np.asarray(values + self.noise.continuous_laplace(float(scale), values.shape))
        return values + self.noise.discrete_laplace(scale, values.shape)

    def measure_with_variance(self, values: Int64Array, scale: Scale) -> tuple[FloatArray, float]:
        """Return the values of ``measure``, as doubles, and the variance of the noise in each."""
        return self.measure(values, scale).astype(np.float64), self.variance_of(scale)

    def variance_of(self, scale: Scale) -> float:
        """Return the variance of the noise that ``measure`` draws with this scale."""
        size = float(scale)
        return 2.0 * size * size if self.continuous else discrete_laplace_variance(size)

    def total(self, share: Fraction, *, known: bool = False) -> float:
        """Return the number of events: exact if ``known``, else measured with this share of epsilon, >= 0.

        Guarantee: if measured, (share * epsilon)-DP, as one event changes the number by one.
        """
        exact = np.array([self.counts.sum()])
        if known:
            return float(exact[0])
        return max(0.0, float(self.measure(exact, 1 / self.ledger.spend_share("total", share))[0]))

    def select(self, scores: Int64Array, scale: Scale) -> int:
        """Choose an index privately, favouring high integer scores.

        Guarantee: (2 D / scale)-DP, with D the largest change of one score; (D / scale)-DP if one more event
            moves all scores in the same direction.
        """
        return self.noise.select(scores, scale)

    def release(
        self,
        counts: FloatArray,
        *,
        answer: RangeFunction | None = None,
        variance: RangeFunction | None = None,
        published: Mapping[str, NDArray[Any]] | None = None,
        known_total: bool = False,
    ) -> HistogramRelease:
        """Return the published histogram, after checking that exactly epsilon was spent.

        Args: known_total, whether the mechanism's guarantee is for one event moved to another bin.
        Raises: RuntimeError if the mechanism did not spend exactly its epsilon.
        """
        if self.ledger.left != 0:
            raise RuntimeError(
                f"{self.mechanism} left {self.ledger.left} of epsilon {self.ledger.epsilon} unspent"
            )
        return HistogramRelease(
            mechanism=self.mechanism,
            epsilon=self.ledger.epsilon,
            counts=np.asarray(counts, dtype=np.float64),
            budget=self.ledger.steps,
            private=self.noise.private and not self.continuous,
            neighbours="substitute" if known_total else "add_remove",
            published=dict(published or {}),
            answer_from=answer,
            variance_from=variance,
        )


def checked_counts(counts: ArrayLike, dimensions: int) -> Int64Array:
    """Return the counts as a read-only int64 copy.

    Raises: ValueError naming the first count that is negative, fractional or not a number, a wrong number of
        axes, an empty histogram, or a total above 2^42.

    >>> checked_counts([1.0, 2.5], 1)
    Traceback (most recent call last):
        ...
    ValueError: counts[1] is 2.5; counts are whole numbers
    """
    given = np.asarray(counts)
    if given.ndim != dimensions or given.size == 0:
        form = "a whole number for each bin, as [120, 80, 95]"
        form = form if dimensions == 1 else "rows of whole numbers, as [[3, 1], [0, 2]]"
        raise ValueError(f"counts have shape {given.shape}; this mechanism needs {form}")
    if given.dtype.kind not in "iuf":
        raise ValueError(f"counts have dtype {given.dtype}; pass integers")
    for bad, rule in (
        (~np.isfinite(given), "finite"),
        (given < 0, "not negative"),
        (given > LARGEST_TOTAL, "at most 2^42 in total"),
        (given != np.floor(given), "whole numbers"),
    ):
        if bad.any():
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(f"counts{list(index)} is {given[index]}; counts are {rule}")
    checked = given.astype(np.int64)
    if float(checked.sum(dtype=np.float64)) > LARGEST_TOTAL:
        raise ValueError("counts add up to more than 2^42; measure them in larger units")
    checked.flags.writeable = False
    return checked
