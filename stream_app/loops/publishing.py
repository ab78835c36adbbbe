"""Making released rows visible: read back, written to the witness, published at the next public instant.

Visible <= witnessed <= released, at every moment and after any crash.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_app.core.closing import next_public_instant_us
from stream_app.core.row_values import rows_at_once
from stream_app.core.strategy import Strategy
from stream_app.loops.lease import Leadership
from stream_app.outage import Outage
from stream_app.ports import Clock, Store, Witness

PART_OF_INSTANT = 4  # of the time between two public instants: a loop that is later has missed one
MOST_MISSED = 10  # in a row, then what is due is shown late: nobody is served by never


class Publisher:
    """One stream's way from released to visible.

    Args:
        wall: makes results visible.
        every_us: results become visible at multiples of this on the wall clock.
        witness_is_public: readers see the witness, so that it is written at public instants only.
    """

    def __init__(
        self,
        store: Store,
        witness: Witness,
        wall: Clock,
        leadership: Leadership,
        every_us: int,
        witness_is_public: bool,
    ) -> None:
        self._store = store
        self._witness = witness
        self._wall = wall
        self._leadership = leadership
        self._every_us = every_us
        self._witness_is_public = witness_is_public
        self._strategy: Strategy | None = None
        self._epoch: int | None = None
        self._released_seq = self._witnessed_seq = self._published_seq = 0

    async def released(self, strategy: Strategy, epoch: int, seq: int) -> None:
        """Note what the store has released; write it to the witness, unless readers would see that."""
        if self._epoch != epoch:  # what was shown before may be lost, and is shown again
            self._epoch, self._published_seq = epoch, 0
        self._strategy, self._released_seq = strategy, seq
        if not self._witness_is_public:
            await self._write()

    async def run(self, outage: Outage, finished: Callable[[], bool]) -> None:
        """Publish at public instants until all is visible of a stream that has finished.

        An instant that was missed waits for the next one.
        """
        missed = 0
        while not (finished() and self._published_seq == self._witnessed_seq == self._released_seq):
            instant_us = next_public_instant_us(await self._wall.now_us(), self._every_us)
            await self._wall.sleep_until_us(instant_us)
            # How long the loop was busy follows the events: a late loop waits for the next instant.
            late_us = await self._wall.now_us() - instant_us
            missed = missed + 1 if late_us > self._every_us // PART_OF_INSTANT else 0
            if missed % MOST_MISSED == 0:
                await self.show_released()
                outage.over()

    async def show_released(self) -> None:
        """Make visible what is released; this is the one moment at which a public witness is written."""
        behind = self._witnessed_seq < self._released_seq
        if self._witness_is_public and behind and await self._leadership.leads():
            await self._write()
        await self.show_witnessed()

    async def show_witnessed(self) -> None:
        """Make visible what the witness holds."""
        seq = self._witnessed_seq
        if self._strategy is not None and seq > self._published_seq:
            await self._store.publish(self._strategy.stream, seq)
            self._published_seq = seq

    async def _write(self) -> None:
        """Read back what the store holds and the witness does not, and write it there durably."""
        assert self._strategy is not None
        try:
            self._witnessed_seq = await copy_released(
                self._store, self._witness, self._strategy, self._released_seq
            )
        except OSError:
            self._leadership.drop()
            raise


async def copy_released(store: Store, witness: Witness, strategy: Strategy, released_seq: int) -> int:
    """Write the released rows that the witness lacks there, durably and in order; return its last seq.

    Raises: OSError where the store or the witness did not answer; calling again is always safe.
    """
    stream, limit = strategy.stream, rows_at_once(strategy.kind)
    head = await witness.head(stream)
    seq = 0 if head is None else head[0]
    while seq < released_seq:
        rows = await store.witness_rows(stream, strategy, seq, limit)
        if not rows:
            break  # the epoch has just opened; seqs that the store never had lie behind it
        await witness.append(stream, rows)
        seq = rows[-1].seq
    return seq
