"""The check that a worker's own witness knows a stream that readers have seen.

A machine may be lost with its witness, and Redis restored from a copy. Then nothing knows which rows readers
have seen since the copy, and these would get noise a second time. So a start is refused.
"""

from __future__ import annotations

import asyncio
import json

from stream_app.core.releases.release import RowLink
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import running_strategy, stored_strategy
from stream_app.loops.lease import LEASE_S, Lease
from stream_app.loops.opening import follows
from stream_app.loops.publishing import write_rows
from stream_app.loops.stream import Ports, Stream
from stream_app.ports import Store, Witness
from stream_app.ports.errors import WorkerError

WAIT_S = 0.5
PATIENCE_S = 2 * LEASE_S  # in this time another worker can begin to close a stream that its witness knows


class OwnWitness:
    """A worker's own witness of one stream; if workers share the witness, all methods do nothing."""

    def __init__(self, ports: Ports, stream: Stream) -> None:
        self._store, self._lease = ports.store, stream.lease
        self._clock = ports.clock
        self._witness = ports.witnesses[stream.strategy.stream]
        self._is_checked = self._is_shared = stream.witness_is_public
        self._expected_us = 0  # the end of the bin after the last row that ``keep_up`` wrote

    async def check(self, wanted: Strategy) -> None:
        """Check once, at a start, that the witness knows the stream. Raises: WorkerError; OSError."""
        if not self._is_checked:
            has_rows = await self._witness.head(wanted.stream) is not None
            if not has_rows and (state := await self._store.load(wanted.stream)) is not None:
                running_strategy(state, wanted)  # a machine with another file says so first
            await check_witnessed(self._store, wanted.stream, self._lease, has_rows, PATIENCE_S)
            self._is_checked = True

    async def keep_up(self, wanted: Strategy) -> None:
        """Write the rows that readers have seen and the witness lacks, so that this worker remembers them.

        For a worker that does not close the stream. If the store's rows do not follow the witness's last row,
        nothing is written: this worker ends the epoch if it becomes the closer.
        Cost: nothing until the bin after the last row has ended; then one question until readers see its row.
        Raises: WorkerError; OSError.
        """
        clock, name = self._clock, wanted.stream
        if self._is_shared or (not clock.virtual and await clock.now_us() < self._expected_us):
            return
        has_written = await catch_up(self._store, self._witness, name)
        if has_written and (head := await self._witness.head(name)) is not None:
            # Bins never change, but grace may: so the next row is expected from its bin's end on.
            next_bin = RowLink.of(head[1]).bin + 1
            self._expected_us = wanted.declared.time.binning.start_us(next_bin + 1)


async def catch_up(store: Store, witness: Witness, stream: str) -> bool:
    """Write the rows of a stream that readers have seen and a worker's own witness lacks.

    Returns: whether it has written. It does not if the store's rows do not follow the witness's last row.
    Raises: OSError.
    """
    seen, head = await store.visible_seq(stream), await witness.head(stream)
    if seen <= (head[0] if head is not None else 0) or (state := await store.load(stream)) is None:
        return False
    if head is not None and not await follows(store, stream, state, RowLink.of(head[1])):
        return False
    await write_rows(store, witness, stored_strategy(stream, state.strategy), seen)
    return True


async def check_witnessed(
    store: Store, stream: str, lease: Lease | None, has_rows: bool, patience_s: float = 0.0
) -> None:
    """Check that the witness has rows of a stream, or readers have none, or another worker closes it.

    The witness of a worker that closes the stream now has shown that the store lacks nothing.
    Args: lease, None for a stream that has one worker; has_rows, of the witness; patience_s, how long to wait
        for another worker. Raises: WorkerError; OSError.
    """
    if has_rows or not (seen := await store.visible_seq(stream)):
        return
    waited_s = 0.0
    while lease is not None:
        if await lease.is_anothers():
            return
        if waited_s >= patience_s:
            break
        await asyncio.sleep(WAIT_S)
        waited_s += WAIT_S
    last = await store.rows(stream, seen - 1, 1)
    until = f"up to the bin of {json.loads(last[0][1])['start']}" if last else "that readers saw"
    raise WorkerError(
        f"stream {stream}: Redis has rows {until}, and state.dir/witness has none, so state.dir is new or "
        "lost; if Redis was restored from a copy, the rows after it would get noise twice: put the state.dir "
        "of then back, or give the stream another name; if Redis has lost nothing, run stream-app new-witness"
    )
