"""Waits until store and witness agree about a stream, after a start and after any doubt about the store.

Workers without an output topic have a witness each. If the store was set back, the worker whose witness has
the most rows must end the epoch: after a shorter witness, rows that readers saw would get noise again. So a
worker that has rows which the store lacks states its last one when it asks for the lease, and takes the lease
from workers that have fewer. Until ``SETTLE_S`` has passed, no worker closes the stream.
"""

from __future__ import annotations

import asyncio
import logging

from stream_app.loops.leadership import Leadership
from stream_app.loops.lease import SETTLE_S
from stream_app.loops.noise_ahead import NoiseAhead
from stream_app.loops.recovery import PATIENCE_S, OwnWitness, agrees
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import OperatorError

FOLLOW_S = 0.5  # how often a start checks a stream that another worker closes
NOISE_PATIENCE_S = PATIENCE_S + 2 * SETTLE_S  # in this time a closer ends an epoch whose noise was lost

log = logging.getLogger(__name__)


class Agreement:
    """Waits until store and witness agree about one stream."""

    def __init__(
        self, ports: Ports, stream: Stream, leadership: Leadership, own: OwnWitness, ahead: NoiseAhead
    ) -> None:
        self._store, self._witness = ports.store, ports.witnesses[stream.strategy.stream]
        self._planned = stream.strategy
        self._leadership, self._own, self._ahead = leadership, own, ahead
        self._doubted: int | None = None  # the epoch that the store had when this worker began to wait

    async def must_reconcile(self) -> bool:
        """Return True if this worker closes the stream, or False once its witness and the store agree.

        Raises: OperatorError if this worker cannot read the noise of its closer.
        """
        name, followed_s, self._doubted = self._planned.stream, 0.0, None
        await self._own.check(self._planned)
        self._leadership.doubt()  # so that the witness is asked again
        while True:
            agreed = await self._states() if self._leadership.compares else None
            if await self._leadership.leads():
                return True
            if agreed is None:
                agreed = await agrees(self._store, self._witness, self._planned)
            if agreed and await self._may_count():
                if await self._ahead.shares_keys():
                    return False
                if followed_s > NOISE_PATIENCE_S:  # a live worker keeps the lease, or it would be ours by now
                    raise OperatorError(
                        f"stream {name}: another worker closes it, and this one cannot read its stored "
                        "noise; give all workers one secrets.key_file, or write tree.release: causal; if "
                        "they have one, the noise is lost: start this worker again"
                    )
            elif not agreed and followed_s == PATIENCE_S and await self._store.load(name) is not None:
                log.warning(
                    "stream %s: another worker closes it, and Redis lacks the last row of this worker's "
                    "witness; until they agree it counts nothing",
                    name,
                )
            await asyncio.sleep(FOLLOW_S)
            followed_s += FOLLOW_S

    async def _may_count(self) -> bool:
        """Return whether records may be counted now. After a loss the running epoch has to end first."""
        if not self._leadership.in_doubt:
            return True
        state = await self._store.load(self._planned.stream)
        epoch = None if state is None else state.epoch.epoch
        if self._doubted is None:
            self._doubted = epoch
        return epoch != self._doubted

    async def states_a_lost_row(self) -> bool:
        """While the store may have been set back, look which row it lacks; return whether one is new.

        With long bins nothing else asks the store for hours. Raises: OSError.
        """
        if not (self._leadership.compares and self._leadership.in_doubt):
            return False
        before = self._leadership.lost_seq
        await self._states()
        return self._leadership.lost_seq > before

    async def _states(self) -> bool:
        """Return whether witness and store agree. If not, insist: the longest witness gets the lease."""
        agreed = await agrees(self._store, self._witness, self._planned)
        head = None if agreed else await self._witness.head(self._planned.stream)
        self._leadership.insist(0 if head is None else head[0])
        return agreed
