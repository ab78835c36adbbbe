"""Rebuilds the tiles and epochs that a store has lost from the rows of a witness.

A row of a tree over time holds every value that its bin made public, so tiles follow from rows. Other rows
hold only hashes of values; the witness keeps these values beside them. Older versions did not keep them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from stream_app.core.epochs import FoundKeys
from stream_app.core.kinds.tables import PUBLISHED, Block, node_table
from stream_app.core.records import EpochRecord, WitnessRow
from stream_app.core.releases.row_values import parted, strategies_in, unpacked
from stream_app.core.releases.tiles import tile_appends
from stream_app.core.segments.strategies import strategy_before
from stream_app.core.store_writes import TileAppend
from stream_app.core.strategy import Strategy

ROWS_A_STEP = 256
STEP_BYTES = 4_000_000
ENDED_EARLY = "it ended early; the reason was lost with the store"


@dataclass(frozen=True, slots=True)
class Restored:
    """Rows that go back into the store in one step: consecutive rows of one epoch.

    Args: after_seq, the seq of the last row that the store must already hold, 0 for none; epoch, as it is if
        it ends with the last of these rows.
    """

    strategy_hash: str
    after_seq: int
    rows: Sequence[tuple[int, bytes]]
    tiles: Sequence[TileAppend]
    epoch: EpochRecord


@dataclass(frozen=True, slots=True)
class WitnessedStream:
    """A stream as its witness knows it: settings, epochs, and the rows that a lost store gets back.

    Args: rows, all rows of the witness, in order; strategies, of all rows, by hash.
    """

    rows: Sequence[WitnessRow]
    strategies: Mapping[str, Strategy]

    @classmethod
    def of(cls, rows: Sequence[WitnessRow], known: Iterable[Strategy] = ()) -> WitnessedStream:
        """Read a witness.

        Args: known, the strategies of rows that hold no settings, as older builds wrote them.
        Raises: ValueError if the strategy of a row is neither in the rows nor known.
        """
        by_hash, found = {one.hash: one for one in known}, dict[str, Strategy]()
        by_hash |= {one.hash: one for one in strategies_in(rows, by_hash)}
        for row in reversed(rows):
            message = json.loads(row.row)
            strategy = by_hash.get(message["strategy"])
            if strategy is None:
                raise ValueError("the witness holds releases of another strategy")
            found[strategy.hash] = strategy
            if (said := message.get("changed")) is not None:
                before = strategy_before(strategy, said)
                by_hash[before.hash] = before
        return cls(rows, found)

    @property
    def last(self) -> Strategy | None:
        """The strategy of the last row; None if there is no row."""
        return self.strategies[json.loads(self.rows[-1].row)["strategy"]] if self.rows else None

    @property
    def epochs(self) -> list[EpochRecord]:
        """The epochs of all rows, as they began; with a cap per user each ends at the end of a window."""
        epochs: list[EpochRecord] = []
        messages = ((row.seq, json.loads(row.row)) for row in self.rows)
        for epoch, group in groupby(messages, lambda one: one[1]["epoch"]):
            of_epoch = list(group)
            (seq, first), (_, last) = of_epoch[0], of_epoch[-1]
            strategy = self.strategies[first["strategy"]]
            declared, horizon = strategy.declared, strategy.time.horizon
            bins = declared.epoch_bins(first["bin"], epochs[-1] if epochs else None, horizon)
            if last["bin"] >= first["bin"] + bins:
                bins = horizon  # an older version began an epoch of a whole window after the store was lost
            changed_from = first.get("changed", {}).get("from")
            record = EpochRecord(epoch, first["bin"], bins, seq, first["strategy"], changed_from=changed_from)
            found = (one for _, row in of_epoch for one in _found(row))
            epochs.append(replace(record, found=tuple(found)))
        return epochs

    def restored(self, after_seq: int, running: str) -> Iterator[Restored]:
        """Yield the steps that put missing rows back, in order.

        Args: after_seq, the last row that the store holds; running, the hash of the stream's strategy.
        Raises: ValueError if the witness lacks values, or holds values that differ from the rows' hashes.
        """
        lost = [row for row in self.rows if row.seq > after_seq]
        holds_values = all(strategy.kind.rows_hold_values for strategy in self.strategies.values())
        if not (holds_values or all(parted(row)[0] for row in lost)):
            raise ValueError("the witness lacks values: an older version wrote it, or its rows are too wide")
        epochs = {epoch.epoch: epoch for epoch in self.epochs}
        for number, of_epoch in groupby(lost, lambda row: int(json.loads(row.row)["epoch"])):
            epoch = epochs[number]
            strategy = self.strategies[epoch.strategy_hash]
            for step in _steps(list(of_epoch)):
                last_bin = json.loads(step[-1].row)["bin"]
                complete = last_bin == epoch.first_bin + epoch.bins - 1
                yield Restored(
                    strategy_hash=running,
                    after_seq=after_seq,
                    rows=[(row.seq, row.row) for row in step],
                    tiles=_tiles(strategy, epoch, step),
                    epoch=replace(
                        epoch,
                        last_bin=last_bin,
                        end_reason="complete" if complete else ENDED_EARLY,
                        found=tuple(one for one in epoch.found if one.bin <= last_bin),
                    ),
                )
                after_seq = step[-1].seq


def _steps(rows: Sequence[WitnessRow]) -> Iterator[Sequence[WitnessRow]]:
    start, size = 0, 0
    for place, row in enumerate(rows):
        size += len(row.values)
        if place > start and (place - start == ROWS_A_STEP or size > STEP_BYTES):
            yield rows[start:place]
            start, size = place, len(row.values)
    if rows[start:]:
        yield rows[start:]


def _found(row: Mapping[str, Any]) -> Iterator[FoundKeys]:
    """Yield the keys in a row: keys that earlier epochs found, then keys that this row names."""
    for bin, names, thinned in row.get("listed", ()):
        yield FoundKeys(bin, tuple(names), thinned)
    names, thinned = row.get("found", {}).get("keys", ()), row.get("thinned", 0)
    if names or thinned:
        yield FoundKeys(row["bin"], tuple(names), thinned)


def _tiles(strategy: Strategy, epoch: EpochRecord, rows: Sequence[WitnessRow]) -> list[TileAppend]:
    blocks: dict[str, list[Block]] = {table: [] for table in strategy.with_found(epoch).kind.tables}
    for row in rows:
        for block in _blocks_of(strategy, epoch, row):
            blocks[block.table].append(block)
    tiles: list[TileAppend] = []
    for table, found in blocks.items():
        if found:
            values = np.concatenate([block.values for block in found])
            tiles += tile_appends(epoch.epoch, table, found[0].first, values)
    return tiles


def _blocks_of(strategy: Strategy, epoch: EpochRecord, row: WitnessRow) -> Iterable[Block]:
    if not strategy.kind.rows_hold_values:
        return unpacked(strategy, epoch, row.row, row.values)
    message = json.loads(row.row)
    published = np.array([message["published"]], np.int64)
    nodes = ((node_table(level), index, [values]) for level, index, values in message["nodes"])
    return [
        Block(PUBLISHED, message["bin"] - epoch.first_bin, published),
        *(Block(table, index, np.array(values, np.int64)) for table, index, values in nodes),
    ]
