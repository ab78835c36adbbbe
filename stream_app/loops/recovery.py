"""Recovery of a store that was lost or set back: put back its history and notify the operator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from stream_app.core.instants import format_instant
from stream_app.core.records import EpochRecord, Reply, StreamState, WitnessRow
from stream_app.core.releases.release import RowLink
from stream_app.core.releases.restored import WitnessedStream
from stream_app.core.segments.endings import Ending
from stream_app.core.strategy import Strategy
from stream_app.loops import noise_ahead
from stream_app.ports import Store, Witness

OnEnd = Callable[[Ending, int], None]

log = logging.getLogger(__name__)


class Recovery:
    """Puts one stream's history from the witness back into a store that lost it, and notifies the operator.

    Args: on_end, called when an epoch has ended early, with the reason and the number of uncounted bins.
    """

    def __init__(self, on_end: OnEnd) -> None:
        self.on_end = on_end
        self._given_up = ""  # the hash of the witness's last row at the last failed attempt

    def report_loss(self, strategy: Strategy, ending: Ending, head: RowLink, begun: EpochRecord) -> None:
        """Report that an epoch ended because the store was lost or set back, with the consequences.

        Args: head, the witness's last row; begun, the epoch that begins.
        """
        start_us, name = strategy.declared.time.binning.start_us, strategy.stream
        first = format_instant(start_us(begun.first_bin))
        what = "lost" if ending is Ending.STORE_LOST else "set back"
        log.error(
            "stream %s: the store was %s: epoch %d has ended, epoch %d begins at %s",
            *(name, what, head.epoch, begun.epoch, first),
        )
        missing = begun.first_bin - head.bin - 1
        if missing > 0:
            log.error(
                "stream %s: the bins from %s to %s are missing: some of their records are no longer in the "
                "log",
                *(name, format_instant(start_us(head.bin + 1)), first),
            )
        self.on_end(ending, missing)

    async def put_back(
        self, store: Store, witness: Witness, strategy: Strategy, state: StreamState, head: RowLink
    ) -> None:
        """Put back the rows of earlier epochs that the witness holds and the store lost.

        Guarantee: the rows are put back before the running epoch releases a row, in steps that may be
            interrupted and repeated. Rows that the store holds stay unchanged.
        Cost: one question to the store until the epoch's first release, none afterwards.
        """
        stream = strategy.stream
        if (
            state.released_bin >= state.epoch.first_bin
            or head.seq >= state.epoch.first_seq
            or self._given_up == head.hash
            or await _holds(store, stream, head.seq)
        ):
            return
        rows = await witness.rows(stream, 0)
        kept = await _kept(store, stream, rows)
        try:
            witnessed = WitnessedStream.of(rows, map(Strategy.from_json, state.texts))
            steps = witnessed.restored(rows[kept - 1].seq if kept else 0, strategy.hash)
            while (step := await noise_ahead.in_thread(noise_ahead.SHARED, next, steps, None)) is not None:
                if await store.put_back(stream, step) not in (Reply.DONE, Reply.ALREADY):
                    self._give_up(head, stream, "the store holds other rows than the witness; these stay")
                    return
        except ValueError as refusal:
            self._give_up(head, stream, f"{refusal}; restore a newer backup of the store if there is one")
            return
        log.warning("stream %s: %d bins were put back from the witness", stream, len(rows) - kept)

    def _give_up(self, head: RowLink, stream: str, why: str) -> None:
        self._given_up = head.hash
        log.error("stream %s: what the store lost cannot be put back: %s", stream, why)


async def _kept(store: Store, stream: str, rows: Sequence[WitnessRow]) -> int:
    """Return how many of the rows, counted from the first, the store still holds."""
    kept, end = 0, len(rows)
    while kept < end:
        middle = (kept + end) // 2
        if await _holds(store, stream, rows[middle].seq):
            kept = middle + 1
        else:
            end = middle
    return kept


async def _holds(store: Store, stream: str, seq: int) -> bool:
    """Return whether the store has this row or a later one. A store that was set back lacks its last rows.

    The first rows may be missing because retention removed them. They do not come back.
    """
    return bool(await store.rows(stream, seq - 1, 1))
