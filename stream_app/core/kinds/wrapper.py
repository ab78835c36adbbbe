"""The common part of kinds that wrap a tree over time: what a wrapper does not change, the tree does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dphist.arrays import FloatArray, Int64Array
from dphist.noise import NoiseSource
from dphist.tree.design import TreeDesign
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.errors import Errors, RowError
from stream_app.core.kinds.kind import Kind
from stream_app.core.kinds.tables import SeriesView
from stream_app.core.kinds.tree import Tree
from stream_app.core.records import EpochRecord


@dataclass(frozen=True)
class Wrapper(Kind):
    """A tree over time with one more table. Args: tree, the wrapped kind."""

    tree: Tree

    @property
    def design(self) -> TreeDesign:  # type: ignore[override]
        return self.tree.design

    def draw_pages(self, noise: NoiseSource) -> Iterator[bytes]:
        return self.tree.draw_pages(noise)

    def row_errors(self, bins: Int64Array) -> list[RowError]:
        return self.tree.row_errors(bins)

    def errors(self, known: SeriesView = "unbiased", key: int | None = None) -> Errors:
        return self.tree.errors(known, key)

    def running_variances(self, bins: int) -> FloatArray:
        return self.tree.running_variances(bins)

    def epoch(self, record: EpochRecord) -> EpochView:
        return self.tree.epoch(record)
