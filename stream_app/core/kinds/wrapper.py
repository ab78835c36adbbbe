"""The common part of kinds that wrap a tree over time: everything unchanged is delegated to the tree."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from dphist.arrays import FloatArray, Int64Array
from dphist.noise import NoiseSource
from dphist.tree.design import TreeDesign
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.errors import Errors, RowError
from stream_app.core.kinds.kind import Kind
from stream_app.core.kinds.pages import PageGeometry
from stream_app.core.kinds.tables import SeriesView
from stream_app.core.kinds.tree import Tree
from stream_app.core.records import EpochRecord


@dataclass(frozen=True)
class Wrapper(Kind):
    """A tree over time with one more table. Args: tree, the wrapped kind."""

    tree: Tree

    @property
    def design(self) -> TreeDesign:  # type: ignore[override]
        """The tree over time."""
        return self.tree.design

    @property
    @abstractmethod
    def added(self) -> tuple[str, int]:
        """The name and the width of the table that the wrapper adds."""

    @cached_property
    def tables(self) -> Mapping[str, int]:
        """Return the width of each table: the tree's, then the added one."""
        return {**self.tree.tables, self.added[0]: self.added[1]}

    def page_geometry(self) -> PageGeometry:
        """Return how an epoch's noise is divided into pages."""
        return self.tree.page_geometry()

    def draw_pages(self, noise: NoiseSource) -> Iterator[bytes]:
        """Draw the noise of a whole epoch and yield its pages in order. SECRET."""
        return self.tree.draw_pages(noise)

    def row_errors(self, bins: Int64Array) -> list[RowError]:
        """Return the errors of the running counts as first published."""
        return self.tree.row_errors(bins)

    def errors(self, known: SeriesView = "unbiased", key: int | None = None) -> Errors:
        """Return the errors of answers about the total."""
        return self.tree.errors(known, key)

    def running_variances(self, bins: int) -> FloatArray:
        """Return the variance of the running count after each bin."""
        return self.tree.running_variances(bins)

    def epoch(self, record: EpochRecord) -> EpochView:
        """Return an empty view of an epoch."""
        return self.tree.epoch(record)
