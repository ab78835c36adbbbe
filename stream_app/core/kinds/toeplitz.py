"""Approximate counts: a Toeplitz strategy with Gaussian noise, over time alone or key by key.

Each bin releases noisy values y, of which only the running counts are published: they follow from y alone and
are final. The count of any range is a difference of two of them. Between two bins the mechanism keeps a few
numbers for each column, and no history of exact counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

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
    def axes(self) -> ToeplitzColumns | None:  # type: ignore[override]
        return self.columns if self.keyed else None

    @property
    def rows_hold_values(self) -> bool:  # type: ignore[override]
        return not self.keyed

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return {PUBLISHED: self.width}

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        if not isinstance(noise, GaussianSource):
            raise ValueError(f"noise: {type(noise).__name__} draws no Gaussian noise, which this kind needs")
        counter, running = self._restored(held)
        first_bin = counter.bin
        # Before noise is drawn, and by released counts: whoever sees the stream stop learns no more.
        check_room(float(running.total.max(initial=0)) * float(self.toeplitz.step), MOST_EVENTS)
        published = in_units(self.toeplitz, running.append(counter.close(counts, noise)))
        state = ToeplitzState(counter.snapshot().to_bytes(), running.snapshot().to_bytes())
        total = published.sum(axis=1, keepdims=True)
        return Closed(first_bin, total, (Block(PUBLISHED, first_bin, published),), state.to_bytes())

    def _restored(self, held: bytes) -> tuple[ToeplitzCounter, RunningCounts]:
        if not held:
            return ToeplitzCounter(self.toeplitz), RunningCounts(self.toeplitz)
        state = ToeplitzState.from_bytes(held)
        counter = ToeplitzCounter.restore(self.toeplitz, ToeplitzSnapshot.from_bytes(state.counter))
        return counter, RunningCounts.restore(self.toeplitz, RunningSnapshot.from_bytes(state.running))

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
        now = self.toeplitz
        other = plan_toeplitz(
            horizon=now.horizon,
            epsilon=asked["epsilon"],
            delta=now.delta,
            caps=now.caps,
            neighbours=now.neighbours,
            width=now.width,
            window_starts=now.window_starts,
            strategy=now.strategy,
        )
        return replace(self, toeplitz=other)


class ToeplitzEpoch(PublishedEpoch):
    def __init__(self, record: EpochRecord, kind: Toeplitz) -> None:
        super().__init__(record, kind.toeplitz, kind.width)
        self._errors = kind.errors()

    def _error(self, part: Span) -> tuple[WeightedNoise, float]:
        return self._errors.within(self.bins, np.array([part.start]), np.array([part.stop])).error(0)


def in_units(design: ToeplitzDesign, running: Int64Array) -> Int64Array:
    """Convert running counts from units of the lattice to 2^-16 of a count; halves are rounded up."""
    drop = design.output_bits - VALUE_BITS
    return np.asarray((running + (1 << drop - 1)) >> drop if drop > 0 else running << -drop)
