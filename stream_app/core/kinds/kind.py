"""The protocol of a kind of release: from exact counts to public tables, and from tables to answers.

A kind says which tables an epoch has and how they grow, closes bins, writes its part of a chain row, and
knows the exact errors of its releases. The chain, the store, the loops and the API use only this protocol.
``kind_of`` in ``kinds/__init__.py`` chooses the kind. In kinds, a method without a docstring does what
``Kind`` or ``EpochView`` says about it.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypedDict

from dphist.arrays import FloatArray, Int64Array
from dphist.epochs import EpochLevels
from dphist.noise import NoiseSource
from dphist.privacy import Neighbours
from dphist.product.columns import ColumnSum
from dphist.product.design import ColumnDesign, ProductDesign
from dphist.tree.anticipating import BinsNoise
from dphist.tree.design import Release, TreeDesign
from dphist.windows.design import WindowDesign
from dphist.workloads import Workload
from stream_app.core.epochs import FoundKeys
from stream_app.core.kinds.epoch import EpochCovers, EpochView
from stream_app.core.kinds.errors import Errors, RowError
from stream_app.core.kinds.pages import PageGeometry
from stream_app.core.kinds.tables import PUBLISHED, Closed, Named, SeriesView, TimeDesign, node_table
from stream_app.core.records import EpochRecord


class Asked(TypedDict):
    """The arguments that the planners ``plan_tree`` and ``plan_product`` share."""

    horizon: int
    epsilon: Fraction
    workload: Workload
    release: Release
    neighbours: Neighbours
    max_events: int
    branching: tuple[int, ...] | None
    shares: tuple[Fraction, ...] | None


Vector = tuple[Fraction, tuple[int, ...]]  # the scale and the shape of a noise vector


def values_hash(values: Int64Array) -> str:
    """Return the SHA-256 of a row of a table as the store holds it: little-endian int64."""
    return hashlib.sha256(values.astype("<i8").tobytes()).hexdigest()


class Kind(ABC):
    """How the bins of a stream are released and read.

    Attributes:
        design: over time; its horizon is the epoch in bins.
        width: the number of counted cells per bin.
        slow: whether closing a bin may take so long that it should not delay other streams.
    """

    design: TimeDesign
    width: int
    slow = False
    rows_hold_values = False  # whether chain rows hold all values of the tables, not only hashes
    keys_as_first_published = False  # whether a key's first published counts are kept
    seeded = False  # whether decisions of an epoch come from a seed that is stored before the epoch
    axes: ColumnDesign | None = None  # keys and values that have counts over any range of time
    windows: WindowDesign | None = None  # keys and values that have counts in windows
    levels: EpochLevels | None = None  # of nodes over epochs

    @property
    def epsilon(self) -> Fraction:
        """Return the epsilon that one event (or user) costs in one epoch and in all nodes that outlive it."""
        return self.design.epsilon

    @property
    def delta(self) -> Fraction | None:
        """Return the delta of one epoch; None if the promise is pure."""
        return None

    @property
    def mu(self) -> Fraction | None:
        """Return the mu of one epoch's ledger entry (``LedgerEntry``); None if the promise is pure."""
        return None

    @property
    def tree_design(self) -> TreeDesign | None:
        """Return the tree over time; None for a kind without a tree."""
        return self.design if isinstance(self.design, TreeDesign) else None

    @property
    def product(self) -> ProductDesign | None:
        """Return the design over keys and values with a tree for each column; None if there is none."""
        return self.axes if isinstance(self.axes, ProductDesign) else None

    @property
    def node_levels(self) -> Sequence[int]:
        """Return the levels of the tree over time whose nodes are released."""
        return () if self.tree_design is None else self.tree_design.shape.levels

    @property
    @abstractmethod
    def tables(self) -> Mapping[str, int]:
        """Return the width of each table, by name."""

    def tables_at(self, bin: int) -> Mapping[str, int]:
        """Return the tables that may get rows with a bin of the epoch, in the order of ``tables``."""
        return self.tables

    def rows_after(self, table: str, bins: int) -> int:
        """Return how many rows of a table the first ``bins`` bins of an epoch release."""
        if table == PUBLISHED:
            return bins
        assert self.tree_design is not None  # only a tree has tables of nodes
        return self.tree_design.shape.completed_count(bins, int(table))

    @abstractmethod
    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        """Release the next bins of an epoch.

        Guarantee: all releases of one epoch together are ``epsilon``-DP, if each bin is released once.
        Args: held, the state after the previous bins, empty at an epoch's start, SECRET; counts, shape (bins,
            width), SECRET; noise, the source for noise drawn at closing; ahead, the noise drawn for these
            bins before the epoch, if ``drawn_ahead``.
        Raises: ValueError for other shapes, bins beyond the epoch, or noise of other bins. The message never
            shows a count.
        """

    def close_naming(self, held: bytes, counts: Int64Array, noise: NoiseSource, named: Named) -> Closed:
        """Release the next bins as ``close`` does, and the past of keys that the last one names."""
        raise ValueError("this kind of release finds no keys")

    def with_found(self, found: Sequence[FoundKeys], first_bin: int) -> Kind:
        """Return the kind with the keys that an epoch has found. Args: first_bin, of the epoch."""
        return self

    @abstractmethod
    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        """Return the part of a chain row that vouches for the table rows that the bin released."""

    def completed(self, bin: int) -> Iterator[tuple[int, int]]:
        """Yield level and index of each released node that a bin of the epoch completes, leaf first."""
        tree = self.tree_design if self.node_levels else None
        return iter(() if tree is None else tree.shape.completed_by(bin))

    def kept(self, state: bytes) -> bytes:
        """Return the state that a complete epoch hands to the next. SECRET. Args: state, when it ended."""
        return b""

    @property
    def drawn_ahead(self) -> bool:
        """Whether all noise of an epoch is drawn before the epoch begins."""
        return self.tree_design is not None and self.tree_design.anticipates

    @property
    def stores_ahead(self) -> bool:
        """Whether something secret is drawn and stored before an epoch begins: its noise, or a seed."""
        return self.drawn_ahead or self.seeded

    @property
    def never_revised(self) -> bool:
        """Whether later bins never change an earlier answer."""
        return self.drawn_ahead

    @property
    def release(self) -> Release:
        """Return when noise is drawn, as the configuration names it: the release that is in use."""
        return "anticipating" if self.drawn_ahead else "causal"

    def page_geometry(self) -> PageGeometry:
        """Return how an epoch's noise is divided into pages, if it is drawn ahead."""
        assert self.tree_design is not None  # only noise of trees is drawn ahead
        widths = self.tree_design.shape.widths
        node_bins = tuple(widths[level] for level in self.node_levels)
        return PageGeometry(self.design.horizon, self.tables[PUBLISHED], node_bins)

    def draw_pages(self, noise: NoiseSource) -> Iterator[bytes]:
        """Draw an epoch's noise and yield its pages, none if each release draws its own noise. SECRET.

        Guarantee: independent of all data. Call it once per epoch.
        Cost: as of the noise source; exact noise from the system takes less than a microsecond per draw.
        """
        return iter(())

    def vectors(self) -> Mapping[Vector, int]:
        """Return the noise vectors that are worth drawing between two closings, and how many of each."""
        return {}

    @abstractmethod
    def row_errors(self, bins: Int64Array) -> list[RowError]:
        """Return variance and half width of the first published running count at each of these bins."""

    def column_errors(self, bins: Int64Array, columns: ColumnSum) -> list[RowError]:
        """Return variance and half width of a sum of columns, as first published after each of these bins."""
        raise ValueError("this kind of release has no columns")

    @abstractmethod
    def errors(self, known: SeriesView = "unbiased", columns: ColumnSum | None = None) -> Errors:
        """Return the errors of a sum of columns, for example of one key's count; None: of the total."""

    @abstractmethod
    def running_variances(self, bins: int) -> FloatArray:
        """Return the variance of the total's running count after each of ``bins`` closed bins: (bins,)."""

    @abstractmethod
    def epoch(self, record: EpochRecord) -> EpochView:
        """Return an empty view of an epoch."""

    def new_covers(self) -> EpochCovers | None:
        """Return an empty set of nodes over epochs; None if there are no levels over epochs."""
        return None

    @abstractmethod
    def fields(self) -> dict[str, str]:
        """Return the designs as text, by the field names under which a strategy stores them."""

    def at_epsilon(self, asked: Asked) -> Kind:
        """Return the plan for another epsilon. Raises: ValueError if no plan fits."""
        raise ValueError("this kind of release has one plan only")


def node_tables(design: TreeDesign, width: int) -> dict[str, int]:
    """Return the tables of a tree: published rows, then the nodes of each level, all of one width."""
    return {PUBLISHED: width} | {node_table(level): width for level in design.shape.levels}
