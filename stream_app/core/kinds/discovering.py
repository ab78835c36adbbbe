"""Counts and sums of keys that no list names: a key's columns are released from the row on that names it.

The total and the listed keys are released as in ``axes.py``. Keys that one row names form a group with tables
of its own. These begin with that row, and hold the nodes of all bins since the start of the epoch. So no
table changes its width, and nothing that was shown before is revised. The decisions which keys are named are
made outside (``core/counting/unlisted.py``), with noise from a seed that is drawn before the epoch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from dphist import plan_tree
from dphist.arrays import Int64Array
from dphist.discovery import DiscoveryRule
from dphist.noise import LARGEST_SCALE, NoiseSource
from dphist.privacy import exact
from dphist.product.columns import column_sum
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.tree.anticipating import BinsNoise
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.units import UNITS_PER_COUNT
from stream_app.core.epochs import FoundKeys, thinned_for
from stream_app.core.kinds.axes import CausalAxes, CausalAxesEpoch, totals
from stream_app.core.kinds.kind import Asked, Vector, values_hash
from stream_app.core.kinds.pages import SeedPage
from stream_app.core.kinds.tables import PUBLISHED, Block, Closed, Named, node_table
from stream_app.core.records import EpochRecord

DISCOVERY = "discovery"  # the field of a strategy with the rule
_BETWEEN = "."  # a level, and the number of a group: the name of a table
_SEED_DRAWS = 16  # of about 50 bits of entropy each


@dataclass(frozen=True, slots=True)
class Group:
    """The keys that one row names. Args: position, of the row's bin in its epoch; names.

    Keys that earlier epochs found are one group, which begins before the epoch's first bin.
    """

    position: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Discovering(CausalAxes):
    """Counts over keys, some of which are found. Args: rule; groups, of the keys that were found so far."""

    rule: DiscoveryRule = field(kw_only=True)
    groups: tuple[Group, ...] = field(default=(), kw_only=True)

    seeded = True

    @property
    def epsilon(self) -> Fraction:
        return self.design.epsilon + self.rule.epsilon

    @property
    def delta(self) -> Fraction:
        return self.rule.delta

    def with_found(self, found: Sequence[FoundKeys], first_bin: int) -> Discovering:
        listed = tuple(name for one in found if one.bin < first_bin for name in one.names)
        new = [Group(one.bin - first_bin, one.names) for one in found if one.bin >= first_bin]
        groups = tuple(one for one in (Group(-1, listed), *new) if one.names)
        return self._with_groups(groups) if groups != self.groups else self

    def _with_groups(self, groups: tuple[Group, ...]) -> Discovering:
        keys = self.axes.keys.keys + sum(map(_keys, groups)) - sum(map(_keys, self.groups))
        return replace(self, axes=replace(self.axes, keys=replace(self.axes.keys, keys=keys)), groups=groups)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The columns of the total and the listed keys, then of each group."""
        of_groups = tuple(self.axes.values.buckets * _keys(group) for group in self.groups)
        return self.axes.columns - sum(of_groups), *of_groups

    @property
    def edges(self) -> tuple[list[int], list[int]]:
        """The first column of each table of a level, and the column after its last one."""
        stops = np.cumsum(self.widths).tolist()
        return [0, *stops[:-1]], stops

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return self._tables_where(lambda _level, _position: True)

    def tables_at(self, bin: int) -> Mapping[str, int]:
        done = {level for level, _ in self.completed(bin)}
        return self._tables_where(lambda level, position: level in done or position == bin)

    def _tables_where(self, grows: Callable[[int, int], bool]) -> Mapping[str, int]:
        """Return some tables. Args: grows, by a table's level and the position from which on it has rows."""
        groups = zip((group.position for group in self.groups), self.widths[1:], strict=True)
        levels = self.design.shape.levels
        return (
            {PUBLISHED: 1}
            | {node_table(level): self.widths[0] for level in levels if grows(level, -1)}
            | {
                _table(level, number): width
                for number, (position, width) in enumerate(groups)
                for level in levels
                if grows(level, position)
            }
        )

    def rows_after(self, table: str, bins: int) -> int:
        level, _, group = table.partition(_BETWEEN)
        if group and bins <= self.groups[int(group)].position:
            return 0
        return super().rows_after(level, bins)

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        return self.close_naming(held, counts, noise, Named())

    def close_naming(self, held: bytes, counts: Int64Array, noise: NoiseSource, named: Named) -> Closed:
        product = self.axes
        counter = ProductCounter.restore(product, noise, held) if held else ProductCounter(product, noise)
        releases = counter.push_many(counts)
        columns, state, running = releases.published, counter.to_bytes(), totals(product, releases.published)
        blocks = [Block(PUBLISHED, releases.first_bin, running)]
        for one in releases.levels:
            parts = zip(self.tables_of(one.level), self._parts(one.values), strict=True)
            blocks += [Block(table, one.first_index, values) for table, values in parts if values.size]
        hidden = float(columns[-1] @ column_sum(product, product.keys.keys).weights)
        if named.names:
            past = self._past(named, noise)
            releases = past.push_many(named.counts)
            number, state = len(self.groups), _beside(state, past.snapshot())
            blocks += [Block(_table(one.level, number), 0, one.values) for one in releases.levels]
            hidden -= float(releases.published[-1].sum()) / product.weight
        thinned = thinned_for(hidden / UNITS_PER_COUNT, named.room)
        return Closed(blocks[0].first, running, tuple(blocks), state, columns, named.names, thinned)

    def _past(self, named: Named, noise: NoiseSource) -> TreeCounter:
        """Return a counter for new keys, which has counted nothing yet."""
        position = len(named.counts) - 1
        keys = self._with_groups((*self.groups, Group(position, named.names))).axes.groups[-1]
        return TreeCounter(keys.design, noise, named.counts.shape[1], history=False)

    def tables_of(self, level: int) -> list[str]:
        return [node_table(level), *(_table(level, number) for number in range(len(self.groups)))]

    def _parts(self, values: Int64Array) -> list[Int64Array]:
        """Divide columns by table."""
        return [values[:, start:stop] for start, stop in zip(*self.edges, strict=True)]

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        """Return the hashes of the nodes that the bin completes, and the keys that it names with their past.

        A node's hash is of the columns of all keys that the row shows.
        """
        bin = closed.first_bin + position
        groups = self.groups
        if closed.found and len(groups) == sum(bool(one.names) for one in groups if one.position < bin):
            groups = (*groups, Group(closed.first_bin + len(closed) - 1, closed.found))
        shown = [number for number, group in enumerate(groups) if group.position <= bin]
        hashes, blocks = list[list[object]](), {block.table: block for block in closed.blocks}
        for level, index in self.completed(bin):
            parts = [blocks[node_table(level)], *(blocks[_table(level, number)] for number in shown)]
            row = np.concatenate([part.values[index - part.first] for part in parts])
            hashes.append([level, index, values_hash(row)])
        new = [number for number in shown if groups[number].position == bin]
        if not new:
            return {"nodes": [], "node_hashes": hashes}
        [number] = new
        begun = [level for level in self.design.shape.levels if self.design.shape.widths[level] <= bin + 1]
        past = [closed.rows(_table(level, number)) for level in begun]
        told = {"keys": list(groups[number].names), "past": values_hash(np.concatenate(past))}
        return {"nodes": [], "node_hashes": hashes, "found": told}

    def vectors(self) -> Mapping[Vector, int]:
        """Return none: releases draw their noise themselves, for as many keys as are public by then."""
        return {}

    def draw_pages(self, noise: NoiseSource) -> Iterator[bytes]:
        """Yield the one page, the seed of the epoch's decisions. SECRET."""
        yield hashlib.sha256(noise.discrete_laplace(LARGEST_SCALE, _SEED_DRAWS).tobytes()).digest()

    def page_geometry(self) -> SeedPage:
        return SeedPage(self.design.horizon, 1, ())

    def epoch(self, record: EpochRecord) -> DiscoveringEpoch:
        return DiscoveringEpoch(record, self)

    def fields(self) -> dict[str, str]:
        rule = self.rule
        told = {
            "epsilon": str(rule.epsilon),
            "delta": str(rule.delta),
            "decisions": rule.decisions,
            "per_user": rule.per_user,
        } | ({"least_users": rule.least_users} if rule.least_users > 1 else {})
        return super().fields() | {DISCOVERY: json.dumps(told, sort_keys=True, separators=(",", ":"))}

    def at_epsilon(self, asked: Asked) -> Discovering:
        """Return the plan at another epsilon, of which names take the same part."""
        whole, weight = exact(asked["epsilon"], "epsilon"), asked["max_events"] * self.axes.weight
        names = whole * self.rule.epsilon / self.epsilon
        time = plan_tree(**(asked | {"epsilon": whole - names, "max_events": weight}))
        axes, rule = replace(self.axes, time=time), replace(self.rule, epsilon=names)
        return replace(self, axes=axes, rule=rule)


def read_discovering(text: str, product: str) -> Discovering:
    """Return the kind that ``Discovering.fields`` wrote. Args: its rule and design. Raises: ValueError."""
    told = json.loads(text)
    epsilon, delta = exact(told["epsilon"], "epsilon"), exact(told["delta"], "delta")
    users = told["per_user"], told.get("least_users", 1)
    rule = DiscoveryRule(epsilon, delta, told["decisions"], *users)
    return Discovering(ProductDesign.from_json(product), rule=rule)


class DiscoveringEpoch(CausalAxesEpoch):
    """An epoch over keys, some of which were found: rows of all tables of a level make its columns."""

    def __init__(self, record: EpochRecord, kind: Discovering) -> None:
        super().__init__(record, kind.axes)
        self._waiting: dict[str, list[Int64Array]] = {}  # rows, until all tables of their level have them
        self._parts = {level: kind.tables_of(level) for level in kind.design.shape.levels}
        self._slices = {
            table: (level, slice(start, stop))
            for level, tables in self._parts.items()
            for table, start, stop in zip(tables, *kind.edges, strict=True)
        }

    def held(self, table: str) -> int:
        waiting = sum(map(len, self._waiting.get(table, ())))
        return waiting + super().held(node_table(self._slices[table][0]) if table in self._slices else table)

    def rows(self, table: str) -> Int64Array:
        if table not in self._slices:
            return super().rows(table)
        level, columns = self._slices[table]
        return super().rows(node_table(level))[:, columns]

    def append(self, table: str, values: Int64Array) -> None:
        if table not in self._slices:
            super().append(table, values)
            return
        level, _ = self._slices[table]
        self._waiting.setdefault(table, []).append(values)
        held = [self._waiting.get(part, []) for part in self._parts[level]]
        rows = {sum(map(len, blocks)) for blocks in held}
        if len(rows) == 1:  # rows of all tables come together (``VisibleEpochs.missing``)
            super().append(node_table(level), np.hstack([np.concatenate(blocks) for blocks in held]))
            for part in self._parts[level]:
                del self._waiting[part]


def _keys(group: Group) -> int:
    return len(group.names)


def _table(level: int, group: int) -> str:
    return f"{node_table(level)}{_BETWEEN}{group}"


def _beside(state: bytes, other: CounterSnapshot) -> bytes:
    """Return a counter's state with the columns of another one, which has counted the same bins. SECRET."""
    own = CounterSnapshot.from_bytes(state)
    columns = zip((own.accumulators, own.open_sums), (other.accumulators, other.open_sums), strict=True)
    return CounterSnapshot(own.bin, *(np.hstack(pair) for pair in columns)).to_bytes()
