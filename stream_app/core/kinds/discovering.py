"""Counts and sums of keys that no list names: a key's columns are released from the row on that names it.

The total and the listed keys are released as in ``axes.py`` or ``toeplitz.py``. Keys that one row names form
a group with tables of its own. These begin with that row, and hold what all bins since the start of the epoch
release. So no table changes its width, and nothing that was shown before is revised. The decisions which keys
are named are made outside (``core/counting/unlisted.py``), with noise from a seed that is drawn before the
epoch.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np

from dphist import plan_tree
from dphist.arrays import Int64Array
from dphist.discovery import DiscoveryRule
from dphist.noise import LARGEST_SCALE, NoiseSource
from dphist.privacy import exact
from dphist.product.columns import column_sum
from dphist.product.counter import ProductCounter
from dphist.product.design import ColumnDesign
from dphist.tree.anticipating import BinsNoise
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.units import UNITS_PER_COUNT
from stream_app.core.epochs import FoundKeys, thinned_for
from stream_app.core.kinds.axes import CausalAxes, CausalAxesEpoch, totals
from stream_app.core.kinds.epoch import AxesEpoch
from stream_app.core.kinds.kind import Asked, Kind, Vector, values_hash
from stream_app.core.kinds.pages import SeedPage
from stream_app.core.kinds.tables import PUBLISHED, Block, Closed, Named, node_table
from stream_app.core.records import EpochRecord

DISCOVERY = "discovery"  # the field of a strategy with the rule
_BETWEEN = "."  # a table, and the number of a group: the name of the group's table
_SEED_DRAWS = 16  # of about 50 bits of entropy each


@dataclass(frozen=True, slots=True)
class Group:
    """The keys that one row names. Args: position, of the row's bin in its epoch; names.

    Keys that earlier epochs found are one group, which begins before the epoch's first bin.
    """

    position: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Discovering(Kind):
    """Counts over keys, some of which are found. Args: rule; groups, of the keys that were found so far."""

    rule: DiscoveryRule = field(kw_only=True)
    groups: tuple[Group, ...] = field(default=(), kw_only=True)

    seeded = True

    @property
    @abstractmethod
    def over_keys(self) -> ColumnDesign:
        """The columns of the total and of all shown keys."""

    @property
    @abstractmethod
    def spread(self) -> Sequence[str]:
        """The tables whose columns are the keys."""

    @abstractmethod
    def with_groups(self, groups: tuple[Group, ...]) -> Self:
        """Return the kind with the columns of these groups."""

    @abstractmethod
    def vouched(self, bin: int, row: Callable[[str, int], Int64Array]) -> dict[str, object]:
        """Return the hashes in a bin's row. Args: row, returns a table's row with the columns of all keys."""

    @abstractmethod
    def counts_at(self, asked: Asked) -> Self:
        """Return the plan of the counts at another epsilon."""

    @property
    def epsilon(self) -> Fraction:
        return self.design.epsilon + self.rule.epsilon

    @property
    def delta(self) -> Fraction:
        return self.rule.delta + (super().delta or 0)

    def with_found(self, found: Sequence[FoundKeys], first_bin: int) -> Self:
        listed = tuple(name for one in found if one.bin < first_bin for name in one.names)
        new = [Group(one.bin - first_bin, one.names) for one in found if one.bin >= first_bin]
        groups = tuple(one for one in (Group(-1, listed), *new) if one.names)
        return self.with_groups(groups) if groups != self.groups else self

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The columns of the total and the listed keys, then of each group."""
        axes = self.over_keys
        of_groups = tuple(axes.values.buckets * _keys(group) for group in self.groups)
        return axes.columns - sum(of_groups), *of_groups

    @property
    def edges(self) -> tuple[list[int], list[int]]:
        """The first column of each part of a table, and the column after its last one."""
        stops = np.cumsum(self.widths).tolist()
        return [0, *stops[:-1]], stops

    @cached_property
    def tables(self) -> Mapping[str, int]:
        return self.tables_where(lambda _table, _position: True)

    def tables_where(self, grows: Callable[[str, int], bool]) -> Mapping[str, int]:
        """Return some tables. Args: grows, by a table and the position from which on its part has rows."""
        groups = zip((group.position for group in self.groups), self.widths[1:], strict=True)
        return (
            {PUBLISHED: 1}
            | {table: self.widths[0] for table in self.spread if grows(table, -1)}
            | {
                part_of(table, number): width
                for number, (position, width) in enumerate(groups)
                for table in self.spread
                if grows(table, position)
            }
        )

    def rows_after(self, table: str, bins: int) -> int:
        whole, _, group = table.partition(_BETWEEN)
        if group and bins <= self.groups[int(group)].position:
            return 0
        return super().rows_after(whole, bins)

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        return self.close_naming(held, counts, noise, Named())

    def parts_of(self, table: str) -> list[str]:
        return [table, *(part_of(table, number) for number in range(len(self.groups)))]

    def divided(self, table: str, first: int, values: Int64Array) -> list[Block]:
        """Divide rows of a table with the columns of all keys. Args: first, the index of the first row."""
        parts = zip(self.parts_of(table), *self.edges, strict=True)
        return [Block(part, first, values[:, start:stop]) for part, start, stop in parts]

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        """Return the hashes of what the bin releases, and the keys that it names with their past.

        A hash is of the columns of all keys that the row shows.
        """
        bin = closed.first_bin + position
        groups = self.groups
        if closed.found and len(groups) == sum(bool(one.names) for one in groups if one.position < bin):
            groups = (*groups, Group(closed.first_bin + len(closed) - 1, closed.found))
        shown = [number for number, group in enumerate(groups) if group.position <= bin]
        blocks = {block.table: block for block in closed.blocks}

        def row(table: str, index: int) -> Int64Array:
            parts = [blocks[table], *(blocks[part_of(table, number)] for number in shown)]
            return np.concatenate([part.values[index - part.first] for part in parts])

        said = {"nodes": [], **self.vouched(bin, row)}
        new = [number for number in shown if groups[number].position == bin]
        if not new:
            return said
        [number] = new
        begun = [table for table in self.spread if super(Discovering, self).rows_after(table, bin + 1)]
        past = [closed.rows(part_of(table, number)) for table in begun]
        facts = {"keys": list(groups[number].names), "past": values_hash(np.concatenate(past))}
        return said | {"found": facts}

    def vectors(self) -> Mapping[Vector, int]:
        """Return none: releases draw their noise themselves, for as many keys as are public by then."""
        return {}

    def draw_pages(self, noise: NoiseSource) -> Iterator[bytes]:
        """Yield the one page, the seed of the epoch's decisions. SECRET."""
        yield hashlib.sha256(noise.discrete_laplace(LARGEST_SCALE, _SEED_DRAWS).tobytes()).digest()

    def page_geometry(self) -> SeedPage:
        return SeedPage(self.design.horizon, 1, ())

    def of_rule(self) -> dict[str, str]:
        """Return the field of the rule, as ``fields``."""
        rule = self.rule
        facts = {
            "epsilon": str(rule.epsilon),
            "delta": str(rule.delta),
            "decisions": rule.decisions,
            "per_user": rule.per_user,
        } | ({"least_users": rule.least_users} if rule.least_users > 1 else {})
        return {DISCOVERY: json.dumps(facts, sort_keys=True, separators=(",", ":"))}

    def at_epsilon(self, asked: Asked) -> Self:
        """Return the plan at another epsilon, of which names take the same part."""
        whole = exact(asked["epsilon"], "epsilon")
        names = whole * self.rule.epsilon / self.epsilon
        counts = self.counts_at(asked | {"epsilon": whole - names})
        return replace(counts, rule=replace(self.rule, epsilon=names))


def read_rule(text: str) -> DiscoveryRule:
    """Return the rule that ``Discovering.of_rule`` wrote. Raises: ValueError."""
    facts = json.loads(text)
    epsilon, delta = exact(facts["epsilon"], "epsilon"), exact(facts["delta"], "delta")
    users = facts["per_user"], facts.get("least_users", 1)
    return DiscoveryRule(epsilon, delta, facts["decisions"], *users)


@dataclass(frozen=True)
class DiscoveringTree(Discovering, CausalAxes):
    """Keys with a tree over time each."""

    @property
    def over_keys(self) -> ColumnDesign:
        return self.axes

    def fields(self) -> dict[str, str]:
        return super().fields() | self.of_rule()

    @property
    def spread(self) -> list[str]:
        return [node_table(level) for level in self.design.shape.levels]

    def with_groups(self, groups: tuple[Group, ...]) -> Self:
        keys = self.axes.keys.keys + sum(map(_keys, groups)) - sum(map(_keys, self.groups))
        return replace(self, axes=replace(self.axes, keys=replace(self.axes.keys, keys=keys)), groups=groups)

    def tables_at(self, bin: int) -> Mapping[str, int]:
        done = {node_table(level) for level, _ in self.completed(bin)}
        return self.tables_where(lambda table, position: table in done or position == bin)

    def close_naming(self, held: bytes, counts: Int64Array, noise: NoiseSource, named: Named) -> Closed:
        product = self.axes
        counter = ProductCounter.restore(product, noise, held) if held else ProductCounter(product, noise)
        releases = counter.push_many(counts)
        columns, state, running = releases.published, counter.to_bytes(), totals(product, releases.published)
        blocks = [Block(PUBLISHED, releases.first_bin, running)]
        for one in releases.levels:
            if one.values.size:
                blocks += self.divided(node_table(one.level), one.first_index, one.values)
        hidden = float(columns[-1] @ column_sum(product, product.keys.keys).weights)
        if named.names:
            past = self._past(named, noise)
            releases = past.push_many(named.counts)
            number, state = len(self.groups), _beside(state, past.snapshot())
            blocks += [
                Block(part_of(node_table(one.level), number), 0, one.values) for one in releases.levels
            ]
            hidden -= float(releases.published[-1].sum()) / product.weight
        thinned = thinned_for(hidden / UNITS_PER_COUNT, named.room)
        return Closed(blocks[0].first, running, tuple(blocks), state, columns, named.names, thinned)

    def _past(self, named: Named, noise: NoiseSource) -> TreeCounter:
        """Return a counter for new keys, which has counted nothing yet."""
        position = len(named.counts) - 1
        keys = self.with_groups((*self.groups, Group(position, named.names))).axes.groups[-1]
        return TreeCounter(keys.design, noise, named.counts.shape[1], history=False)

    def vouched(self, bin: int, row: Callable[[str, int], Int64Array]) -> dict[str, object]:
        nodes = self.completed(bin)
        return {"node_hashes": [[one, at, values_hash(row(node_table(one), at))] for one, at in nodes]}

    def epoch(self, record: EpochRecord) -> CausalFoundEpoch:
        return CausalFoundEpoch(record, self.axes).divided_as(self)

    def counts_at(self, asked: Asked) -> Self:
        weight = asked["max_events"] * self.axes.weight
        return replace(self, axes=replace(self.axes, time=plan_tree(**(asked | {"max_events": weight}))))


class FoundEpoch(AxesEpoch):
    """An epoch over keys, some of which were found: rows of all parts of a table make its columns."""

    def divided_as(self, kind: Discovering) -> Self:
        """Take the parts of a kind's tables; call it once."""
        self._waiting: dict[str, list[Int64Array]] = {}  # rows, until all parts of their table have them
        self._parts = {table: kind.parts_of(table) for table in kind.spread}
        self._slices = {
            part: (table, slice(start, stop))
            for table, parts in self._parts.items()
            for part, start, stop in zip(parts, *kind.edges, strict=True)
        }
        return self

    def held(self, table: str) -> int:
        waiting = sum(map(len, self._waiting.get(table, ())))
        return waiting + super().held(self._slices[table][0] if table in self._slices else table)

    def rows(self, table: str) -> Int64Array:
        if table not in self._slices:
            return super().rows(table)
        whole, columns = self._slices[table]
        return super().rows(whole)[:, columns]

    def append(self, table: str, values: Int64Array) -> None:
        if table not in self._slices:
            super().append(table, values)
            return
        whole, _ = self._slices[table]
        self._waiting.setdefault(table, []).append(values)
        held = [self._waiting.get(part, []) for part in self._parts[whole]]
        rows = {sum(map(len, blocks)) for blocks in held}
        if len(rows) == 1:  # rows of all parts come together (``VisibleEpochs.missing``)
            super().append(whole, np.hstack([np.concatenate(blocks) for blocks in held]))
            for part in self._parts[whole]:
                del self._waiting[part]


class CausalFoundEpoch(FoundEpoch, CausalAxesEpoch):
    """An epoch of trees."""


def _keys(group: Group) -> int:
    return len(group.names)


def part_of(table: str, group: int) -> str:
    """Return the name of the table with a group's columns of a table."""
    return f"{table}{_BETWEEN}{group}"


def _beside(state: bytes, other: CounterSnapshot) -> bytes:
    """Return a counter's state with the columns of another one, which has counted the same bins. SECRET."""
    own = CounterSnapshot.from_bytes(state)
    columns = zip((own.accumulators, own.open_sums), (other.accumulators, other.open_sums), strict=True)
    return CounterSnapshot(own.bin, *(np.hstack(pair) for pair in columns)).to_bytes()
