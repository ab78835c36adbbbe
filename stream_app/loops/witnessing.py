"""Copies releases from the store to the witness before anybody can see them."""

from __future__ import annotations

from stream_app.core.row_values import rows_at_once
from stream_app.core.strategy import Strategy
from stream_app.ports import Store, Witness


async def copy_released(store: Store, witness: Witness, strategy: Strategy, released_seq: int) -> int:
    """Write the released rows that the witness lacks, durably and in order; return the witness's last seq.

    Raises: OSError if the store or the witness did not answer; calling again is always safe.
    """
    stream, limit = strategy.stream, rows_at_once(strategy.kind)
    head = await witness.head(stream)
    seq = 0 if head is None else head[0]
    while seq < released_seq:
        rows = await store.witness_rows(stream, strategy, seq, limit)
        if not rows:
            break  # the epoch has just opened; the missing seqs are from a store that was lost
        await witness.append(stream, rows)
        seq = rows[-1].seq
    return seq
