"""The records of a slice that were assigned a bin, and what the store counts of them together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from stream_app.core.counting.bounding import KeyedPlaces, UserRecords
from stream_app.core.counting.cells import Cells
from stream_app.core.store_writes import Users


@dataclass(frozen=True)
class CellRows:
    """Records that were assigned a bin, with their users for capped streams."""

    bins: Int64Array
    places: Int64Array
    cells: Cells
    users: UserRecords | None = None
    deltas: Int64Array | None = None  # the number that each record adds; None: 1
    keyed: KeyedPlaces | None = None  # how the store keeps places of users; None: as they are

    @cached_property
    def keys(self) -> Int64Array:
        """A number for each record; the store counts records with equal numbers together."""
        if self.users is None:
            return self.bins * self.cells.width + self.cells.keys_of(self.places)
        # The cap chooses among a user's records, so the store keeps records of different amounts apart.
        _, places = np.unique(self.places, return_inverse=True)
        return self.users.keys(self.bins * (len(places) + 1) + places)

    @property
    def weight(self) -> int:
        """The number that each record adds in the store; for capped users the store first counts records."""
        return self.cells.weight if self.users is None else 1

    def aggregated(
        self, some: Int64Array | slice
    ) -> tuple[Int64Array, NDArray[Any], Int64Array, Users | None]:
        """Return bins, cells, deltas and users of some records, with one row per distinct key."""
        if self.users is None:
            deltas = None if self.deltas is None else self.deltas[some]
            return *self.cells.added(self.bins[some], self.places[some], deltas), None
        _, firsts, counts = np.unique(self.keys[some], return_index=True, return_counts=True)
        rows = np.arange(len(self.bins))[some][firsts]
        places = self.places[rows] if self.keyed is None else self.keyed.of(self.places[rows])
        return self.bins[rows], places, counts, self.users.users(rows)
