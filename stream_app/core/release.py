"""From exact counts of sealed bins to a release: noisy nodes, chain rows, tiles, the counter's new state.

Exact counts enter here and leave as noise-protected nodes, or inside the secret snapshot. A row is the
message of one bin: its bytes are what every output repeats, and each holds the hash of the row before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dphist.noise import NoiseSource
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import live_estimate
from dphist.tree.interval import half_widths
from dphist.tree.law import LawTable
from dphist.tree.release import BinReleases
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.records import ROWS, Int64Array, Release, StreamState, TileAppend
from stream_app.core.strategy import Strategy, canonical_json
from stream_app.core.tiles import tile_appends

CONFIDENCE = 0.95


def row_hash(row: bytes) -> str:
    """Return the hash under which the next row of the chain names this one."""
    return hashlib.sha256(row).hexdigest()


@dataclass(frozen=True, slots=True)
class RowLink:
    """Where a row stands in its chain: what is needed to go on from it."""

    seq: int
    epoch: int
    bin: int
    prev: str
    hash: str

    @classmethod
    def of(cls, row: bytes) -> RowLink:
        """Read a row's place in the chain."""
        message = json.loads(row)
        return cls(message["seq"], message["epoch"], message["bin"], message["prev"], row_hash(row))


def make_release(
    state: StreamState, strategy: Strategy, counts: Int64Array, noise: NoiseSource, nonce: str
) -> Release:
    """Noise the next sealed bins of the running epoch.

    Guarantee: the releases of one epoch together are epsilon-DP as the design says, provided that the store
        accepts one release after each head and nothing of a refused one is ever shown.
    Args:
        state: the state to go on from, with the counter after ``released_bin``.
        counts: exact counts of the bins after it, shape (bins, width). SECRET.
        nonce: names this attempt, so that its rows differ from those of any other.
    Raises: ValueError for bins beyond the epoch; never showing a count.
    Cost: one call of the noise source a level; about 200 microseconds a bin for its row.
    """
    counter = _restored(state, strategy, noise)
    releases = counter.push_many(counts)
    first_bin = state.released_bin + 1
    rows = list(_chained(state, strategy, releases, nonce))
    return Release(
        strategy_hash=strategy.hash,
        epoch=state.epoch.epoch,
        expected_seq=state.seq,
        expected_head=state.head,
        first_bin=first_bin,
        last_bin=first_bin + len(releases) - 1,
        rows=rows,
        head=row_hash(rows[-1]),
        tiles=_tiles(state.epoch.epoch, releases),
        counter=counter.snapshot().to_bytes(),
    )


def _restored(state: StreamState, strategy: Strategy, noise: NoiseSource) -> TreeCounter:
    if not state.counter:
        return TreeCounter(strategy.design, noise, strategy.width, history=False)
    return TreeCounter.restore(strategy.design, noise, CounterSnapshot.from_bytes(state.counter))


def _tiles(epoch: int, releases: BinReleases) -> list[TileAppend]:
    tiles = tile_appends(epoch, ROWS, releases.first_bin, releases.published)
    for level in releases.levels:
        tiles += tile_appends(epoch, level.level, level.first_index, level.values)
    return tiles


def _chained(state: StreamState, strategy: Strategy, releases: BinReleases, nonce: str) -> Iterator[bytes]:
    """Yield the rows of these bins, each naming the one before."""
    declaration, prev = Declaration.of(strategy), state.head
    binning = declaration.binning
    measured = _measured(strategy.design, releases)
    for position in range(len(releases)):
        bin = state.released_bin + 1 + position
        message = {
            "v": 1,
            "seq": state.seq + 1 + position,
            "stream": strategy.stream,
            "epoch": state.epoch.epoch,
            "bin": bin,
            "start": format_instant(binning.start_us(bin)),
            "end": format_instant(binning.end_us(bin)),
            **next(measured),
            "confidence": CONFIDENCE,
            "private": declaration.private,
            "strategy": strategy.hash,
            "prev": prev,
            "nonce": nonce,
        }
        row = canonical_json(message)
        prev = row_hash(row)
        yield row


def _measured(design: TreeDesign, releases: BinReleases) -> Iterator[dict[str, Any]]:
    """Yield what each bin makes public: its nodes, its published row, the running count with its error."""
    bins = [releases.bin(position) for position in range(len(releases))]
    running = [live_estimate(design, release.bin + 1, release.published) for release in bins]
    # All at once: in a table an interval costs a twentieth of one alone.
    reaches, _ = half_widths(LawTable.of([live.law for live in running]), CONFIDENCE)
    for release, live, half_width in zip(bins, running, reaches.tolist(), strict=True):
        reach = half_width + live.rounding
        yield {
            "estimate": _per_cell(live.value),
            "variance": live.variance,
            "interval": [[cell - reach, cell + reach] for cell in _per_cell(live.value)],
            "published": release.published.tolist(),
            "nodes": [[node.level, node.index, node.values.tolist()] for node in release.nodes],
        }


def _per_cell(value: Any) -> list[float]:
    return [value] if isinstance(value, float) else [float(cell) for cell in value]
