"""Published implementations, written again after reading their code. For comparison only, not for use.

Each docstring says whether the mechanism is private. None of the original code is here. The noise is
continuous Laplace noise, as in the papers. Identity, H, H-bar, Privelet and GreedyH are missing, because
published code measures the same as this library.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms import Request, prepare, release
from dphist.mechanisms.structure_first import least_costs, squared_deviations
from dphist.mechanisms.trees.hierarchical import equal_parts, measure_tree
from dphist.mechanisms.trees.weighted_tree import IntervalTree
from dphist.noise import Scale, SeededNoise
from research.measures import authors_dawa


def published_mwem(counts: Int64Array, epsilon: float, workload: Int64Array, seed: int) -> FloatArray:
    """Run MWEM as in DPBench: ten rounds, half of each for the selection, and the exact total is public.

    This is not private for an event that is added or removed, because the event changes the total.
    """
    noise = SeededNoise(seed)
    return release(
        "mwem", counts, epsilon, workload, noise, continuous=True, rounds=10, known_total=True
    ).counts


class Exponential(SeededNoise):
    """Selection by the exponential mechanism, as in published code; this library uses permute and flip."""

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Draw an index with probability proportional to exp(score / scale)."""
        return int(np.argmax(scores / float(scale) + self.generator.gumbel(size=scores.size)))


def published_hb(counts: Int64Array, epsilon: float, workload: Int64Array, seed: int) -> FloatArray:
    """Run HB as in DPBench: the root also gets a part of epsilon, although few ranges need it.

    This is private. The variance of ranges inside the root's children is (4 / 3)^2 times that of ``hb``.
    """
    del workload
    noise = SeededNoise(seed)
    return release("h_bar", counts, epsilon, noise=noise, continuous=True, branching=16).counts


def published_p_hp(counts: Int64Array, epsilon: float, workload: Int64Array, seed: int) -> FloatArray:
    """Run P-HP as its authors published it: cuts by the exponential mechanism, counts clipped at zero.

    This is private except for floating point. Their code leaves a twelfth of the cuts' budget unused; this
    code spends it.
    """
    del workload
    noise = Exponential(seed)
    return release("p_hp", counts, epsilon, noise=noise, continuous=True, nonnegative=True).counts


def published_efpa(counts: Int64Array, epsilon: float, workload: Int64Array, seed: int) -> FloatArray:
    """Run EFPA as its authors published it: noise on the moduli of an unnormalised transform.

    This is not private. Phases are released without noise, and one event changes m coefficients by m in
    total, not by the root of m.
    """
    del workload
    noise, half = SeededNoise(seed), epsilon / 2
    spectrum = np.fft.rfft(counts)
    twice = np.full(spectrum.size, 2)
    twice[0] = 1
    if counts.size % 2 == 0:
        twice[-1] = 1
    kept = np.cumsum(twice)
    energy = np.cumsum(twice * np.abs(spectrum) ** 2)
    scores = -np.sqrt(np.maximum(energy[-1] - energy, 0.0)) - np.sqrt(2) * kept / half
    last = int(np.argmax(scores * half / 2 + noise.generator.gumbel(size=scores.size)))
    moduli = np.abs(spectrum) + noise.continuous_laplace(float(np.sqrt(kept[last])) / half, spectrum.size)
    spectrum = moduli * np.exp(1j * np.angle(spectrum))
    spectrum[last + 1 :] = 0
    return np.fft.irfft(spectrum, counts.size)


def published_structure_first(
    counts: Int64Array, epsilon: float, workload: Int64Array, seed: int
) -> FloatArray:
    """Run StructureFirst as published: a twentieth of epsilon for the boundaries, and binary trees.

    This is not private. The bound F on a count, 10,000 times the mean count, comes from the data. It is so
    large that boundaries are nearly uniform draws. Buckets of least cost have at most eight times the mean
    length.
    """
    del workload
    noise, size = Exponential(seed), counts.size
    buckets, bound = -(-size // 10), 10_000 * float(counts.mean())
    costs_of = squared_deviations(counts, int(counts.max()))
    table = least_costs(costs_of, size, buckets - 1, min(size, 8 * -(-size // buckets)))
    scale = 2 * buckets * (2 * bound + 1) / (0.05 * epsilon)
    edges = [size]
    for left in range(buckets - 1, 0, -1):
        places = np.arange(left, edges[-1])
        costs = table[left - 1, places] + costs_of(places, np.full(places.size, edges[-1]))
        edges.append(int(places[noise.select(-costs, scale)]))
    request = prepare("h_bar", counts, epsilon, noise=noise, continuous=True)
    trees = [_binary_tree(request, counts[a:b], epsilon) for a, b in pairwise([0, *edges[::-1]])]
    return np.concatenate(trees)


def _binary_tree(request: Request, counts: Int64Array, epsilon: float) -> FloatArray:
    tree = IntervalTree(counts.size, 2)
    parts = equal_parts(tree, root=True)
    return measure_tree(request, tree, counts, parts, Fraction(0.95 * epsilon)).solve()[0]


YARDSTICKS = {
    "dawa": authors_dawa,
    "mwem": published_mwem,
    "hb": published_hb,
    "p_hp": published_p_hp,
    "efpa": published_efpa,
    "structure_first": published_structure_first,
}
