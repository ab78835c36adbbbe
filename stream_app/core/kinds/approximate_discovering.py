"""Approximate counts of keys that no list names: a Toeplitz mechanism for each key, and one for the total.

A key's past is released with the row that names it: as many values with noise as there were bins, of which
the running counts are published. Noise is drawn in that step, and stored with it, as for all other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.noise import NoiseSource
from dphist.product.approximate import ToeplitzColumns
from dphist.snapshots import Snapshot
from dphist.toeplitz import ToeplitzDesign
from dphist.toeplitz.estimate import prefix_variances
from dphist.units import UNITS_PER_COUNT
from stream_app.core.epochs import thinned_for
from stream_app.core.kinds.axes import PublishedAxesEpoch
from stream_app.core.kinds.discovering import (
    DISCOVERY,
    Discovering,
    FoundEpoch,
    Group,
    part_of,
    read_rule,
)
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.kind import Asked, values_hash
from stream_app.core.kinds.tables import PUBLISHED, Block, Closed, Named
from stream_app.core.kinds.toeplitz import TOEPLITZ_KEYS, Toeplitz, at_epsilon, joined, of_width, released
from stream_app.core.records import EpochRecord

TOTAL = "toeplitz_total"  # the field of a strategy with the mechanism of the total


@dataclass(frozen=True)
class FoundState(Snapshot):
    """The state between two closings. SECRET. Args: total and keys, as ``toeplitz.released`` returns them."""

    total: bytes = field(repr=False)
    keys: bytes = field(repr=False)

    code, noun = b"dpTF", "counter state of approximate found keys"


@dataclass(frozen=True)
class DiscoveringToeplitz(Discovering, Toeplitz):
    """Approximate counts over keys, some of which are found.

    Args: toeplitz, of each key, with the width of all columns that an epoch may show; total, of all events,
        with the same width; listed, the number of listed keys.
    Guarantee: all counts together are (epsilon, delta)-DP, with the epsilon and delta that both designs have:
        each design spends its share of mu^2. The cost of the rule for names is added.
    Raises: ValueError for designs that do not share one budget.
    """

    total: ToeplitzDesign = field(kw_only=True)
    listed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        both = self.toeplitz, self.total
        budgets = {(one.epsilon, one.delta, one.width, one.horizon, one.neighbours) for one in both}
        if (
            len(budgets) > 1
            or sum(one.share for one in both) > 1
            or self.total.caps.l1 < self.toeplitz.caps.l1
        ):
            raise ValueError("strategy: the total and the keys do not share one budget")

    @property
    def spread(self) -> tuple[str]:
        return (PUBLISHED,)

    @cached_property
    def columns(self) -> ToeplitzColumns:
        found = sum(len(group.names) for group in self.groups)
        return ToeplitzColumns(self.toeplitz, self.total, self.listed + found)

    @property
    def over_keys(self) -> ToeplitzColumns:
        return self.columns

    @property
    def mu(self) -> None:  # type: ignore[override]
        """None: the cost of names is not Gaussian."""

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.columns.cells

    def with_groups(self, groups: tuple[Group, ...]) -> DiscoveringToeplitz:
        return replace(self, groups=groups)

    def close_naming(self, held: bytes, counts: Int64Array, noise: NoiseSource, named: Named) -> Closed:
        before = FoundState.from_bytes(held) if held else FoundState(b"", b"")
        every, keys = counts.sum(axis=1, keepdims=True), counts[:, :-1]
        first_bin, running, total = released(of_width(self.total, 1), before.total, every, noise)
        columns, state = running, b""
        if keys.shape[1]:
            _, shown, state = released(of_width(self.toeplitz, keys.shape[1]), before.keys, keys, noise)
            columns = np.hstack([running, shown])
        blocks = self.divided(PUBLISHED, first_bin, columns)
        hidden = int(running[-1, 0] - columns[-1, 1:].sum())
        if named.names:
            _, past, of_past = released(of_width(self.toeplitz, len(named.names)), b"", named.counts, noise)
            blocks.append(Block(part_of(PUBLISHED, len(self.groups)), 0, past))
            state = joined(state, of_past) if state else of_past
            hidden -= int(past[-1].sum())
        thinned = thinned_for(hidden / UNITS_PER_COUNT, named.room)
        after = FoundState(total, state).to_bytes()
        return Closed(first_bin, running, tuple(blocks), after, columns, named.names, thinned)

    def vouched(self, bin: int, row: Callable[[str, int], Int64Array]) -> dict[str, object]:
        return {"columns_hash": values_hash(row(PUBLISHED, bin))}

    def running_variances(self, bins: int) -> FloatArray:
        return prefix_variances(self.total, np.arange(1, bins + 1))

    def epoch(self, record: EpochRecord) -> PublishedFoundEpoch:
        return PublishedFoundEpoch(record, self.columns, self.toeplitz).divided_as(self)

    def fields(self) -> dict[str, str]:
        return super().fields() | {TOTAL: self.total.to_json()} | self.of_rule()

    def counts_at(self, asked: Asked) -> DiscoveringToeplitz:
        keys, total = (at_epsilon(one, asked["epsilon"]) for one in (self.toeplitz, self.total))
        return replace(self, toeplitz=keys, total=total)


def read_discovering_toeplitz(fields: Mapping[str, str], width: int) -> DiscoveringToeplitz:
    """Return the kind that ``fields`` wrote. Args: width, of the listed keys and the rest."""
    keys, total = (ToeplitzDesign.from_json(fields[name]) for name in (TOEPLITZ_KEYS, TOTAL))
    return DiscoveringToeplitz(keys, True, rule=read_rule(fields[DISCOVERY]), total=total, listed=width - 1)


class PublishedFoundEpoch(FoundEpoch, PublishedAxesEpoch):
    """An epoch whose rows are final."""

    @property
    def published(self) -> Int64Array:
        return EpochView.rows(self, PUBLISHED)
