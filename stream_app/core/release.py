"""From exact counts of sealed bins to a release: noisy nodes, chain rows, tiles, the counter's new state.

Exact counts enter here and leave as noise-protected nodes, or inside the secret snapshot. A row is the
message of one bin: its bytes are what every output repeats, and each holds the hash of the row before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dphist.noise import NoiseSource
from dphist.tree.anticipating_step import AnticipatingSnapshot, BinsNoise, release_bins
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.tree.epoch_levels import EpochLevels
from dphist.tree.release import BinReleases, LevelRelease
from dphist.tree.upward import UNITS_PER_COUNT
from dphist.window import WindowDesign
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.levels_release import EpochsState, close_epoch, nodes_of_row
from stream_app.core.product_release import (
    close_bins,
    columns_hash,
    publish_columns,
    totals,
)
from stream_app.core.records import OVER_EPOCHS, ROWS, Int64Array, Release, StreamState, TileAppend
from stream_app.core.row_errors import CONFIDENCE, row_errors
from stream_app.core.strategy import Strategy, canonical_json
from stream_app.core.tiles import tile_appends
from stream_app.core.window_release import close_windows, joined_state, split_state


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
    state: StreamState,
    strategy: Strategy,
    counts: Int64Array,
    noise: NoiseSource | BinsNoise,
    nonce: str,
    late_noise: NoiseSource | None = None,
) -> Release:
    """Noise the next sealed bins of the running epoch.

    Guarantee: the releases of one epoch together are epsilon-DP as the design says, provided that the store
        accepts one release after each head and nothing of a refused one is ever shown.
    Args:
        state: the state to go on from, with the counter after ``released_bin``.
        counts: exact counts of the bins after it, shape (bins, width). SECRET.
        noise: where to draw from (causal), or what was drawn for these very bins before the epoch.
        nonce: names this attempt, so that its rows differ from those of any other. SECRET: it would tell
            which bins were released together, and so how fast their events were read.
        late_noise: where that is drawn from which is drawn as it is released, whatever was drawn ahead: of
            windows and of nodes over epochs.
    Raises: ValueError for bins beyond the epoch; never showing a count.
    Cost: causal, one call of the noise source a level; about 200 microseconds a bin for its row.
    """
    releases, counter = _closed(strategy, state.counter, counts, noise, late_noise)
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
        counter=counter,
    )


def _closed(
    strategy: Strategy,
    held: bytes,
    counts: Int64Array,
    noise: NoiseSource | BinsNoise,
    late_noise: NoiseSource | None,
) -> tuple[BinReleases, bytes]:
    """Return what these bins make public, and the counter's new state."""
    if strategy.window is None and strategy.over_epochs is None:
        return _counted(strategy, held, counts, noise)
    if late_noise is None:
        raise ValueError("late_noise: this stream has windows or levels over epochs, which need their own")
    if strategy.over_epochs is not None:
        return _counted_over_epochs(strategy, strategy.over_epochs, held, counts, noise, late_noise)
    assert strategy.window is not None
    tree, open_cells = split_state(strategy.window, held)
    releases, tree = _counted(strategy, tree, counts.sum(axis=1, keepdims=True), noise)
    windows, open_cells = close_windows(strategy.window, releases.first_bin, open_cells, counts, late_noise)
    shown = replace(releases, levels=(*releases.levels, windows))
    return shown, joined_state(tree, open_cells)


def _counted_over_epochs(
    strategy: Strategy,
    levels: EpochLevels,
    held: bytes,
    counts: Int64Array,
    noise: NoiseSource | BinsNoise,
    late_noise: NoiseSource,
) -> tuple[BinReleases, bytes]:
    """Return what the tree over time and, with an epoch's last bin, the levels over it make public."""
    state = EpochsState.from_bytes(held)
    releases, tree = _counted(strategy, state.tree, counts, noise)
    state = replace(state, tree=tree, total=state.total + int(counts.sum()))
    if releases.first_bin + len(releases) < strategy.design.horizon:
        return releases, state.to_bytes()
    row, state = close_epoch(levels, state, releases.published[-1], late_noise)
    shown = LevelRelease(OVER_EPOCHS, 0, row[np.newaxis])
    return replace(releases, levels=(*releases.levels, shown)), state.to_bytes()


def _counted(
    strategy: Strategy, held: bytes, counts: Int64Array, noise: NoiseSource | BinsNoise
) -> tuple[BinReleases, bytes]:
    """Return what the tree over time makes public, and the counter's new state."""
    design, width = strategy.design, strategy.released_width(ROWS)
    if isinstance(noise, BinsNoise):
        if strategy.product is not None:
            return publish_columns(strategy.product, held, counts, noise)
        before = AnticipatingSnapshot.from_bytes(held) if held else AnticipatingSnapshot.first(design, width)
        releases, after = release_bins(design, before, counts, noise)
        return releases, after.to_bytes()
    if strategy.product is not None:
        return close_bins(strategy.product, held, counts, noise)
    counter = TreeCounter(design, noise, width, history=False)
    if held:
        counter = TreeCounter.restore(design, noise, CounterSnapshot.from_bytes(held))
    return counter.push_many(counts), counter.snapshot().to_bytes()


def _tiles(epoch: int, releases: BinReleases) -> list[TileAppend]:
    tiles = tile_appends(epoch, ROWS, releases.first_bin, releases.published)
    for level in releases.levels:
        tiles += tile_appends(epoch, level.level, level.first_index, level.values)
    return tiles


def _chained(state: StreamState, strategy: Strategy, releases: BinReleases, nonce: str) -> Iterator[bytes]:
    """Yield the rows of these bins, each naming the one before."""
    declaration, prev = Declaration.of(strategy), state.head
    binning = declaration.binning
    shown = releases.published
    if strategy.product is not None and not strategy.released_levels:
        shown = totals(strategy.product, releases.published)
    errors = row_errors(strategy, releases.first_bin, len(releases))
    for position, (variance, half_width) in enumerate(errors):
        bin, seq = state.released_bin + 1 + position, state.seq + 1 + position
        estimate = (shown[position] / UNITS_PER_COUNT).tolist()
        message = {
            "v": 1,
            "seq": seq,
            "stream": strategy.stream,
            "epoch": state.epoch.epoch,
            "bin": bin,
            "start": format_instant(binning.start_us(bin)),
            "end": format_instant(binning.end_us(bin)),
            "estimate": estimate,
            "variance": variance,
            "interval": [[value - half_width, value + half_width] for value in estimate],
            "confidence": CONFIDENCE,
            "not_private": not declaration.private,  # as configured; the ledger knows about the source
            "published": shown[position].tolist(),
            **_columns(strategy, releases, position),
            "strategy": strategy.hash,
            "prev": prev,
            "nonce": _row_nonce(nonce, seq),
        }
        row = canonical_json(message)
        prev = row_hash(row)
        yield row


def _row_nonce(attempt: str, seq: int) -> str:
    """Return a nonce that names the attempt to who knows it, and to nobody else which rows share one."""
    return hashlib.sha256(f"{attempt}:{seq}".encode()).hexdigest()[:32]


def _columns(strategy: Strategy, releases: BinReleases, position: int) -> dict[str, object]:
    """Return a row's nodes: their values, or over several axes the hashes of what the tiles hold."""
    if not strategy.released_levels:
        return {"nodes": [], "columns_hash": columns_hash(releases.published[position])}
    nodes = releases.bin(position).nodes
    if strategy.product is not None:
        return {"nodes": [], "node_hashes": [[n.level, n.index, columns_hash(n.values)] for n in nodes]}
    shown: dict[str, object] = {"nodes": [[node.level, node.index, node.values.tolist()] for node in nodes]}
    if strategy.window is not None:
        shown["windows"] = _windows(strategy.window, releases, position)
    if strategy.over_epochs is not None:
        is_last = releases.first_bin + position + 1 == strategy.design.horizon
        row = releases.levels[-1].values[0] if is_last else None
        shown["over_epochs"] = [] if row is None else nodes_of_row(strategy.over_epochs, row)
    return shown


def _windows(design: WindowDesign, releases: BinReleases, position: int) -> list[list[object]]:
    """Return the window that a bin completes, if it does: its index in the epoch and the tiles' hash."""
    index, rest = divmod(releases.first_bin + position + 1, design.bins)
    if rest:
        return []
    windows = releases.levels[-1]
    return [[index - 1, columns_hash(windows.values[index - 1 - windows.first_index])]]
