"""EFPA: publish the first few Fourier coefficients with noise; their number is chosen privately."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request

# A score is an expected error, in units of 2^-6 of a count.
_SCORE_BITS = 6
_ROWS_AT_ONCE = 256


def efpa(request: Request, *, selection_share: Fraction = Fraction(1, 2)) -> HistogramRelease:
    """Publish the first coefficients of the orthonormal real Fourier transform (EFPA).

    All arithmetic on counts is exact. Cosines and sines are rounded to whole units of about 2^-20 / sqrt(n),
    so every coefficient is an integer, and sensitivities are sums of these integers.

    Guarantee: epsilon-DP. Number of coefficients: the score is minus the root of (energy left out + energy of
        the noise). This root is the length of a vector, so one event changes it by at most the longest column
        of the transform, about 1; the number is drawn with scale 2 sensitivity / share. Kept coefficients: an
        event in bin i changes them in L1 by sum_j |phi_j(i)|. The noise has as scale the largest such sum
        over i, about 1.27 m / sqrt(n) for m coefficients, divided by the rest of epsilon. Biased, as
        coefficients are left out.
    Cost: O(n^2); the noise scales for each n are cached.
    Source: Acs, Castelluccia, Chen (2012). Their code adds noise to the modulus of each coefficient of the
        unnormalised transform and releases its phase without noise, which is not private. Here real and
        imaginary parts are two noisy coefficients. Their bound sqrt(m) on the sensitivity of the orthonormal
        coefficients ignores that a bin enters each coefficient with a weight of only sqrt(2 / n); for m well
        below n the noise here is smaller by about sqrt(m / n).
    """
    epsilon_kept = request.ledger.spend_share("how many coefficients", selection_share)
    epsilon_values = request.ledger.spend_rest("coefficients")
    size = request.counts.size
    # Entries have 20 bits, or fewer to keep the largest noise scale well inside 2^52.
    epsilon_bits = math.ceil(1 / epsilon_values).bit_length()
    basis = fourier_basis(size, max(8, min(20, 48 - size.bit_length() - epsilon_bits)))
    coefficients = basis.transform(request.counts)
    kept = _choose_kept(request, basis, coefficients, epsilon_kept, epsilon_values)
    scale = basis.sensitivities[kept - 1] / epsilon_values
    noisy = request.measure(coefficients[:kept], scale)
    return request.release(basis.invert(noisy.astype(np.float64)), published={"coefficients": noisy})


@dataclass(frozen=True, eq=False)
class FourierBasis:
    """The orthonormal cosines and sines of n bins in units of 1 / ``unit``, low frequencies first.

    Args: ``sensitivities[m - 1]``, the largest L1 change of the first m coefficients by one event;
        ``length``, the largest L2 change of all of them, rounded up.
    """

    bins: int
    unit: int
    sensitivities: tuple[int, ...]
    length: int

    def transform(self, counts: Int64Array) -> Int64Array:
        """Return the exact integer coefficients."""
        return np.concatenate([rows @ counts for rows in _rows(self.bins, self.unit)])

    def invert(self, coefficients: FloatArray) -> FloatArray:
        """Return the histogram of these first coefficients, with zero for all others."""
        padded = np.zeros(self.bins)
        padded[: coefficients.size] = coefficients / self.unit
        spectrum = np.zeros(self.bins // 2 + 1, dtype=np.complex128)
        spectrum[0] = padded[0] * math.sqrt(self.bins)
        pairs = (self.bins - 1) // 2
        root = math.sqrt(self.bins / 2)
        spectrum[1 : pairs + 1] = root * (padded[1 : 2 * pairs : 2] - 1j * padded[2 : 2 * pairs + 1 : 2])
        if self.bins % 2 == 0:
            spectrum[-1] = padded[-1] * math.sqrt(self.bins)
        return np.fft.irfft(spectrum, self.bins)


@lru_cache(maxsize=8)
def fourier_basis(bins: int, entry_bits: int) -> FourierBasis:
    """Return the basis of this many bins, with entries of about 2^entry_bits; it depends on no data.

    >>> basis = fourier_basis(4, 20)
    >>> basis.transform(np.array([3, 1, 3, 1])).tolist() == [4 * basis.unit, 0, 0, 2 * basis.unit]
    True
    """
    unit = 2 ** (entry_bits + (bins.bit_length() - 1) // 2)
    moved = np.zeros(bins, dtype=np.int64)
    squares = np.zeros(bins, dtype=np.int64)
    largest: list[int] = []
    for rows in _rows(bins, unit):
        sums = moved + np.cumsum(np.abs(rows), axis=0)
        largest += sums.max(axis=1).tolist()
        moved = sums[-1]
        squares += (rows**2).sum(axis=0)
    return FourierBasis(bins, unit, tuple(largest), math.isqrt(int(squares.max())) + 1)


def _rows(bins: int, unit: int) -> Iterator[Int64Array]:
    """Yield the basis in blocks of rows: a constant, then for each frequency a cosine and a sine."""
    turns = 2.0 * np.pi * np.arange(bins) / bins
    weight = unit * math.sqrt(2.0 / bins)
    cosine = np.rint(weight * np.cos(turns)).astype(np.int64)
    sine = np.rint(weight * np.sin(turns)).astype(np.int64)
    single = round(unit / math.sqrt(bins))
    places = np.arange(bins)
    for start in range(0, bins, _ROWS_AT_ONCE):
        number = np.arange(start, min(start + _ROWS_AT_ONCE, bins))
        angle = ((number + 1) // 2)[:, None] * places % bins
        is_sine = ((number > 0) & (number % 2 == 0))[:, None]
        rows = np.where(is_sine, sine[angle], cosine[angle])
        rows[number == 0] = single
        if bins % 2 == 0:
            rows[number == bins - 1] = single * (1 - 2 * (places % 2))
        yield rows


def _choose_kept(
    request: Request,
    basis: FourierBasis,
    coefficients: Int64Array,
    epsilon_kept: Fraction,
    epsilon_values: Fraction,
) -> int:
    """Choose the number of coefficients privately; scores are computed in exact integers of any size."""
    bins = basis.bins
    choices = sorted({*range(1, bins + 1, 2), bins})
    left_out = sum(int(value) ** 2 for value in coefficients)
    scores, counted = [], 0
    for kept in choices:
        left_out -= sum(int(value) ** 2 for value in coefficients[counted:kept])
        counted = kept
        noise = 2 * kept * (basis.sensitivities[kept - 1] / epsilon_values) ** 2
        scores.append(-((math.isqrt(left_out + int(noise)) << _SCORE_BITS) // basis.unit))
    moved = -((-basis.length << _SCORE_BITS) // basis.unit)
    chosen = request.select(np.array(scores, dtype=np.int64), 2 * moved / epsilon_kept)
    return int(choices[chosen])
