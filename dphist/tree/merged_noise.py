"""Many small terms of a law as few: Gauss quadrature over the terms of its characteristic function.

Laplace noise of scale b is discrete Laplace noise of scale b plus an independent variable on [-1, 1] of
density ~ sinh((1 - |u|) / b). So minus the logarithm of the characteristic
function of sum w_i Z_i is, with x_i = (w_i b_i)^2,

    sum log(1 + x_i t^2)  +  g t^2  -  (at most sum w_i^4 t^4 / 1000),     g = sum w_i^2 (var_i / 2 - b_i^2)

and the first sum is the integral of the Stieltjes function log(1 + x t^2) / x over point masses x_i. The
Gauss rule from 2n power sums of the x_i stands for all of them: it errs on one side, by at most

    h t^(4n+2) integral over s in [0, 1] of s^2n / prod (1 + x_j t^2 s)^2,     h = prod of the rule's betas

for nodes x_j (the error of 1 / (1 + x u), whose integral over u the function is). What that can move a
probability by is added up here, once, and charged to every interval (``WeightedNoise.slack``); not so the
ripples of a lattice, which laws of many different weights do not have.
Source: Golub and Meurant, Matrices, Moments and Quadrature (2010), for the rule; the bound is elementary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dphist.tree.law import (
    SMOOTH_SCALE,
    Gaussian,
    LawTable,
    WeightedNoise,
    discrete_laplace_variance,
    squared_sine,
)

FloatArray = NDArray[np.float64]

POINTS = 5  # of the Gauss rule
# Features of a term: the powers x^1 .. x^2n, the Gaussian part, and the bound on what is beyond t^4.
FEATURES = 2 * POINTS + 2
# A weight's power with which each feature grows.
WEIGHT_POWERS = np.array([*range(2, 4 * POINTS + 1, 2), 2, 4])
# The bound above holds while w t <= 3.5; with scales of at least 1 all else is negligible there.
LEAST_SCALE = 1.0
_BEYOND_QUARTIC = 1e-3
_NEGLIGIBLE = 1e-13
_MODERATE = 0.5
# Frequencies, in units of 1 / standard error, between which characteristic functions are bounded.
_GROWTH = 1.15
_FREQUENCIES = 0.25 * _GROWTH ** np.arange(77)
_LOG_OF_FREQUENCIES = np.log(_FREQUENCIES)
# Frequencies are spaced by at most one unit: a sum of 1 / j is an integral and one term.
_TERMS = np.log(_GROWTH) + 1.0 / np.maximum(_FREQUENCIES, 1.0)
# Interval searches look at no more frequencies than this, as the logarithm of the largest over the least.
_LOG_FREQUENCIES = 12.0


def term_features(scales: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the features of one term of weight 1 for each scale, shape (terms, FEATURES); 0 without noise.

    Args: scales of discrete Laplace noise and its variances, shape (terms,); 0 and anything for no noise.
    """
    noisy = scales > 0
    square = np.where(noisy, scales, 0.0) ** 2
    powers = square[:, np.newaxis] ** np.arange(1, 2 * POINTS + 1)
    gaussian = np.where(noisy, np.where(noisy, variances, 0.0) / 2.0 - square, 0.0)
    return np.column_stack([powers, gaussian, np.where(noisy, _BEYOND_QUARTIC, 0.0)])


def merged(explicit: LawTable, features: FloatArray) -> LawTable:
    """Return laws with all other terms as ``POINTS`` groups, their slack added.

    Args: terms to be kept as they are; the summed features of the rest, shape (laws, FEATURES).
    """
    moments, curve, quartic = features[:, : 2 * POINTS], features[:, -2], features[:, -1]
    squares, copies, remainder = _gauss_rule(moments)
    smooth = LawTable(np.sqrt(squares) / SMOOTH_SCALE, copies, np.full_like(squares, SMOOTH_SCALE))
    laws, nothing = LawTable.joined([explicit, smooth]), np.zeros(len(curve))
    deviations = laws.with_merged(curve, nothing, nothing).deviations()
    theta = _FREQUENCIES / np.where(deviations > 0, deviations, 1.0)[:, np.newaxis]
    difference = _difference(theta, squares, remainder) + quartic[:, np.newaxis] * theta**4
    # Beyond where the difference is moderate nothing is claimed: all that is left there is charged.
    known = np.maximum((difference < _MODERATE).sum(axis=1) - 1, 0)
    until = np.where(quartic > 0, theta[np.arange(len(theta)), known], np.inf)
    laws = laws.with_merged(curve, until, nothing)
    slack = _slack(_size(laws, explicit, smooth, theta), difference)
    return laws.with_merged(curve, until, np.where(quartic > 0, slack, 0.0))


def merged_one(explicit: Sequence[tuple[float, int, float]], features: FloatArray) -> WeightedNoise:
    """Return one law as ``merged`` does, quicker: the rule in floats, frequencies in vectors.

    Args: terms to be kept as they are, (weight >= 0, copies, scale); the summed features of the rest,
        shape (FEATURES,).
    Cost: some 80 microseconds.
    """
    *moments, curve, quartic = features.tolist()
    squares, copies, remainder = _gauss_rule_of_one(moments)
    weights = (np.sqrt(squares) / SMOOTH_SCALE).tolist()
    groups = [*explicit, *((w, n, SMOOTH_SCALE) for w, n in zip(weights, copies.tolist(), strict=True))]
    if quartic <= 0:
        return WeightedNoise.of(groups, Gaussian(curve))
    kept, numbers, scales = np.array([*explicit, (0.0, 0, 1.0)]).T
    variances = np.array([discrete_laplace_variance(scale) for scale in scales.tolist()])
    variance = 2.0 * (moments[0] + curve) + float(numbers @ (kept**2 * variances))
    deviation = math.sqrt(variance) if variance > 0 else 1.0
    theta = _FREQUENCIES * (1.0 / deviation)
    theta_squares = theta**2
    smooth = np.log1p(np.outer(squares, theta_squares))
    difference = quartic * theta_squares**2
    if remainder > 0:
        difference += _missed(
            2.0 * smooth.sum(axis=0), math.log(remainder), _LOG_OF_FREQUENCIES - math.log(deviation)
        )
    known = max(int((difference < _MODERATE).sum()) - 1, 0)
    until = float(theta[known])
    decay = copies @ smooth + curve * np.minimum(theta * _GROWTH, until) ** 2
    own = np.log1p(2.0 * variances[:, np.newaxis] * squared_sine(np.outer(0.5 * kept, theta)))
    own[np.outer(kept * _GROWTH, theta) > np.pi] = 0.0
    decay += numbers @ own
    slack = _slack(np.exp(-decay)[np.newaxis], difference[np.newaxis])
    return WeightedNoise.of(groups, Gaussian(curve, until), float(slack[0]))


def _gauss_rule_of_one(moments: Sequence[float]) -> tuple[FloatArray, FloatArray, float]:
    """Return squares, copies, both (POINTS,), and h, as ``_gauss_rule``."""
    mass = moments[0] if moments[0] > 0 else 1.0
    unit = moments[-1] / moments[-2] if moments[-2] > 0 else 1.0
    unit = unit if unit > 0 else 1.0
    alphas, betas = _recurrence_of_one([moment / mass / unit**k for k, moment in enumerate(moments)])
    jacobi, place = np.zeros((POINTS, POINTS)), np.arange(POINTS)
    jacobi[place, place] = alphas
    jacobi[place[1:], place[:-1]] = np.sqrt(betas[1:])
    nodes, vectors = np.linalg.eigh(jacobi)
    squares = np.maximum(nodes, _NEGLIGIBLE) * unit
    weights = vectors[0] ** 2 * (mass if moments[0] > 0 else 0.0)
    return squares, weights / squares, math.prod(betas) * mass * unit ** (2 * POINTS)


def _recurrence_of_one(moments: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return alphas and betas, as ``_recurrence``; betas from where the masses run out are 0."""
    alphas, betas = [moments[1]], [1.0]
    before, current = [0.0] * len(moments), list(moments)
    full = moments[0] > 0
    for k in range(1, POINTS):
        alpha, beta = alphas[-1], betas[-1] if k > 1 else 0.0
        following = [0.0] * len(moments)
        for j in range(k, 2 * POINTS - k):
            following[j] = current[j + 1] - alpha * current[j] - beta * before[j]
        norm, last = following[k], current[k - 1]
        full = full and norm > _NEGLIGIBLE and last > 0
        if full:
            alpha = following[k + 1] / norm - current[k] / last
            full = alpha > 0
        alphas.append(alpha if full else alphas[-1])
        betas.append(norm / last if full else 0.0)
        before, current = current, following
    return alphas, betas


def _gauss_rule(moments: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return squares x_j and copies n_j, (laws, POINTS), with sum n_j x_j^k = moment k, and h, (laws,).

    Where the masses are fewer than the rule's points, the rest of it gets no weight and h is 0.
    """
    mass = np.where(moments[:, 0] > 0, moments[:, 0], 1.0)
    unit = moments[:, -1] / np.where(moments[:, -2] > 0, moments[:, -2], 1.0)
    unit = np.where(unit > 0, unit, 1.0)
    scaled = moments / mass[:, np.newaxis] / unit[:, np.newaxis] ** np.arange(2 * POINTS)
    alphas, betas, full = _recurrence(scaled)
    jacobi = np.zeros((len(moments), POINTS, POINTS))
    place = np.arange(POINTS)
    jacobi[:, place, place] = alphas
    jacobi[:, place[1:], place[:-1]] = np.sqrt(betas[:, 1:])
    nodes, vectors = np.linalg.eigh(jacobi)
    nodes = np.maximum(nodes, _NEGLIGIBLE)
    weights = vectors[:, 0, :] ** 2 * np.where(moments[:, :1] > 0, mass[:, np.newaxis], 0.0)
    squares = nodes * unit[:, np.newaxis]
    remainder = np.where(full, betas.prod(axis=1), 0.0) * mass * unit ** (2 * POINTS)
    return squares, weights / squares, remainder


def _recurrence(moments: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return the recurrence coefficients of orthogonal polynomials, by Chebyshev's algorithm.

    Args: moments 0 .. 2n - 1 of masses in about [0, 1] that add up to 1, shape (laws, 2n).
    Returns: alphas and betas (laws, n); betas from where the masses run out are 0; whether none is.
    """
    alphas, betas = np.zeros((2, len(moments), POINTS))
    before, current = np.zeros_like(moments), moments.copy()
    alphas[:, 0], betas[:, 0] = moments[:, 1], 1.0
    full = moments[:, 0] > 0
    for k in range(1, POINTS):
        columns = np.arange(k, 2 * POINTS - k)
        following = np.zeros_like(moments)
        following[:, columns] = (
            current[:, columns + 1]
            - alphas[:, k - 1 : k] * current[:, columns]
            - (betas[:, k - 1 : k] * before[:, columns] if k > 1 else 0.0)
        )
        full = full & (following[:, k] > _NEGLIGIBLE) & (current[:, k - 1] > 0)
        norm, last = np.where(full, following[:, k], 1.0), np.where(full, current[:, k - 1], 1.0)
        alpha = following[:, k + 1] / norm - current[:, k] / last
        full = full & (alpha > 0)
        betas[:, k] = np.where(full, norm / last, 0.0)
        alphas[:, k] = np.where(full, alpha, alphas[:, k - 1])
        before, current = current, following
    return alphas, betas, full


def _difference(theta: FloatArray, squares: FloatArray, remainder: FloatArray) -> FloatArray:
    """Return a bound on what the rule misses of the logarithm of the characteristic function at theta."""
    spread = 2.0 * np.log1p(squares[:, :, np.newaxis] * theta[:, np.newaxis] ** 2).sum(axis=1)
    log_remainder = np.log(np.where(remainder > 0, remainder, 1.0))[:, np.newaxis]
    missed = _missed(spread, log_remainder, np.log(theta))
    return np.where(remainder[:, np.newaxis] > 0, missed, 0.0)


def _missed(spread: FloatArray, log_remainder: float | FloatArray, log_theta: FloatArray) -> FloatArray:
    """Return the bound at theta, from log prod (1 + x_j theta^2)^2 and log h."""
    order = 2 * POINTS
    # log prod (1 + x s)^2 >= s log prod (1 + x)^2, and e^(a (1 - s)) <= s^-a for s in [0, 1].
    spread = np.minimum(spread, order)
    part = np.minimum(np.exp(-spread) / (order + 1.0 - spread), 1.0 / (order + 1.0))
    # By logarithms: the powers leave what doubles hold where the product does not.
    missed = np.exp(np.minimum(log_remainder + (2 * order + 2) * log_theta + np.log(part), 50.0))
    return np.asarray(missed)


def _size(laws: LawTable, explicit: LawTable, smooth: LawTable, theta: FloatArray) -> FloatArray:
    """Return a bound on the characteristic functions from each frequency to the next, (laws, frequencies).

    Those of smooth terms fall; those of others fall up to half a period, and are at most 1 after it.
    """
    following = theta * _GROWTH
    decay = smooth.decay(theta) + laws.gaussian(following)
    for weight, copies, variance in explicit.columns(theta.shape[1]):
        angle = weight * theta[:, np.newaxis]
        falling = weight * following[:, np.newaxis] <= np.pi
        own = copies * np.log1p(2.0 * variance * squared_sine(0.5 * angle))
        decay += np.where(falling, own, 0.0).sum(axis=1)
    return np.exp(-decay)


def _slack(size: FloatArray, difference: FloatArray) -> FloatArray:
    """Return what merging can move a probability by: sum of 2 / (pi j) |difference at frequency j|.

    Between two frequencies the characteristic function is at most its value at the lower one, and the
    difference of logarithms at most that at the upper one.
    """
    missed = np.where(difference < _MODERATE, np.expm1(np.minimum(difference, 1.0)), 2.0)
    inside = (size[:, :-1] * missed[:, 1:]) @ _TERMS[:-1]
    outside = missed[:, 0] + size[:, -1] * missed[:, -1]
    return np.asarray(2.0 / np.pi * (inside + outside * _LOG_FREQUENCIES))
