"""From the rows of a witness back to what readers need: tiles and epochs that a store has lost.

A row of a running count holds every value that its bin made public, so tiles follow from rows. Rows over keys
and values, of windows and of levels over epochs hold totals and hashes: what the store lost of these is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from stream_app.core.declaration import Declaration
from stream_app.core.kinds.tables import PUBLISHED, node_table
from stream_app.core.records import EpochRecord, TileAppend
from stream_app.core.strategy import Strategy
from stream_app.core.tiles import tile_appends

ROWS_A_STEP = 256
ENDED_EARLY = "it ended early; the reason was lost with the store"


@dataclass(frozen=True, slots=True)
class Restored:
    """Rows that go back into the store in one step: they follow one another in one epoch.

    Args:
        after_seq: the last row that the store must hold before; 0: none.
        epoch: that of the rows, ended at the last of them.
    """

    strategy_hash: str
    after_seq: int
    rows: Sequence[tuple[int, bytes]]
    tiles: Sequence[TileAppend]
    epoch: EpochRecord


def holds_all(strategy: Strategy) -> bool:
    """Return whether a stream's rows hold everything that its readers need."""
    return strategy.kind.rows_hold_values


def restored(strategy: Strategy, rows: Sequence[tuple[int, bytes]], after_seq: int) -> Iterator[Restored]:
    """Yield the steps that put rows back, in order.

    Args: rows, all rows of the witness; after_seq, the last one that the store holds.
    Raises: ValueError where ``holds_all`` is not so.
    """
    if not holds_all(strategy):
        raise ValueError(f"stream {strategy.stream}: its rows do not hold what its tiles held")
    messages = [(seq, row, json.loads(row)) for seq, row in rows]
    for epoch in epochs_of(strategy, rows):
        lost = [one for one in messages if one[2]["epoch"] == epoch.epoch and one[0] > after_seq]
        for start in range(0, len(lost), ROWS_A_STEP):
            step = lost[start : start + ROWS_A_STEP]
            last_bin = step[-1][2]["bin"]
            complete = last_bin == epoch.first_bin + epoch.bins - 1
            yield Restored(
                strategy_hash=strategy.hash,
                after_seq=after_seq,
                rows=[(seq, row) for seq, row, _ in step],
                tiles=_tiles(epoch, [message for _, _, message in step]),
                epoch=replace(epoch, last_bin=last_bin, end_reason="complete" if complete else ENDED_EARLY),
            )
            after_seq = step[-1][0]


def epochs_of(strategy: Strategy, rows: Sequence[tuple[int, bytes]]) -> list[EpochRecord]:
    """Return the epochs of all rows, as they began: under a cap of users, each ends where a window does."""
    declaration, horizon = Declaration.of(strategy), strategy.design.horizon
    epochs: list[EpochRecord] = []
    messages = ((seq, json.loads(row)) for seq, row in rows)
    for epoch, group in groupby(messages, lambda one: one[1]["epoch"]):
        of_epoch = list(group)
        (seq, first), (_, last) = of_epoch[0], of_epoch[-1]
        bins = horizon
        if epochs and declaration.per_user is not None:
            left = declaration.windows(epochs[-1], horizon).left(first["bin"])
            # An older version began a whole window after the store was lost.
            bins = left if last["bin"] < first["bin"] + left else horizon
        epochs.append(EpochRecord(epoch, first["bin"], bins, seq, first["strategy"]))
    return epochs


def _tiles(epoch: EpochRecord, messages: Sequence[dict[str, Any]]) -> list[TileAppend]:
    """Return what the release of these rows appended to tiles."""
    published = np.array([message["published"] for message in messages], dtype=np.int64)
    tiles = tile_appends(epoch.epoch, PUBLISHED, messages[0]["bin"] - epoch.first_bin, published)
    nodes: dict[int, list[tuple[int, list[int]]]] = {}
    for message in messages:
        for level, index, values in message["nodes"]:
            nodes.setdefault(level, []).append((index, values))
    for level in sorted(nodes):
        column = np.array([values for _, values in nodes[level]], dtype=np.int64)
        tiles += tile_appends(epoch.epoch, node_table(level), nodes[level][0][0], column)
    return tiles
