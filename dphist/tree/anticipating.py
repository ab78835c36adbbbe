"""The anticipating counter: running counts that already use the noise of incomplete nodes.

The noise of a whole epoch is drawn before its first bin, independently of all data. From this noise the
counter computes, once, the error of every running count of the epoch. To publish a bin, the counter adds the
bin's error to the exact running count.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.interval import half_widths
from dphist.noise import NoiseSource, SystemNoise
from dphist.tree.anticipating_step import AnticipatingSnapshot, bins_noise, release_bins
from dphist.tree.counter import BinCounter, TreeCounter, check_snapshot
from dphist.tree.decoder import EpochNoise, decode_noise, draw_epoch_noise
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from dphist.tree.published_laws import published_law, published_laws, published_rounding
from dphist.tree.release import BinReleases
from dphist.units import UNITS_PER_COUNT, VALUE_BITS

__all__ = ["AnticipatingCounter", "AnticipatingSnapshot"]


class AnticipatingCounter(BinCounter):
    """Counts closed bins; every push publishes the least-squares running count over the whole epoch's tree.

    Guarantee: all nodes and all published values of one epoch together are ``design.epsilon``-DP for the
        design's neighbours, also if later events depend on published values: they are functions of one noisy
        tree R x + Z (``decoder.py``), and Z was drawn before the epoch. A published value depends on bins up
        to its own and is never revised. Nodes that the horizon cuts off are never published.
    Args: an anticipating design; noise, a source (by default the system's) or the noise
        from ``draw_epoch_noise``; width in cells.
    Raises: ValueError for a causal design or noise of another shape.
    Cost: construction draws and decodes the noise of all nodes; a push costs O(width) on average; memory
        about 24 bytes per bin and cell.
    Source: Hay et al. (2010) for least squares; Andersson et al. (2024) for the noise of incomplete nodes.

    >>> from dphist import SeededNoise, plan_tree
    >>> design = plan_tree(horizon=4, epsilon=1e9, release="anticipating")
    >>> counter = AnticipatingCounter(design, SeededNoise(0))
    >>> counter.push(5).published // 2**16
    array([5])
    """

    def __init__(
        self, design: TreeDesign, noise: NoiseSource | EpochNoise | None = None, width: int = 1
    ) -> None:
        super().__init__(design, width)
        if not design.anticipates:
            raise ValueError(f"release: this counter is anticipating; {design.release!r} needs TreeCounter")
        source = SystemNoise() if noise is None else noise
        self._noise = source if isinstance(source, tuple) else draw_epoch_noise(design, source, width)
        self._errors = decode_noise(design, self._noise)
        if self._errors.shape[1] != width:
            raise ValueError(f"noise: {self._errors.shape[1]} cells given for a width of {width}")
        self._state = AnticipatingSnapshot.first(design, width)
        self._published = np.zeros((design.horizon + 1, width), np.int64)
        self._known_from = 0

    @property
    def bin(self) -> int:
        return self._state.bin

    def push_many(self, counts: ArrayLike) -> BinReleases:
        rows = np.asarray(counts)
        stop = self.bin + (len(rows) if rows.ndim else 0)
        noise = bins_noise(self.design, self._noise, self._errors, self.bin, stop)
        releases, after = release_bins(self.design, self._state, rows, noise)
        self._published[self.bin + 1 : stop + 1] = releases.published
        self._state = after
        return releases

    def live(self) -> Estimate:
        """Return the published running count after the last closed bin."""
        return self.range(0, self.bin)

    def range(self, a: int, b: int) -> Estimate:
        """Return the count of bins [a, b): the difference of two published values.

        Guarantee: the best linear unbiased estimate from the whole epoch's noisy tree, up to
            ``Estimate.rounding``; known when bin b - 1 has closed, and never revised.
        Raises: ValueError for bins that are not closed, or were published before this counter was restored.
        Cost: O(horizon) for the law.
        """
        if not 0 <= a <= b <= self.bin:
            raise ValueError(f"range [{a}, {b}): closed bins are [0, {self.bin})")
        if any(0 < edge < self._known_from for edge in (a, b)):
            raise ValueError(f"range [{a}, {b}): values before {self._known_from} are in the released rows")
        rounding = published_rounding(self.design, a) if a < b else 0.0
        return Estimate.of_units(
            self._published[b] - self._published[a], published_law(self.design, a, b), rounding
        )

    def _running(self, confidence: float) -> tuple[FloatArray, FloatArray]:
        if self._known_from:
            raise ValueError(f"curve: values before bin {self._known_from} are in the released rows")
        stops = np.arange(1, self.bin + 1)
        widths, _ = half_widths(published_laws(self.design, np.zeros_like(stops), stops), confidence)
        values = self._published[1 : self.bin + 1, 0] / UNITS_PER_COUNT
        return values, widths + published_rounding(self.design, 0)

    def snapshot(self) -> AnticipatingSnapshot:
        """Return a copy of the state, without the epoch's noise, which never changes. SECRET."""
        return deepcopy(self._state)

    @classmethod
    def restore(
        cls, design: TreeDesign, noise: Sequence[Int64Array], snapshot: AnticipatingSnapshot
    ) -> AnticipatingCounter:
        """Continue from a snapshot and the same epoch's noise, as if nothing had happened between.

        The counter answers ranges between values that it publishes itself; released rows hold earlier values.
        Raises: ValueError if snapshot, noise and design do not fit together.
        """
        rows = snapshot.accumulators.shape
        check_snapshot(design, snapshot.bin, snapshot.accumulators, snapshot.total.shape == rows[1:])
        counter = cls(design, tuple(noise), rows[1])
        counter._state, counter._known_from = deepcopy(snapshot), snapshot.bin
        if snapshot.bin:
            error = counter._errors[snapshot.bin - 1]
            counter._published[snapshot.bin] = (snapshot.total << VALUE_BITS) + error
        return counter


def new_counter(
    design: TreeDesign, noise: NoiseSource, width: int = 1, history: bool = True
) -> TreeCounter | AnticipatingCounter:
    """Return a new counter. Args: as ``TreeCounter``; an anticipating counter always keeps its history."""
    if design.anticipates:
        return AnticipatingCounter(design, noise, width)
    return TreeCounter(design, noise, width, history)
