"""Approximate counts: a Toeplitz strategy with Gaussian noise, over time alone or key by key.

Each bin releases noisy values y, of which only the running counts are published: they follow from y alone and
are final. The count of any range is a difference of two of them. Between two bins the mechanism keeps a few
numbers for each column, and no history of exact counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import WeightedNoise
from dphist.noise import GaussianSource, NoiseSource
from dphist.product.approximate import ToeplitzColumns
from dphist.product.columns import ColumnSum, column_sum
from dphist.snapshots import Snapshot
from dphist.toeplitz import RunningCounts, ToeplitzCounter, ToeplitzDesign, ToeplitzSnapshot, plan_toeplitz
from dphist.toeplitz.counter import MOST_EVENTS
from dphist.toeplitz.estimate import RunningSnapshot, prefix_variances
from dphist.tree.anticipating import BinsNoise
from dphist.units import VALUE_BITS, check_room
from stream_app.core.kinds.axes import PublishedAxesEpoch
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.errors import Errors, RowError, row_errors
from stream_app.core.kinds.kind import Asked, Kind, values_hash
from stream_app.core.kinds.tables import PUBLISHED, Block, Closed, SeriesView, Span
from stream_app.core.kinds.tree import PublishedEpoch
from stream_app.core.records import EpochRecord

TOEPLITZ, TOEPLITZ_KEYS = "toeplitz", "toeplitz_keys"  # the fields of a strategy without and with keys


@dataclass(frozen=True)
class ToeplitzState(Snapshot):
    """The state between two closings. SECRET.

    Args: counter, the mechanism's state, which follows from exact counts; running, the state of the running
        counts, which follows from released values.
    """

    counter: bytes = field(repr=False)
    running: bytes = field(repr=False)

    code, noun = b"dpTS", "counter state of an approximate stream"


@dataclass(frozen=True)
class Toeplitz(Kind):
    """Approximate counts. Args: toeplitz, the mechanism; keyed, whether its columns are keys."""

    toeplitz: ToeplitzDesign
    keyed: bool

    keys_as_first_published = True
    never_revised = True

    @property
    def design(self) -> ToeplitzDesign:  # type: ignore[override]
        return self.toeplitz

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.toeplitz.width

    @property
    def delta(self) -> Fraction:
        return self.toeplitz.delta

    @property
    def mu(self) -> Fraction:
        return self.toeplitz.mu

    @cached_property
    def columns(self) -> ToeplitzColumns:
        """The columns of a release; one column for all events without keys."""
        return ToeplitzColumns(self.toeplitz)

    @property
    def mechanisms(self) -> list[tuple[ToeplitzDesign, slice]]:
        """The mechanisms that a release draws noise for, in this order, with their columns."""
        return [(of_width(group.design, group.width), group.columns) for group in self.columns.groups]

    @property
    def axes(self) -> ToeplitzColumns | None:  # type: ignore[override]
        return self.columns if self.keyed else None

    @property
    def rows_hold_values(self) -> bool:  # type: ignore[override]
        return not self.keyed

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return {PUBLISHED: self.width}

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        first_bin, published, state = released(self.toeplitz, held, counts, noise)
        total = published.sum(axis=1, keepdims=True)
        return Closed(first_bin, total, (Block(PUBLISHED, first_bin, published),), state)

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        hashed = {"columns_hash": values_hash(closed.blocks[0].values[position])} if self.keyed else {}
        return {"nodes": [], **hashed}

    def row_errors(self, bins: Int64Array) -> list[RowError]:
        return self.column_errors(bins, column_sum(self.columns))

    def column_errors(self, bins: Int64Array, columns: ColumnSum) -> list[RowError]:
        laws = columns.published_laws(np.zeros_like(bins), bins + 1)
        return row_errors(laws, columns.published_rounding(0))

    def errors(self, known: SeriesView = "unbiased", columns: ColumnSum | None = None) -> Errors:
        summed = columns or column_sum(self.columns)
        laws = summed.published_laws, summed.published_rounding(0), summed.weighted_law
        return Errors.of_published(self.toeplitz.horizon, *laws)

    def running_variances(self, bins: int) -> FloatArray:
        return self.width * prefix_variances(self.toeplitz, np.arange(1, bins + 1))

    def epoch(self, record: EpochRecord) -> EpochView:
        if self.keyed:
            return PublishedAxesEpoch(record, self.columns, self.toeplitz)
        return ToeplitzEpoch(record, self)

    def fields(self) -> dict[str, str]:
        return {TOEPLITZ_KEYS if self.keyed else TOEPLITZ: self.toeplitz.to_json()}

    def at_epsilon(self, asked: Asked) -> Toeplitz:
        return replace(self, toeplitz=at_epsilon(self.toeplitz, asked["epsilon"]))


class ToeplitzEpoch(PublishedEpoch):
    def __init__(self, record: EpochRecord, kind: Toeplitz) -> None:
        super().__init__(record, kind.toeplitz, kind.width)
        self._errors = kind.errors()

    def _error(self, part: Span) -> tuple[WeightedNoise, float]:
        return self._errors.within(self.bins, np.array([part.start]), np.array([part.stop])).error(0)


def released(
    design: ToeplitzDesign, held: bytes, counts: Int64Array, noise: NoiseSource
) -> tuple[int, Int64Array, bytes]:
    """Close the next bins; return the first, their running counts in units of 2^-16, and the state after.

    Args, Raises: as ``Kind.close``.
    """
    if not isinstance(noise, GaussianSource):
        raise ValueError(f"noise: {type(noise).__name__} draws no Gaussian noise, which this kind needs")
    counter, running = ToeplitzCounter(design), RunningCounts(design)
    if held:
        state = ToeplitzState.from_bytes(held)
        counter = ToeplitzCounter.restore(design, ToeplitzSnapshot.from_bytes(state.counter))
        running = RunningCounts.restore(design, RunningSnapshot.from_bytes(state.running))
    first_bin = counter.bin
    # By released counts, before noise is drawn: a reader who sees the stream stop learns nothing else.
    check_room(float(running.total.max(initial=0)) * float(design.step), MOST_EVENTS)
    published = in_units(design, running.append(counter.close(counts, noise)))
    after = ToeplitzState(counter.snapshot().to_bytes(), running.snapshot().to_bytes())
    return first_bin, published, after.to_bytes()


@lru_cache(maxsize=64)  # checking the noise takes longer than a release
def of_width(design: ToeplitzDesign, columns: int) -> ToeplitzDesign:
    """Return a design for at most as many columns as it has: its noise is enough."""
    return replace(design, width=columns)


def joined(one: bytes, other: bytes) -> bytes:
    """Return the state of the columns of two states, which are at the same bin. SECRET."""
    states = [ToeplitzState.from_bytes(state) for state in (one, other)]
    counters = [ToeplitzSnapshot.from_bytes(state.counter) for state in states]
    sums = [RunningSnapshot.from_bytes(state.running) for state in states]
    if len({one.bin for one in counters} | {one.bin for one in sums}) != 1:
        raise ValueError("approximate counter snapshot: two states are at different bins")
    high, low = (np.hstack([getattr(one, name) for one in counters]) for name in ("high", "low"))
    words = (np.hstack([getattr(one, name) for one in sums]) for name in ("high", "low", "total"))
    bin = counters[0].bin
    after = ToeplitzState(
        ToeplitzSnapshot(bin, high, low).to_bytes(), RunningSnapshot(bin, *words).to_bytes()
    )
    return after.to_bytes()


def at_epsilon(design: ToeplitzDesign, epsilon: Fraction) -> ToeplitzDesign:
    """Return a design with the noise of another epsilon."""
    return plan_toeplitz(
        horizon=design.horizon,
        epsilon=epsilon,
        delta=design.delta,
        caps=design.caps,
        neighbours=design.neighbours,
        width=design.width,
        window_starts=design.window_starts,
        strategy=design.strategy,
        share=design.share,
    )


def in_units(design: ToeplitzDesign, running: Int64Array) -> Int64Array:
    """Convert running counts from units of the lattice to 2^-16 of a count; halves are rounded up."""
    drop = design.output_bits - VALUE_BITS
    return np.asarray((running + (1 << drop - 1)) >> drop if drop > 0 else running << -drop)
