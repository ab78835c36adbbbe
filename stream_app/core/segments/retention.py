"""Which released epochs leave the store: whole epochs that ended long ago, the oldest first.

The clock and the ends of epochs decide, never a record. The witness and the ledger keep everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stream_app.core.records import EpochRecord, Trimmed
from stream_app.core.releases.release import row_hash
from stream_app.core.releases.tiles import TileGeometry
from stream_app.core.segments.strategies import strategy_of
from stream_app.core.store_writes import TileKey


def removable(
    texts: tuple[bytes, ...], epochs: Sequence[EpochRecord], visible_seq: int, before_us: int
) -> Iterator[EpochRecord]:
    """Yield the epochs that may be removed from Redis, oldest first: each ended by ``before_us``.

    Readers must see a row after an epoch that is removed. So the chain is never empty, and a store that lost
    its last rows is not taken for one without old rows.
    Args: texts, of all strategies of the stream; epochs, all that the store has; before_us, in the time of
        the stream's bins.
    """
    for epoch in sorted(epochs, key=lambda one: one.epoch):
        ended = ended_us(texts, epoch)
        if ended is None or ended > before_us or epoch.final_seq >= visible_seq:
            return
        yield epoch


def ended_us(texts: tuple[bytes, ...], epoch: EpochRecord) -> int | None:
    """Return the end of an epoch's last bin; None: the epoch runs. Args: texts, as in ``removable``."""
    if not epoch.is_over:
        return None
    return strategy_of(texts, epoch).declared.time.binning.end_us(epoch.final_bin)


def tiles_of(texts: tuple[bytes, ...], epoch: EpochRecord) -> list[TileKey]:
    """Return every tile that holds values of an ended epoch."""
    kind, bins = strategy_of(texts, epoch).kind, epoch.final_bin - epoch.first_bin + 1
    return [
        piece.key
        for table, width in kind.tables.items()
        for piece in TileGeometry(width).slices(epoch.epoch, table, 0, kind.rows_after(table, bins))
    ]


def anchor(epoch: EpochRecord, seq: int, row: bytes) -> Trimmed:
    """Return the part of a removed epoch that stays: the place and the hash of its last row."""
    return Trimmed(epoch.epoch, epoch.final_bin, seq, row_hash(row))
