"""A kind of release that also counts users by their numbers of events, so that caps can be proposed.

The tally adds to a bin's last cells how many users came into each bucket in the bin, and how many left it
(``dphist/users.py``). Their sums since the start of a cap window are the users in each bucket. The last bin
of a whole epoch releases them once, for the window that ends there. An epoch that is shorter than others may
begin inside a window: it releases none, because it has seen a part of a user's events only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource
from dphist.product.columns import ColumnSum
from dphist.product.design import ProductDesign
from dphist.snapshots import Snapshot
from dphist.tree.anticipating_step import BinsNoise
from dphist.users import BUCKETS, NumbersOfUsers
from stream_app.core.kinds.axes import Axes
from stream_app.core.kinds.errors import RowError
from stream_app.core.kinds.kind import Asked, Vector
from stream_app.core.kinds.tables import USERS, Block, Closed
from stream_app.core.kinds.tree import Tree, Wrapper

MEASURING = "users"  # the field of a strategy with the histogram


@dataclass(frozen=True)
class MeasuringState(Snapshot):
    """The state between two closings. SECRET. Args: users, of each bucket; counts, of the other counts."""

    users: Int64Array = field(repr=False)
    counts: bytes = field(repr=False)

    code, noun = b"dpMU", "counter state of numbers of users"


@dataclass(frozen=True)
class Measuring(Wrapper[Tree | Axes]):
    """Counts, and a histogram of users. Args: tree, the kind of the counts; users, the histogram."""

    users: NumbersOfUsers = field()

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.tree.width + BUCKETS

    @property
    def epsilon(self) -> Fraction:
        """Return the epsilon of counts and histogram together."""
        return self.tree.epsilon + self.users.epsilon

    @property
    def axes(self) -> ProductDesign | None:  # type: ignore[override]
        return self.tree.axes if isinstance(self.tree, Axes) else None

    @property
    def keys_as_first_published(self) -> bool:  # type: ignore[override]
        return self.tree.keys_as_first_published

    @property
    def node_levels(self) -> Sequence[int]:
        return self.tree.node_levels

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return {**self.tree.tables, USERS: BUCKETS}

    def rows_after(self, table: str, bins: int) -> int:
        return int(bins == self.design.horizon) if table == USERS else self.tree.rows_after(table, bins)

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        """Release the next bins, and with an epoch's last bin the histogram; see ``Kind.close``."""
        state = MeasuringState.from_bytes(held) if held else MeasuringState(np.zeros(BUCKETS, np.int64), b"")
        own = self.tree.width
        done = self.tree.close(state.counts, counts[:, :own], noise, ahead)
        users, blocks = state.users, done.blocks
        for bin, changes in enumerate(counts[:, own:], start=done.first_bin):
            users = changes if bin % self.users.bins == 0 else users + changes
        if done.first_bin + len(done) == self.design.horizon:
            blocks = (*blocks, Block(USERS, 0, self.users.release(users, noise)[np.newaxis]))
        return replace(done, blocks=blocks, state=MeasuringState(users, done.state).to_bytes())

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        """Return the part of the counts; an epoch's last bin has the histogram, too."""
        part = self.tree.row_part(closed, position)
        if closed.first_bin + position + 1 < self.design.horizon:
            return part
        return part | {USERS: closed.row(USERS, 0).tolist()}

    def vectors(self) -> Mapping[Vector, int]:
        return self.tree.vectors()

    def column_errors(self, bins: Int64Array, columns: ColumnSum) -> list[RowError]:
        return self.tree.column_errors(bins, columns)

    def fields(self) -> dict[str, str]:
        return self.tree.fields() | {MEASURING: self.users.to_json()}

    def at_epsilon(self, asked: Asked) -> Measuring:
        """Return the plan at another epsilon, of which the histogram takes the same part."""
        part = asked["epsilon"] * self.users.epsilon / self.epsilon
        tree = self.tree.at_epsilon(asked | {"epsilon": asked["epsilon"] - part})
        return replace(self, tree=tree, users=replace(self.users, epsilon=part))
