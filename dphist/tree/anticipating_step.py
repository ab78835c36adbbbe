"""One step of the anticipating release: turns exact counts and stored noise of some bins into releases.

A step needs the noise of its own bins only, so a service can store an epoch's noise in blocks (pages).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import Int64Array
from dphist.room import FullError, check_room
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.design import TreeDesign
from dphist.tree.release import BinReleases, LevelRelease
from dphist.tree.upward import LARGEST_COUNT, MOST_EVENTS, checked_counts, exact_nodes
from dphist.units import UNITS_PER_COUNT, VALUE_BITS


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
    design: TreeDesign,
    noise: Sequence[Int64Array],
    errors: Int64Array,
    first_bin: int,
    stop: int,
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
        # Noise before exact counts: whoever sees a stream stop learns what noisy values tell, and no more.
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
