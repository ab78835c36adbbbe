"""A strategy: everything that decides what is measured, fixed for the life of a stream's epoch.

Two people who hold the same strategy and the same released nodes compute the same answers. It has two
parts: what the user declared (compared with the configuration at every start) and the tree design that
was planned from it once (stored, so that a better planner in a later version changes nothing running).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from dphist.product.design import ProductDesign
from dphist.tree.design import TreeDesign
from dphist.tree.epoch_levels import EpochLevels
from dphist.window import WindowDesign
from stream_app.core.cells import Cells
from stream_app.core.records import OVER_EPOCHS, ROWS, WINDOWS


def canonical_json(value: object) -> bytes:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN. Hashes are taken over it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True)
class Strategy:
    """What one stream measures and how: its declaration and its planned tree.

    Args:
        stream: the stream's name.
        source: the identity under which the ledger adds up (topic or file).
        declared: the public part of the stream's configuration, JSON values only.
        design: the planned tree over time; its horizon is the epoch in bins.
        width: cells per bin (1 without keys and values).
        product: the shares of all axes, where there are keys or values; its tree over time is ``design``.
        window: how the cells are released in tumbling windows; ``design`` then counts all events together.
        over_epochs: the levels over epochs, whose part of epsilon ``design`` leaves to them.
    """

    stream: str
    source: str
    declared: Mapping[str, Any]
    design: TreeDesign
    width: int = 1
    product: ProductDesign | None = None
    window: WindowDesign | None = None
    over_epochs: EpochLevels | None = None

    def __post_init__(self) -> None:
        if self.over_epochs is not None and not (self.width == 1 and self.over_epochs.epoch == self.design):
            raise ValueError("strategy: levels over epochs count the total of streams without axes only")

    @property
    def epsilon(self) -> Fraction:
        """Return what an event costs: the epoch's tree, and all levels over epochs."""
        return self.design.epsilon if self.over_epochs is None else self.over_epochs.epsilon

    def released_width(self, level: int) -> int:
        """Return how many numbers a node of a level holds, a published row (``ROWS``) or a window.

        A complete epoch's row over epochs is that of ``levels_release.py``.
        Over several axes a causal stream publishes the running count of the total only: all else follows
        from the nodes. An anticipating one publishes every column's, and no nodes.
        """
        if level == OVER_EPOCHS and self.over_epochs is not None:
            return 1 + len(self.over_epochs.branching)
        if self.product is None:
            return 1 if self.window is not None and level != WINDOWS else self.width
        return 1 if level == ROWS and self.design.release == "causal" else self.product.columns

    @property
    def released_levels(self) -> Sequence[int]:
        """Return the levels whose nodes are released."""
        shown = self.product is None or self.design.release == "causal"
        return self.design.shape.levels if shown else ()

    @property
    def tile_levels(self) -> Sequence[int]:
        """Return everything that tiles are made of."""
        windows = () if self.window is None else (WINDOWS,)
        return (ROWS, *self.released_levels, *windows, *(() if self.over_epochs is None else (OVER_EPOCHS,)))

    def rows_after(self, level: int, bins: int) -> int:
        """Return how many rows of a level the first so many bins of an epoch release."""
        if level == ROWS:
            return bins
        if level == WINDOWS and self.window is not None:
            return bins // self.window.bins
        if level == OVER_EPOCHS and self.over_epochs is not None:
            return int(bins == self.design.horizon)
        return self.design.shape.completed_count(bins, level) if level in self.released_levels else 0

    @cached_property
    def cells(self) -> Cells:
        """The declared cells of a bin."""
        return Cells.of(self.declared)

    @property
    def axes(self) -> Cells:
        """The keys and buckets that answers over any range of time have: none where windows have them."""
        return self.cells if self.window is None else Cells()

    def to_json(self) -> bytes:
        """Return the canonical text that is stored and hashed."""
        fields = {
            "v": 1,
            "stream": self.stream,
            "source": self.source,
            "declared": dict(self.declared),
            "design": self.design.to_json(),
            "width": self.width,
        }
        if self.product is not None:
            fields["product"] = self.product.to_json()
        if self.window is not None:
            fields["window"] = self.window.to_json()
        if self.over_epochs is not None:
            fields["over_epochs"] = self.over_epochs.to_json()
        return canonical_json(fields)

    @classmethod
    def from_json(cls, text: bytes | str) -> Strategy:
        """Read what ``to_json`` wrote; the same text gives the same object.

        Raises: ValueError for another version, and for a kind of tree that is no longer supported.
        """
        return _parsed(text)

    @cached_property
    def hash(self) -> str:
        """Return the SHA-256 of the canonical text, in hex: every apply, seal and release carries it."""
        return hashlib.sha256(self.to_json()).hexdigest()


@lru_cache(maxsize=256)  # the loops read it with every load, and checking a design takes 0.3 ms
def _parsed(text: bytes | str) -> Strategy:
    fields = json.loads(text)
    if fields.get("v") != 1:
        raise ValueError(
            f"strategy version {fields.get('v')!r} is not known here; use the release that wrote it"
        )
    if "share_parts" in json.loads(fields["design"]):
        raise ValueError("it began with a share of epsilon per node, which is no longer supported")
    design = TreeDesign.from_json(fields["design"])
    return Strategy(
        stream=fields["stream"],
        source=fields["source"],
        declared=fields["declared"],
        design=design,
        width=fields["width"],
        product=ProductDesign.from_json(fields["product"]) if "product" in fields else None,
        window=WindowDesign.from_json(fields["window"], design) if "window" in fields else None,
        over_epochs=EpochLevels.from_json(fields["over_epochs"], design) if "over_epochs" in fields else None,
    )
