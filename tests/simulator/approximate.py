"""Schedules of approximate streams, and the check that each release used one draw of their noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt

import numpy as np

from dphist.arrays import Int64Array
from dphist.toeplitz import RunningCounts, ToeplitzCounter, ToeplitzDesign
from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.kinds.toeplitz import Toeplitz, in_units
from stream_app.core.records import LedgerEntry
from stream_app.core.store_writes import Release
from tests.simulator.checks import Broken, History, released_columns
from tests.simulator.given_noise import Draw
from tests.simulator.schedule import Schedule

_BITS = 256


def approximate(schedule: Schedule) -> Schedule:
    """Return the schedule with an approximate stream over the same log and faults."""
    plain = replace(schedule, buckets=1, sums=False, window=0, over_epochs=False, total=False)
    return replace(plain, approximate=True, release="causal")


@dataclass(frozen=True)
class _Silent:
    private: bool = True

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        """Return zeros."""
        return np.zeros(shape, np.int64)


def check_gaussian(
    release: Release, history: History, kind: Toeplitz, draws: list[Draw], used: set[int]
) -> None:
    """Check that the published counts follow from C x plus one whole, unused draw of the full variance.

    Grey box: the check knows the exact counts, every draw, and the noisy values of earlier releases.
    """
    design, epoch = kind.toeplitz, history.epochs[-1]
    counts = history.epoch_counts(epoch, release.last_bin)
    first = release.first_bin - epoch.first_bin
    columns = released_columns(release, kind.tables)
    published = np.array([columns[PUBLISHED, bin] for bin in range(first, len(counts))])
    before = history.noisy.get(epoch.epoch, counts[:0])[:first]
    history.noisy[epoch.epoch] = noisy_values(design, counts, before, published, draws, used)


def noisy_values(
    design: ToeplitzDesign,
    counts: Int64Array,
    before: Int64Array,
    published: Int64Array,
    draws: list[Draw],
    used: set[int],
) -> Int64Array:
    """Return C x plus the draw that explains the published counts; mark the draw as used.

    Args: counts, of all bins; before, C x plus noise of the bins whose counts were published earlier.
    """
    first = len(before)
    exact = ToeplitzCounter(design).close(counts, _Silent())
    for number, draw in reversed(list(enumerate(draws))):
        fits = draw.scale == design.variance_steps and draw.values.shape == published.shape
        if number in used or not fits:
            continue
        noisy = np.concatenate([before, exact[first:] + draw.values])
        if np.array_equal(in_units(design, RunningCounts(design).append(noisy)[first:]), published):
            used.add(number)
            return noisy
    bins = f"bins {first} to {len(counts) - 1} of an epoch"
    raise Broken(f"{bins}: not C x plus one unused draw of {float(design.sigma):.4g}")


def check_charge(entry: LedgerEntry, design: ToeplitzDesign) -> None:
    """Check that a ledger entry's mu is not below the mechanism's, computed here from scratch."""
    if Fraction(entry.mu or 0) < least_mu(design):
        raise Broken(
            f"epoch {entry.epoch}: mu {entry.mu} is below what a unit can change, roundings included"
        )


def least_mu(design: ToeplitzDesign) -> Fraction:
    """Return a lower bound of D / sigma, from the definitions of norm and rounding."""
    strategy, caps = design.strategy, design.caps
    pairs = list(zip(strategy.weights, strategy.rates, strict=True))
    below = [sum((a * rate**j for a, rate in pairs), Fraction(0)) for j in range(design.horizon - 1)]
    c = [Fraction(1), *below]
    sides = 2 if design.neighbours == "substitute" else 1
    squared = sides * caps.l2_squared * sum((one * one for one in c), Fraction(0))
    columns = caps.l1 if caps.max_keys is None else min(caps.max_keys, caps.l1)
    values = design.horizon * min(design.width, sides * columns)
    step = Fraction(1, 1 << design.output_bits)
    rounding = step + sum((a / (1 - rate) for a, rate in pairs), Fraction(0)) / (1 << design.buffer_bits)
    # The curve is that of the noise without the part that rounds it to the lattice, of parameter 2u.
    normal = design.sigma**2 - 4 * step**2
    return (_root(squared) + _root(Fraction(values)) * rounding) / (_root(normal) + Fraction(1, 1 << _BITS))


def _root(number: Fraction) -> Fraction:
    """Return the square root, rounded down to units of 2^-256."""
    return Fraction(isqrt((number.numerator << 2 * _BITS) // number.denominator), 1 << _BITS)
