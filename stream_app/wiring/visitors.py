"""Destroys the keys of visitors' names once no event of their days can count any more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Never

from stream_app.config import StreamSettings
from stream_app.core.releases.release import RowLink
from stream_app.core.visits import DAY_US, VISITOR
from stream_app.outage import Outage
from stream_app.ports import Witness
from stream_app.vault.visitor_keys import VisitorKeys
from stream_app.wiring.receiving import Load

DESTROY_EVERY_S = 60.0

log = logging.getLogger(__name__)


async def destroy_visitor_keys(keys: VisitorKeys, first_needed: Callable[[], Awaitable[int]]) -> Never:
    """Destroy, for ever, the keys of spent days. Args: first_needed, returns the first day that is not."""
    outage = Outage(log, "destruction of visitors' keys")

    async def destroy() -> None:
        before = await first_needed()
        await asyncio.to_thread(keys.destroy_before, before)

    while True:
        await outage.outlast(destroy)
        outage.over()
        await asyncio.sleep(DESTROY_EVERY_S)


async def today() -> int:
    """Return the day of UTC: events that pages send are dated when they arrive."""
    return time.time_ns() // 1_000 // DAY_US


async def first_unreleased(
    streams: Sequence[StreamSettings], witnesses: Mapping[str, Witness], load: Load
) -> int:
    """Return the first day of which not every stream has released all bins; 0 if there is none.

    A stream over an access log counts no event after its own bin has closed (``check_visitors``). A record of
    an earlier day gets another name afterwards, and is late under any name.
    Args: streams, all over one log; load, of the store.
    """
    before_us = []
    for stream in streams:
        if VISITOR not in stream.declared.cell_fields:
            continue
        state = await load(stream.name)
        if state is not None and (state.stopped or state.has_ended):
            continue  # it counts nothing any more
        head = await witnesses[stream.name].head(stream.name)
        if head is None:
            return 0
        before_us.append(stream.declared.time.binning.end_us(RowLink.of(head[1]).bin))
    return min(before_us, default=0) // DAY_US
