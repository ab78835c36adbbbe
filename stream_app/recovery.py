"""What follows a store that was lost or set back: its history is put back, and the operator is notified."""

from __future__ import annotations

import logging

from stream_app import noise_ahead
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.records import Ending, EpochRecord, Reply, StreamState
from stream_app.core.release import RowLink
from stream_app.core.restored import holds_all, restored
from stream_app.core.strategy import Strategy
from stream_app.ports import Store, Witness

log = logging.getLogger(__name__)


def tell_loss(strategy: Strategy, ending: Ending, head: RowLink, begun: EpochRecord) -> None:
    """Log that an epoch ended because the store was lost or set back, and what that means.

    Args: head, the witness's last row; begun, the epoch that begins.
    """
    start_us, name = Declaration.of(strategy).binning.start_us, strategy.stream
    first = format_instant(start_us(begun.first_bin))
    what = "lost" if ending is Ending.STORE_LOST else "set back"
    log.error(
        "stream %s: the store was %s: epoch %d has ended, epoch %d begins at %s",
        *(name, what, head.epoch, begun.epoch, first),
    )
    if begun.first_bin > head.bin + 1:
        log.error(
            "stream %s: the bins from %s to %s are missing: some of their records are no longer in the log",
            *(name, format_instant(start_us(head.bin + 1)), first),
        )
    if not holds_all(strategy):
        log.error(
            "stream %s: what the store lost before %s cannot be put back, for its rows hold totals only; "
            "restore a newer backup of the store if there is one",
            *(name, first),
        )


async def put_back(
    store: Store, witness: Witness, strategy: Strategy, state: StreamState, head: RowLink
) -> None:
    """Put back the rows of earlier epochs that the witness holds and the store lost.

    Guarantee: they go in before the running epoch releases a row, in steps that may be interrupted and
        repeated. Rows that are there stay as they are.
    Cost: one question to the store until the epoch's first release, and nothing after it.
    """
    stream = strategy.stream
    if (
        state.released_bin >= state.epoch.first_bin
        or head.seq >= state.epoch.first_seq
        or not holds_all(strategy)
        or await _holds(store, stream, head.seq)
    ):
        return
    rows = await witness.rows(stream, 0)
    kept, end = 0, len(rows)
    while kept < end:
        middle = (kept + end) // 2
        if await _holds(store, stream, rows[middle][0]):
            kept = middle + 1
        else:
            end = middle
    steps = restored(strategy, rows, rows[kept - 1][0] if kept else 0)
    while (step := await noise_ahead.in_thread(next, steps, None)) is not None:
        if await store.put_back(stream, step) not in (Reply.DONE, Reply.ALREADY):
            log.error("stream %s: the store holds other rows than the witness; these stay", stream)
            return
    log.warning("stream %s: %d bins were put back from the witness", stream, len(rows) - kept)


async def _holds(store: Store, stream: str, seq: int) -> bool:
    following = await store.rows(stream, seq - 1, 1)
    return bool(following) and following[0][0] == seq
