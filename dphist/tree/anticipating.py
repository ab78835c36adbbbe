"""The anticipating counter: running counts that already use the noise of incomplete nodes.

The noise of a whole epoch is drawn before its first bin, independently of all data. From this noise the
counter computes, once, the error of every running count of the epoch. To publish a bin, the counter adds the
bin's error to the exact running count. A step needs the noise of its own bins only, so a service can store an
epoch's noise in blocks (pages).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.interval import half_widths
from dphist.noise import NoiseSource, SystemNoise
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.counter import BinCounter, TreeCounter, check_snapshot
from dphist.tree.decoder import EpochNoise, decode_noise, draw_epoch_noise
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from dphist.tree.published_laws import published_law, published_laws, published_rounding
from dphist.tree.release import BinReleases, LevelRelease
from dphist.tree.upward import LARGEST_COUNT, MOST_EVENTS, checked_counts, exact_nodes
from dphist.units import UNITS_PER_COUNT, VALUE_BITS, FullError, check_room


@dataclass(frozen=True)
class AnticipatingSnapshot(Snapshot):
    """The state of an anticipating counter, without its epoch's noise. SECRET: it holds exact counts.

    ``accumulators`` (height, width) as in ``CounterSnapshot``; ``total`` (width,) counts all closed bins.
    """

    bin: int
    accumulators: Int64Array = field(repr=False)
    total: Int64Array = field(repr=False)

    code, noun = b"dpAC", "counter snapshot"
    first_version = FirstVersion(
        b"dpAC\x01\0",
        "<HQQ",
        lambda _, rows, width, bin: {"bin": bin, "accumulators": [rows, width], "total": [width]},
    )

    @classmethod
    def first(cls, design: TreeDesign, width: int = 1) -> AnticipatingSnapshot:
        """Return the state before an epoch's first bin."""
        return cls(0, np.zeros((design.shape.height, width), np.int64), np.zeros(width, np.int64))


@dataclass(frozen=True)
class BinsNoise:
    """The noise of consecutive bins: SECRET until they are released.

    Args: errors of the published running counts, (bins, width), in units of 2^-16; nodes, per measured level,
        root side first, the noise of the nodes that these bins complete, (nodes, width).
    """

    first_bin: int
    errors: Int64Array = field(repr=False)
    nodes: tuple[Int64Array, ...] = field(repr=False)


def bins_noise(
    design: TreeDesign, noise: Sequence[Int64Array], errors: Int64Array, first_bin: int, stop: int
) -> BinsNoise:
    """Return the noise of bins [first_bin, stop) of an epoch.

    Args: noise as ``draw_epoch_noise`` returned it, errors as ``decode_noise`` did.
    """
    nodes = (
        own[first_bin // width : stop // width]
        for own, width in zip(noise, design.shape.widths[1:], strict=True)
    )
    return BinsNoise(first_bin, errors[first_bin:stop], tuple(nodes))


def release_bins(
    design: TreeDesign, before: AnticipatingSnapshot, counts: ArrayLike, noise: BinsNoise
) -> tuple[BinReleases, AnticipatingSnapshot]:
    """Release the next bins of an epoch whose noise was drawn before it.

    Guarantee: as ``AnticipatingCounter``, if ``noise`` is this epoch's; the same arguments give the same
        releases, so a step may be repeated.
    Args: the state before these bins; counts, integers >= 0, shape (bins, width); their noise.
    Returns: the releases, and the state after them.
    Raises: ValueError for bins beyond the horizon, bad counts (never shown), or noise of other bins;
        FullError if these bins, noise included, fill the epoch.
    Cost: O(bins * width).
    """
    shape = design.shape
    leaves = checked_counts(counts, len(before.total), before.bin, design.horizon)
    stop = before.bin + len(leaves)
    running = before.total + leaves.cumsum(axis=0)
    exact, accumulators = exact_nodes(shape, before.accumulators, leaves, before.bin)
    expected = tuple(sums.shape for sums in exact)
    if noise.first_bin != before.bin or (noise.errors.shape, *(own.shape for own in noise.nodes)) != (
        leaves.shape,
        *expected,
    ):
        raise ValueError(f"noise: that of bins from {noise.first_bin} given; bins [{before.bin}, {stop})")
    if running.size:
        # By noisy values, before exact counts: a reader who sees the stream stop learns nothing else.
        noisy = running[-1] + noise.errors[-1] / UNITS_PER_COUNT
        check_room(float(noisy.sum()), MOST_EVENTS)
        if int(running[-1].max()) > LARGEST_COUNT:
            raise FullError("counts: an epoch holds more than 2^45 events; shorten it")
    levels = tuple(
        LevelRelease(level, before.bin // shape.widths[level], sums + own)
        for level, sums, own in zip(shape.levels, exact, noise.nodes, strict=True)
    )
    releases = BinReleases(shape, before.bin, levels, (running << VALUE_BITS) + noise.errors)
    total = running[-1].copy() if len(running) else before.total
    return releases, AnticipatingSnapshot(stop, accumulators, total)


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
