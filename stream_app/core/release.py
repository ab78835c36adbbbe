"""From exact counts of sealed bins to a release: noisy nodes, chain rows, tiles, the counter's new state.

Exact counts enter here and leave as noise-protected nodes, or inside the secret snapshot. A row is the
message of one bin: its bytes are what every output repeats, and each holds the hash of the row before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource
from dphist.tree.anticipating_step import BinsNoise
from dphist.units import UNITS_PER_COUNT
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.kinds.errors import CONFIDENCE, RowError
from stream_app.core.kinds.tables import Closed
from stream_app.core.records import Release, StreamState
from stream_app.core.strategy import Strategy, canonical_json
from stream_app.core.tiles import tile_appends

BLOCK_BINS = 64  # errors of rows are computed for so many bins at once


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
    noise: NoiseSource,
    nonce: str,
    ahead: BinsNoise | None = None,
) -> Release:
    """Noise the next sealed bins of the running epoch.

    Guarantee: the releases of one epoch together are epsilon-DP as the kind says, provided that the store
        accepts one release after each head and nothing of a refused one is ever shown.
    Args:
        state: the state to go on from, with the counter after ``released_bin``.
        counts: exact counts of the bins after it, shape (bins, width). SECRET.
        noise: where noise is drawn from as bins close.
        nonce: names this attempt, so that its rows differ from those of any other. SECRET: it would tell
            which bins were released together, and so how fast their events were read.
        ahead: the noise that was drawn for these very bins before the epoch, where the kind draws ahead.
    Raises: ValueError for bins beyond the epoch; never showing a count.
    Cost: causal, one call of the noise source a level; about 200 microseconds a bin for its row.
    """
    closed = strategy.kind.close(state.counter, counts, noise, ahead)
    first_bin, epoch = state.released_bin + 1, state.epoch.epoch
    rows = list(_chained(state, strategy, closed, nonce))
    blocks = (tile_appends(epoch, block.table, block.first, block.values) for block in closed.blocks)
    return Release(
        strategy_hash=strategy.hash,
        epoch=epoch,
        expected_seq=state.seq,
        expected_head=state.head,
        first_bin=first_bin,
        last_bin=first_bin + len(closed) - 1,
        rows=rows,
        head=row_hash(rows[-1]),
        tiles=[tile for tiles in blocks for tile in tiles],
        counter=closed.state,
    )


def _chained(state: StreamState, strategy: Strategy, closed: Closed, nonce: str) -> Iterator[bytes]:
    """Yield the rows of these bins, each naming the one before."""
    declaration, prev = Declaration.of(strategy), state.head
    binning = declaration.binning
    errors = row_errors(strategy, closed.first_bin, len(closed))
    for position, (variance, half_width) in enumerate(errors):
        bin, seq = state.released_bin + 1 + position, state.seq + 1 + position
        estimate = (closed.running[position] / UNITS_PER_COUNT).tolist()
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
            "published": closed.running[position].tolist(),
            **strategy.kind.row_part(closed, position),
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


def row_errors(strategy: Strategy, first_bin: int, bins: int) -> list[RowError]:
    """Return variance and half width, in counts, of the running count after each bin of an epoch.

    Over several axes it is the total's, as it is first published.
    Cost: a block of bins at its first one (20 ms), then nothing.
    """
    stop = first_bin + bins
    blocks = range(first_bin // BLOCK_BINS, (stop - 1) // BLOCK_BINS + 1)
    errors = [error for block in blocks for error in _block(_Block(strategy.hash, block, strategy))]
    before = blocks.start * BLOCK_BINS
    return errors[first_bin - before : stop - before]


@dataclass(frozen=True, slots=True)
class _Block:
    strategy_hash: str
    index: int
    strategy: Strategy = field(compare=False)


@lru_cache(maxsize=512)
def _block(block: _Block) -> tuple[RowError, ...]:
    first = block.index * BLOCK_BINS
    bins = np.arange(first, min(first + BLOCK_BINS, block.strategy.design.horizon))
    return tuple(block.strategy.kind.row_errors(bins))
