"""Parts of the inversion of laws in ``interval.py``: windows, tail bounds, and droppable frequencies.

Source: Kuo and Kaiser (1966) for the window; Chernoff (1952) for the tails.
"""

import math

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import LawTable

# Frequencies are tested in blocks: the first few, which all laws need, then blocks that grow by a factor.
_FIRST_BLOCK = 8
_BLOCK_GROWTH = 1.4
_FAR = 64
_FAR_GROWTH = 2.0
# Chernoff exponents to try are power means of the normal law's best exponent and the pole, with these powers.
_BLENDS = (1.0, 2.0, 5.0)


def block_starts(frequencies: int) -> list[int]:
    """Return the start of every block of the frequencies 1 .. frequencies, and the end of the last block."""
    starts = [1]
    while starts[-1] <= frequencies:
        growth = _BLOCK_GROWTH if starts[-1] < _FAR else _FAR_GROWTH
        starts.append(max(_FIRST_BLOCK, int(starts[-1] * growth)))
    starts[-1] = frequencies + 1
    return starts


def pieces(low: Int64Array, high: Int64Array, width: int) -> tuple[Int64Array, Int64Array]:
    """Cut ranges [low, high) into pieces of at most ``width``; return their starts and ends.

    >>> [edges.tolist() for edges in pieces(np.array([0, 9]), np.array([5, 10]), 3)]
    [[0, 3, 9], [3, 5, 10]]
    """
    numbers = -(-(high - low) // width)
    places = np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    starts = np.repeat(low, numbers) + width * places
    return starts, np.minimum(starts + width, np.repeat(high, numbers))


def piece_widths(turns: float) -> tuple[int, int, int]:
    """Return the widths, in frequencies, of the pieces to test, widest first.

    The finest pieces are narrow enough to separate the zeros of the wave of the largest weight. The waves of
    smaller weights are slower, so wider pieces suffice for them.

    Args: turns, by how many turns the wave of the largest weight advances from one frequency to the next.
    """
    finest = max(4, int(1.0 / (16.0 * turns)))
    return 16 * finest, 4 * finest, finest


def kaiser_bessel(omega: FloatArray, shape: float) -> FloatArray:
    """Return the characteristic function of the density ~ I0(b sqrt(1 - x^2)) on [-1, 1], b = shape."""
    root = np.sqrt(np.abs(shape**2 - omega**2))
    root = np.maximum(root, 1e-12)
    # sinh(root) / sinh(b) without overflow; past the main lobe sinh turns into sin.
    inside = np.exp(np.minimum(root - shape, 0.0)) * -np.expm1(-2.0 * root)
    outside = 2.0 * np.exp(-shape) * np.sin(root)
    return np.asarray(np.where(omega <= shape, inside, outside) * shape / root / -np.expm1(-2.0 * shape))


def tail_bounds(laws: LawTable, probabilities: tuple[float, ...]) -> list[FloatArray]:
    """Return, for each probability p and each law, an x with P(|S| >= x) <= p (Chernoff, both sides).

    Args: laws, each with some noise.
    """
    if laws.normal.any():
        return _with_normal_bounds(laws, probabilities)
    present = (laws.copies > 0) & (laws.variances > 0)
    with np.errstate(divide="ignore", over="ignore"):
        poles = 2.0 * np.arcsinh(np.sqrt(0.5 / laws.variances)) / laws.weights
    pole = np.where(present, poles, np.inf).min(axis=1)[:, np.newaxis]
    exponents = pole * chernoff_fractions(pole * laws.deviations()[:, np.newaxis], probabilities)
    # A group without copies has no pole, whatever its weight.
    noisy = LawTable(np.where(present, laws.weights, 0.0), laws.copies, laws.scales)
    cumulant = -noisy.sums(0.5 * exponents, exponents.shape[1], _log_of_growth)
    return [((cumulant + math.log(2.0 / p)) / exponents).min(axis=1) for p in probabilities]


def _with_normal_bounds(laws: LawTable, probabilities: tuple[float, ...]) -> list[FloatArray]:
    """Return ``tail_bounds`` of a table in which some laws are normal."""
    found = [laws.deviations() * math.sqrt(2.0 * math.log(2.0 / p)) for p in probabilities]
    rows = np.flatnonzero(~laws.normal)
    if len(rows):
        for bounds, others in zip(found, tail_bounds(laws.take(rows), probabilities), strict=True):
            bounds[rows] = others
    return found


def _log_of_growth(weights: FloatArray, variances: FloatArray, halves: FloatArray) -> FloatArray:
    """Return log(1 - 2 s sinh^2(w e / 2)) for e / 2 in ``halves``: minus a group's part of the cumulant."""
    growth = np.sinh(weights * halves)
    growth *= growth
    growth *= -2.0 * variances
    return np.asarray(np.log1p(growth, out=growth))


def chernoff_fractions(pole: FloatArray, probabilities: tuple[float, ...]) -> FloatArray:
    """Return candidate Chernoff exponents as fractions of the pole, shape (laws, exponents), in (0, 1).

    Any exponent gives a bound. The best exponent for a normal law is sqrt(2 log(2 / p)) / deviation. If the
    pole is near that, the best exponent is below both.

    Args: poles, in units of 1 / standard deviation, shape (laws, 1).
    """
    columns = []
    for p in probabilities:
        ratio = pole / math.sqrt(2.0 * math.log(2.0 / p))
        columns += [(1.0 + ratio**blend) ** (-1.0 / blend) for blend in _BLENDS]
    return np.minimum(np.concatenate(columns, axis=1), 1.0 - 1e-3)
