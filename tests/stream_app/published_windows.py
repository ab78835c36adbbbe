"""A stream of tumbling windows that a test releases through the store, for pages and answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from msgspec import structs

from dphist import plan_tree
from dphist.arrays import Int64Array
from dphist.tree.design import TreeDesign
from dphist.windows.design import WindowDesign
from stream_app.core.counting.keys import Axis
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy
from tests.stream_app.published_axes import PublishedAxes

SHARE = Fraction(4, 5)


@dataclass
class PublishedWindows(PublishedAxes):
    """Windows of delays: one histogram per carrier, or the carriers' counts.

    ``close_cells`` works as in ``PublishedAxes``.
    """

    name: str = "windows"
    mechanism: str = "hb"
    window_bins: int = 24
    over_keys: bool = False  # False: over the value

    def __post_init__(self) -> None:
        super().__post_init__()
        keys, value = self.axes()
        window: dict[str, Any] = {
            "mode": "window",
            "window_us": self.window_bins * self.bin_us,
            "mechanism": self.mechanism,
            "share": SHARE,
        }
        axes: dict[str, Axis] = {"keys": keys, "value": value}
        if self.over_keys:
            axes = {"keys": structs.replace(keys, **window)}
        else:
            axes["value"] = structs.replace(value, **window)
        said = self.declared(**axes)
        whole = plan_tree(self.epoch_bins, self.epsilon, branching=self.branching)
        assert isinstance(whole, TreeDesign)
        time = replace(whole, shares=tuple(share * (1 - SHARE) for share in whole.shares))
        histograms, buckets = (1, self.keys) if self.over_keys else (self.keys, self.buckets)
        design = WindowDesign(time, self.window_bins, histograms, buckets, self.mechanism, SHARE)
        self.strategy = Strategy(self.name, said, kind_of(design))

    async def close_cells(self, cells: Int64Array, show: bool = True) -> None:
        """Count, seal and release the next bins. Args: cells, shape (bins, keys, buckets)."""
        cells = cells.sum(axis=2, keepdims=True) if self.over_keys else np.asarray(cells)
        await super().close_cells(cells, show)
