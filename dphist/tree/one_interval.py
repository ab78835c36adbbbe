"""The interval of one law that is on no lattice: ``interval.py``'s search, in the fewest and smallest arrays.

The certificates are the same. One answer has a dozen frequencies that matter and some dozens of groups, so
that its time is that of calls, not of numbers: here a law is a few vectors, and the search is in floats.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dphist.tree.inversion import (
    DITHER,
    FLOATING_ERROR,
    LARGEST_SERIES,
    NEGLIGIBLE,
    NEWTON_STEPS,
    STEPS_PER_DITHER,
    TAIL_SHARE,
    HalfWidth,
    block_starts,
    chernoff_fractions,
    dither_shape,
    droppable_decay,
    kaiser_bessel,
    piece_widths,
    pieces,
)
from dphist.tree.law import LARGEST_MIXED_LATTICE, SMOOTH_SCALE, WeightedNoise, squared_sine

FloatArray = NDArray[np.float64]

# So few first blocks of frequencies, up to the fortieth, are not worth looking into.
_FEW_BLOCKS = 6


class OneSearch:
    """The least x with P(|S| <= x) >= confidence for one law, in units of its standard deviation."""

    def __init__(
        self,
        weights: FloatArray,
        copies: FloatArray,
        variances: FloatArray,
        law: WeightedNoise,
        deviation: float,
        confidence: float,
    ) -> None:
        self.weights, self.copies, self.doubled = weights / deviation, copies, 2.0 * variances
        self.deviation, self.confidence = deviation, confidence
        self.curve, self.until = law.gaussian.curve / deviation**2, law.gaussian.until * deviation
        self.allowed = (1.0 - confidence) * TAIL_SHARE
        self.error = 3.0 * self.allowed + FLOATING_ERROR + law.slack
        poles = 2.0 * np.arcsinh(np.sqrt(0.5 / variances)) / self.weights
        reach, far = self._tails(float(poles.min()))
        self.shape = dither_shape(self.allowed)
        self.eta = max(DITHER, (reach + far) * self.shape / (math.pi * LARGEST_SERIES))
        self.period = reach + far + 2.0 * self.eta
        self.step = self.eta / STEPS_PER_DITHER
        self.largest = math.ceil(reach / self.step)
        self.frequencies = math.ceil(self.shape * self.period / self.eta / math.pi)

    @classmethod
    def of(cls, law: WeightedNoise, confidence: float) -> OneSearch | None:
        """Return the search for a law; None if it is on a lattice, or hardly ever anything but 0."""
        if not law.groups:
            return None
        weights, copies, scales = np.array(law.groups, np.float64).T
        rate = 1.0 / scales
        if math.exp(copies @ np.log(np.tanh(0.5 * rate))) >= confidence:
            return None
        variances = 2.0 * np.exp(-rate) / np.expm1(-rate) ** 2
        if not variances.all():
            noisy = variances > 0
            weights, copies, scales, variances = (row[noisy] for row in (weights, copies, scales, variances))
        variance = float(copies @ (weights**2 * variances)) + 2.0 * law.gaussian.curve
        deviation, unit = math.sqrt(variance), float(weights.min())
        multiples = weights / unit
        whole = scales.max() < SMOOTH_SCALE and bool((multiples == np.rint(multiples)).all())
        if whole and (deviation <= LARGEST_MIXED_LATTICE * unit or bool((multiples == 1.0).all())):
            return None
        return cls(weights, copies, variances, law, deviation, confidence)

    def least(self) -> HalfWidth:
        """Return the least half width, and the level that it reaches."""
        series = self._series()
        theta = series * (2.0 * math.pi / self.period)
        coefficients = 2.0 / (math.pi * series) * np.exp(-self._decay(theta))
        coefficients *= kaiser_bessel(theta * self.eta, self.shape)
        error, sizes = self.error, np.abs(coefficients)
        if sizes.min() <= NEGLIGIBLE:
            visible = sizes > NEGLIGIBLE
            error += float(sizes[~visible].sum())
            theta, coefficients = theta[visible], coefficients[visible]
        steps, level = self._search(theta, coefficients, error)
        return HalfWidth((steps * self.step + self.eta) * self.deviation, min(level, 1.0))

    def _search(self, theta: FloatArray, coefficients: FloatArray, error: float) -> tuple[int, float]:
        """Return the least whole number of steps that does, by Newton's steps; see ``interval.py``."""
        slopes, uniform, confidence = coefficients * theta, 2.0 / self.period, self.confidence
        # Where nothing less will do, the Chernoff bound that set the search's end vouches for it.
        low, high, level = -1, self.largest, confidence
        target, tries = NormalDist().inv_cdf(0.5 + 0.5 * confidence) / self.step, 0
        while high - low > 1:
            tries += 1
            tried = math.ceil(target) if tries <= NEWTON_STEPS else (low + high) // 2
            tried = max(low + 1, min(tried, high - 1))
            z = tried * self.step
            angle = theta * z
            reached = uniform * z + float(coefficients @ np.sin(angle)) - error
            if reached >= confidence:
                high, level = tried, reached
            else:
                low = tried
            slope = max(uniform + float(slopes @ np.cos(angle)), NEGLIGIBLE)
            target = tried + (confidence - reached) / (slope * self.step)
        return high, level

    def _tails(self, pole: float) -> list[float]:
        """Return Chernoff's bounds for 1 - confidence and for what a certificate may cost."""
        probabilities = (1.0 - self.confidence, self.allowed)
        exponents = pole * chernoff_fractions(np.array([[pole]]), probabilities)[0]
        growth = np.sinh(np.outer(0.5 * self.weights, exponents)) ** 2 * self.doubled[:, np.newaxis]
        cumulant = -(self.copies @ np.log1p(-growth))
        return [float(((cumulant + math.log(2.0 / p)) / exponents).min()) for p in probabilities]

    def _decay(self, theta: FloatArray) -> FloatArray:
        square = squared_sine(np.outer(0.5 * self.weights, theta))
        square *= self.doubled[:, np.newaxis]
        return np.asarray(self.copies @ np.log1p(square) + self._gaussian(theta))

    def _gaussian(self, theta: FloatArray) -> FloatArray:
        return np.asarray(self.curve * np.minimum(theta, self.until) ** 2)

    def _series(self) -> FloatArray:
        """Return the frequencies that may not be dropped: blocks of them first, then pieces of the blocks."""
        droppable = droppable_decay(self.frequencies, self.allowed)
        starts = np.array(block_starts(self.frequencies), np.float64)
        turns = starts / self.period
        decay = self._gaussian(2.0 * math.pi * turns[1:])
        least = np.log1p(np.outer(4.0 * self.doubled * self.weights**2, turns[:-1] ** 2))
        least[np.outer(self.weights, turns[1:]) > 0.5] = 0.0
        decay += self.copies @ least
        needed = np.flatnonzero(decay < droppable)
        if len(needed) <= _FEW_BLOCKS and len(needed) == needed[-1] + 1:
            return np.arange(1.0, starts[len(needed)])
        return self._refined(starts, needed, droppable)

    def _refined(self, starts: FloatArray, needed: NDArray[np.int64], droppable: float) -> FloatArray:
        """Return the frequencies of these blocks without finer pieces that may be dropped.

        Between two frequencies sin^2 is at least its value at one of them, unless a zero lies between.
        """
        per_turn = self.weights / self.period
        low, high = starts[needed].astype(np.int64), starts[needed + 1].astype(np.int64)
        for width in piece_widths(float(per_turn.max())):
            low, high = pieces(low, high, width)
            before, after = np.outer(per_turn, low), np.outer(per_turn, high)
            least = np.minimum(squared_sine(np.pi * before), squared_sine(np.pi * after))
            least *= np.floor(before) >= np.floor(after)
            decay = self.copies @ np.log1p(self.doubled[:, np.newaxis] * least)
            decay += self._gaussian(np.asarray(2.0 * math.pi / self.period * high, np.float64))
            low, high = low[decay < droppable], high[decay < droppable]
        return np.union1d([1.0], pieces(low, high, 1)[0])
