"""MWEM: measure the query that the current estimate answers worst, correct the estimate, and repeat."""

import math
from fractions import Fraction
from functools import reduce

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.ranges import range_sums

# (epsilon N, number of rounds with the least error) on generated histograms; between, log interpolation.
_ROUNDS = ((1e2, 3), (1e3, 7), (4e3, 10), (1e4, 16), (1e5, 40), (1e6, 90), (1e8, 140))


def mwem(
    request: Request,
    *,
    rounds: int | None = None,
    known_total: bool = False,
    total_share: Fraction = Fraction(1, 25),
    sweeps: int = 100,
) -> HistogramRelease:
    """In each round measure the workload's worst answered query and reweigh the estimate by it (MWEM).

    Guarantee: epsilon-DP. The total is measured with scale 1 / share (one event changes it by one). Each
        round spends half of its part of epsilon on choosing the range with the largest error, an integer that
        one event changes by at most one, with scale 2 / half. The other half measures that range's count,
        which one event changes by at most one. With ``known_total`` the exact total is used, and neighbours
        differ by one event moved, so their totals are equal; a range still changes by at most one. Biased.
    Cost: O(rounds (n + m) + sweeps rounds^3) on a line, since the estimate is uniform between edges of
        measured ranges and a reweighing touches at most 2 rounds cells; rounds^4 on a grid.
    Source: Hardt, Ligett, McSherry (2012), with the replay of earlier measurements of their section 2.3. Code
        that treats the exact total as public although events may be added is not private.
    """
    total = request.total(total_share, known=known_total)
    if not known_total:
        total = max(1.0, total)  # so that weights exist
    ranges = request.ranges
    wanted = _rounds(total, float(request.ledger.epsilon), request.counts.size) if rounds is None else rounds
    wanted = min(wanted, len(ranges))
    estimate = CellEstimate(request.counts.shape, total)
    if wanted == 0:
        request.ledger.spend_rest("unused: no queries")
        return request.release(estimate.counts(), known_total=known_total)
    part = request.ledger.left / (2 * wanted)
    exact = range_sums(request.counts, ranges)
    unused = np.arange(len(ranges))
    for turn in range(1, wanted + 1):
        answers = np.rint(range_sums(estimate.counts(), ranges[unused])).astype(np.int64)
        epsilon_choice = request.ledger.spend(f"choice {turn}", part)
        chosen = request.select(np.abs(exact[unused] - answers), 2 / epsilon_choice)
        query = int(unused[chosen])
        unused = np.delete(unused, chosen)
        epsilon_count = request.ledger.spend(f"count {turn}", part)
        noisy = request.measure(exact[query : query + 1], 1 / epsilon_count)
        estimate.add(ranges[query], float(noisy[0]))
        estimate.replay(sweeps)
    return request.release(estimate.counts(), known_total=known_total)


class CellEstimate:
    """An estimated histogram that is uniform within cells, whose borders are the edges of measured ranges.

    ``masses`` are the cells' counts, which add up to ``total``; ``edges`` cut each axis.
    """

    def __init__(self, shape: tuple[int, ...], total: float) -> None:
        self.total = total
        self.edges = [np.array([0, size]) for size in shape]
        self.masses = np.full((1,) * len(shape), total)
        self.measured: list[tuple[Int64Array, float]] = []

    def add(self, query: Int64Array, answer: float) -> None:
        """Add a measured range, and cut cells at its edges."""
        self.measured.append((query, answer))
        for axis in range(len(self.edges)):
            old = self.edges[axis]
            new = np.union1d(old, query[2 * axis : 2 * axis + 2])
            parent = np.searchsorted(old, new[:-1], side="right") - 1
            fraction = np.diff(new) / np.diff(old)[parent]
            along = [1] * len(self.edges)
            along[axis] = -1
            self.masses = np.take(self.masses, parent, axis=axis) * fraction.reshape(along)
            self.edges[axis] = new

    def replay(self, sweeps: int) -> None:
        """Reweigh the cells by each measured range in turn, ``sweeps`` times or until nothing moves."""
        if self.total <= 0:
            return
        cells = []
        for query, _ in self.measured:
            bounds = [np.searchsorted(edges, query[2 * a : 2 * a + 2]) for a, edges in enumerate(self.edges)]
            cells.append(tuple(slice(int(first), int(last)) for first, last in bounds))
        masses, scale, rate = self.masses.copy(), 1.0, 0.5 / self.total
        for _ in range(sweeps):
            moved = 0.0
            for cell, (_, answer) in zip(cells, self.measured, strict=True):
                inside = masses[cell]
                mass = scale * float(inside.sum())
                # Limit the exponent, since a count far from the total could overflow.
                exponent = min(max(rate * (answer - mass), -30.0), 30.0)
                factor = math.exp(exponent)
                inside *= factor
                # One common factor restores the total; it is kept separately. Because of rounding, cells that
                # hold everything may seem to hold more.
                scale *= self.total / (max(self.total - mass, 0.0) + mass * factor)
                moved = max(moved, abs(exponent))
            masses *= scale
            scale = 1.0
            if moved < 1e-9:
                break
        whole = float(masses.sum())
        # With far too many rounds the mass may underflow or overflow: then keep the previous masses.
        if 0 < whole < math.inf:
            self.masses = masses * (self.total / whole)

    def counts(self) -> FloatArray:
        """Spread each cell's count evenly over its bins."""
        widths = [np.diff(edges) for edges in self.edges]
        volumes = reduce(np.multiply.outer, widths)
        density = self.masses / volumes
        for axis, width in enumerate(widths):
            density = np.repeat(density, width, axis=axis)
        return np.asarray(density)


def _rounds(total: float, epsilon: float, size: int) -> int:
    """Return the number of rounds: few if the noise is large or there are few bins.

    The number depends on published values only.

    >>> _rounds(1.0, 0.1, 4096), _rounds(1e5, 0.1, 4096), _rounds(1e12, 1.0, 4096), _rounds(1e12, 1.0, 60)
    (3, 16, 140, 8)
    """
    signal, rounds = zip(*_ROUNDS, strict=True)
    wanted = round(float(np.interp(math.log(max(total * epsilon, 1e-300)), np.log(signal), rounds)))
    return min(wanted, max(8, size // 8))
