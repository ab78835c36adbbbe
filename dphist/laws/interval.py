"""Shortest symmetric intervals from the exact law of a weighted sum of discrete Laplace variables.

Intervals of normal laws follow from the normal quantile; ``TAIL_SHARE`` covers its rounding. The rest of this
text is about sums of discrete Laplace variables.

The characteristic function of one variable of variance s is 1 / (1 + s (1 - cos theta)), so the
characteristic function of the sum S is known in closed form. Its inversion needs three approximations. Each
one has a bound, and the interval is widened by these bounds:

- A period: probabilities are read from a Fourier series of period L. This adds at most P(|S| > L - x). A
  Chernoff bound from the exact moment generating function chooses L so that this is ``TAIL_SHARE`` of 1 -
  confidence.
- A dither: in general the values of S are not multiples of one unit. Then a small independent variable U is
  added, with |U| <= eta and a Kaiser-Bessel density, so that the series' coefficients decrease fast. The
  interval stays valid, as P(|S| <= x + eta) >= P(|S + U| <= x). If S is a multiple of some unit, the sum runs
  over one whole period instead, without a dither.
- Dropped terms: |c_j| is at most the characteristic function divided by j. So a frequency is left out if the
  characteristic function there is below TAIL_SHARE of 1 - confidence, divided by sum 1 / j. Bounds show this
  for whole blocks of frequencies.
Source: Kuo and Kaiser (1966) for the window; the rest is elementary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import FloatArray
from dphist.laws.inversion import block_starts, kaiser_bessel, piece_widths, pieces, tail_bounds
from dphist.laws.law import LawTable, WeightedNoise, squared_sine, waves

# The dither, in standard errors. An interval is wider than the shortest one by a small multiple of it.
DITHER = 1 / 256
# A search step is this many times finer than the dither.
_STEPS_PER_DITHER = 16
# Each certificate (period, dither, dropped terms) costs at most this part of 1 - confidence.
TAIL_SHARE = 1e-5
# A generous bound on the rounding error of sums of doubles below one.
_FLOATING_ERROR = 1e-11
_NEGLIGIBLE = 1e-13
# Newton steps towards a half width; if these do not suffice, bisection ends the search.
_NEWTON_STEPS = 8
_LARGEST_SERIES = 2**16
_CELLS_PER_CHUNK = 2**19
_LAWS_PER_CHUNK = 256
# A margin in units of the lattice: far above the rounding errors of sums, and too small to be shown.
_BEYOND = 2.0**-10
# With fewer frequencies than this, searching for droppable ones costs more than it saves.
_FEW_FREQUENCIES = 32
# Tables of this many doubles are cached, so many of them: at most 24 megabytes.
_CELLS_OF_KEPT, _KEPT = 1_000, 1_000
# Largest table (in doubles) that may be copied several times: eight megabytes.
_CELLS_AT_ONCE = 2**20
LARGEST_CONFIDENCE = 0.999
# The chance, over seeds, that an interval is narrower than promised.
MISS = 1e-6


@dataclass(frozen=True)
class Interval:
    """[lower, upper] around an estimate, which contains the true value with probability at least ``level``.

    Guarantee: for one answer that was chosen before looking at the values; not for the worst of many.
    """

    lower: float | FloatArray
    upper: float | FloatArray
    level: float


class HalfWidth(NamedTuple):
    """An interval's half width, and a proven lower bound on its probability to contain the true value."""

    value: float
    level: float


@lru_cache(maxsize=4096)
def half_width(law: WeightedNoise, confidence: float) -> HalfWidth:
    """Return the least half width x such that an error is in [-x, x] with at least this probability.

    Guarantee: P(|error| <= value) >= level >= confidence. The search reduces 1 - confidence by a few
        ``TAIL_SHARE`` of itself, to cover the approximations. If the weights are whole and the law is not
        wide beside them (``LawTable.lattice_units``), the value is the least such integer. If doubles
        cannot hold the unit of the weights exactly, the value is larger by 2^-10 of the unit, so that
        rounded sums stay inside. Other laws: the value is within 2.1 * DITHER standard errors of the least.
    Raises: ValueError for a confidence outside (0, 1).
    Cost: some 0.5 ms; cached.

    >>> half_width(WeightedNoise.of([(1.0, 1, 10.0)]), 0.95).value
    30.0
    """
    values, levels = half_widths(LawTable.of([law]), confidence)
    return HalfWidth(float(values[0]), float(levels[0]))


def half_widths(laws: LawTable, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return the half width and the level of every law of a table, two arrays of shape (laws,).

    Guarantee, Raises: as ``half_width``.

    Cost: 20 to 60 microseconds for each different law in large tables. Small tables are cached: many streams
        with equal settings have equal laws.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence: {confidence!r} is outside (0, 1); write for example 0.95")
    first, place = laws.distinct()
    if len(first) > 1 and len(first) * laws.weights.shape[1] <= _CELLS_OF_KEPT:
        columns = (laws.weights[first], laws.copies[first], laws.scales[first])
        values, levels = half_widths_of_few(len(first), *(one.tobytes() for one in columns), confidence)
        return values[place], levels[place]
    at_once = max(_LAWS_PER_CHUNK, _CELLS_AT_ONCE // max(1, laws.weights.shape[1]))
    values, levels = np.empty(len(first)), np.empty(len(first))
    for start in range(0, len(first), at_once):
        rows = slice(start, start + at_once)
        values[rows], levels[rows] = _half_widths(laws.take(first[rows]), confidence)
    return values[place], levels[place]


@lru_cache(maxsize=_KEPT)
def half_widths_of_few(
    laws: int, weights: bytes, copies: bytes, scales: bytes, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return half widths and levels of a small table of distinct laws, given as bytes."""
    columns = (np.frombuffer(one).reshape(laws, -1) for one in (weights, copies, scales))
    return _half_widths(LawTable(*columns), confidence)


def _half_widths(laws: LawTable, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return half widths and levels of distinct laws, few enough to copy their table several times."""
    deviations = laws.deviations()
    values, levels = normal_half_widths(deviations, confidence)
    others = np.flatnonzero(~laws.normal & (deviations > 0.0))
    if len(others):
        values[others], levels[others] = _laplace_half_widths(laws.take(others), confidence)
    return values, levels


def normal_half_widths(deviations: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return the half widths and the levels of normal laws. Args: deviations, standard deviations, (laws,).

    >>> normal_half_widths(np.array([10.0]), 0.95)[0].round(3).tolist()
    [19.6]
    """
    far = -NormalDist().inv_cdf(0.5 * (1.0 - confidence) * (1.0 - TAIL_SHARE))
    level = max(confidence, 1.0 - math.erfc(far / math.sqrt(2.0)))
    return deviations * far, np.where(deviations > 0.0, level, 1.0)


def _laplace_half_widths(laws: LawTable, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return half widths and levels of laws without normal noise."""
    beyond, levels = _beyond_rounding(laws), laws.probability_of_silence()
    values = beyond.copy()
    noisy = np.flatnonzero(levels < confidence)
    units = laws.lattice_units()
    for rows, lattice in ((noisy[units[noisy] > 0], True), (noisy[units[noisy] == 0], False)):
        if not len(rows):
            continue
        unit = (units if lattice else laws.deviations())[rows]
        search = IntervalSearch(laws.take(rows).scaled(1.0 / unit), confidence, lattice)
        found, levels[rows] = search.least()
        values[rows] = found * unit + (beyond[rows] if lattice else 0.0)
    return values, levels


def _beyond_rounding(laws: LawTable) -> FloatArray:
    """Return a margin for half widths on a lattice, so that rounding pushes no error out of the interval.

    A sum is exact if the weights are multiples of 2^-20. With weights such as 0.2 and 0.8, an error that
    equals the half width may come out on either side of it.
    """
    present = (laws.copies > 0) & (laws.variances > 0)
    exact = (np.ldexp(laws.weights, 20) % 1.0 == 0.0) | ~present
    least = np.where(present, laws.weights, np.inf).min(axis=1, initial=np.inf)
    return np.where(exact.all(axis=1), 0.0, _BEYOND * np.where(np.isfinite(least), least, 0.0))


class IntervalSearch:
    """Finds the least x with P(|S| <= x) >= confidence, for the error S of every law of a table.

    P(|S| <= x) is 2 z / L + sum_j c_j sin(theta_j z), theta_j = 2 pi j / L. On a lattice, weights and x are
    whole, z = x + 1/2, and the c_j are those of a Dirichlet kernel. Otherwise the laws have variance 1, x is
    a multiple of a small step, z = x - eta, and the c_j are those of the dither.
    """

    def __init__(self, laws: LawTable, confidence: float, lattice: bool) -> None:
        self.laws, self.confidence, self.lattice = laws, confidence, lattice
        allowed = (1.0 - confidence) * TAIL_SHARE
        self.error = (2 if lattice else 3) * allowed + _FLOATING_ERROR
        reach, far = tail_bounds(laws, (1.0 - confidence, allowed))
        if lattice:
            self.largest = np.floor(reach).astype(np.int64)
            self.period = 2.0 * np.ceil((self.largest + far) / 2.0) + 1.0
            self.step, self.eta = np.ones(len(laws)), np.zeros(len(laws))
            self.frequencies = int(self.period.max() - 1) // 2
        else:
            # The sum over j > J of |c_j| is at most 4 / (pi sqrt 3) / 2 / sinh(shape) once
            # theta_J eta >= 2 shape: the end of the series costs ``allowed``.
            self.shape = math.asinh(0.3676 / allowed)
            self.eta = np.maximum(DITHER, (reach + far) * self.shape / (np.pi * _LARGEST_SERIES))
            self.period = reach + far + 2.0 * self.eta
            self.step = self.eta / _STEPS_PER_DITHER
            self.largest = np.ceil(reach / self.step).astype(np.int64)
            self.frequencies = int(np.ceil(self.shape * (self.period / self.eta).max() / np.pi))
        # Frequencies of a larger decay may be dropped; together they change the probability by ``allowed``.
        self.droppable = math.log((math.log(max(self.frequencies, 1)) + 1.0) / allowed)

    def least(self) -> tuple[FloatArray, FloatArray]:
        """Return, for every law, the least x, and the bound on P(|S| <= x) that was reached."""
        values, levels = np.empty(len(self.laws)), np.empty(len(self.laws))
        starts, needed = self.needed_blocks()
        sizes = np.diff(starts)
        # Sort laws by decay and period, so that a chunk holds laws that need the same frequencies.
        order = np.lexsort((self.period / self.laws.weights.max(axis=1), needed @ sizes))
        begin = 0
        while begin < len(order):
            rows = order[begin : begin + _LAWS_PER_CHUNK]
            while len(rows) > 1 and len(rows) * int(needed[rows].any(axis=0) @ sizes) > _CELLS_PER_CHUNK:
                rows = rows[: len(rows) // 2]
            used = np.flatnonzero(needed[rows].any(axis=0))
            blocks = [(int(starts[block]), int(starts[block + 1])) for block in used]
            values[rows], levels[rows] = self._least_of(rows, self.refined(rows, blocks))
            begin += len(rows)
        return values, levels

    def refined(self, rows: NDArray[np.int64], blocks: list[tuple[int, int]]) -> NDArray[np.int64]:
        """Return the frequencies of these blocks, without smaller pieces that no law of these rows needs."""
        if blocks[-1][1] <= _FEW_FREQUENCIES:
            return np.arange(1, blocks[-1][1])
        laws, period = self.laws.take(rows), self.period[rows, np.newaxis]
        low, high = (np.array(edges) for edges in zip(*blocks, strict=True))
        for width in piece_widths(float(laws.weights.max() / period.min())):
            low, high = pieces(low, high, width)
            decay = laws.sums(np.concatenate([low, high]) / period, len(low), _least_log_between)
            kept = (decay < self.droppable).any(axis=0)
            low, high = low[kept], high[kept]
        return np.union1d([1], pieces(low, high, 1)[0])

    def needed_blocks(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return block starts, and for each law the blocks of frequencies that must be kept."""
        starts = np.array(block_starts(self.frequencies))
        turns = starts / self.period[:, np.newaxis]
        decay = self.laws.sums(turns, len(starts) - 1, _least_log)
        return starts, decay < self.droppable

    def _least_of(self, rows: NDArray[np.int64], series: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Return the least x and its level for the laws in these rows, computed from these frequencies.

        P(|S| <= x) is nearly concave, so Newton steps find x. Each step is rounded up to a whole one and
        tested. If they do not converge, bisection ends the search.
        """
        period = self.period[rows, np.newaxis]
        theta = 2.0 * np.pi * series / period
        coefficients = self._coefficients(rows, series, theta)
        visible = np.abs(coefficients).max(axis=0) > _NEGLIGIBLE
        error = self.error + np.abs(coefficients[:, ~visible]).sum(axis=1)
        theta, coefficients = theta[:, visible], coefficients[:, visible]
        slopes = coefficients * theta
        step, offset, uniform = self.step[rows], 0.5 if self.lattice else 0.0, 2.0 / period[:, 0]
        # If no smaller x suffices, the search ends at its upper limit, which the Chernoff bound certifies.
        low, high, level = np.full(len(rows), -1), self.largest[rows], np.full(len(rows), self.confidence)
        target = self._normal_guess(rows)
        for number in range(_NEWTON_STEPS + int(high.max() + 1).bit_length()):
            if number >= _NEWTON_STEPS:
                target = np.asarray(0.5 * (low + high), np.float64)
            tried = np.clip(np.ceil(target).astype(np.int64), low + 1, np.maximum(high - 1, low + 1))
            z = (tried + offset) * step
            sine, cosine = waves(theta * z[:, np.newaxis])
            reached = uniform * z + np.einsum("ij,ij->i", coefficients, sine) - error
            open_rows = high - low > 1
            enough, short = open_rows & (reached >= self.confidence), open_rows & (reached < self.confidence)
            high, level = np.where(enough, tried, high), np.where(enough, reached, level)
            low = np.where(short, tried, low)
            if not (high - low > 1).any():
                break
            slope = uniform + np.einsum("ij,ij->i", slopes, cosine)
            target = tried + (self.confidence - reached) / (np.maximum(slope, _NEGLIGIBLE) * step)
        return high * step + self.eta[rows], np.clip(level, self.confidence, 1.0)

    def _normal_guess(self, rows: NDArray[np.int64]) -> FloatArray:
        """Return the number of steps of the solution x, if the laws were normal with the same variance."""
        far = NormalDist().inv_cdf(0.5 + 0.5 * self.confidence)
        deviations = self.laws.take(rows).deviations() if self.lattice else 1.0
        return np.asarray(far * deviations / self.step[rows])

    def _coefficients(
        self, rows: NDArray[np.int64], series: NDArray[np.int64], theta: FloatArray
    ) -> FloatArray:
        characteristic = np.exp(-self.laws.take(rows).decay(theta))
        if self.lattice:
            period = self.period[rows, np.newaxis]
            inside = series <= (period - 1) / 2
            return np.where(inside, 2.0 / period * characteristic / np.sin(0.5 * theta), 0.0)
        dither = kaiser_bessel(theta * self.eta[rows, np.newaxis], self.shape)
        return 2.0 / (np.pi * series) * characteristic * dither


def _least_log(weights: FloatArray, variances: FloatArray, turns: FloatArray) -> FloatArray:
    """Return a lower bound on log(1 + 2 s sin^2(w theta / 2)) between neighbouring turns; 0 beyond a peak.

    The bound uses that sin(pi w t) is at least 2 w t up to its first peak. A turn t is theta / (2 pi).
    """
    square = weights * turns[..., :-1]
    square *= square
    square *= 8.0 * variances
    square *= weights * turns[..., 1:] <= 0.5
    return np.asarray(np.log1p(square, out=square))


def _least_log_between(weights: FloatArray, variances: FloatArray, turns: FloatArray) -> FloatArray:
    """Return the minimum of the same logarithm between two turns: ``turns`` holds all starts, then all ends.

    Between two turns sin^2 is at least its value at one of them, unless a zero lies between: then 0.
    """
    turns, half = weights * turns, turns.shape[-1] // 2
    square = squared_sine(np.pi * turns)
    least = np.minimum(square[..., :half], square[..., half:])
    np.floor(turns, out=turns)
    least *= 2.0 * variances
    least *= turns[..., :half] >= turns[..., half:]
    return np.asarray(np.log1p(least, out=least))


def least_draws(confidence: float) -> int:
    """Return how many draws are needed so that one of them has the rank of ``order_statistic``.

    Raises: ValueError for a confidence outside (0, 0.999].
    """
    if not 0.0 < confidence <= LARGEST_CONFIDENCE:
        raise ValueError(f"confidence: {confidence!r} is outside (0, {LARGEST_CONFIDENCE}]; write 0.95")
    return math.ceil(-4.0 * math.log(MISS) / (1.0 - confidence))


@lru_cache(maxsize=256)
def order_statistic(draws: int, confidence: float) -> int:
    """Return the rank, among sorted draws, of one that is below the quantile with chance at most ``MISS``.

    The r-th smallest draw is below the quantile only if at least r draws are below it.

    >>> order_statistic(8192, 0.95)
    7874
    """
    from scipy.special import bdtrc  # imported here because most processes never compute a band

    chance_of_more_below = bdtrc(np.arange(draws + 1), draws, confidence)
    return int(np.argmax(chance_of_more_below <= MISS)) + 1
