"""Destroys the keys of visitors' names once no event of their days can count any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
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


async def destroy_visitor_keys(
    streams: Sequence[StreamSettings], witnesses: Mapping[str, Witness], load: Load, keys: VisitorKeys
) -> Never:
    """Destroy, for ever, the keys that no stream needs.

    Args: streams, all over one log; load, of the store.
    """
    outage = Outage(log, "destruction of visitors' keys")
    while True:
        await outage.outlast(partial(destroy_once, streams, witnesses, load, keys))
        outage.over()
        await asyncio.sleep(DESTROY_EVERY_S)


async def destroy_once(
    streams: Sequence[StreamSettings], witnesses: Mapping[str, Witness], load: Load, keys: VisitorKeys
) -> int:
    """Destroy the keys of all days whose bins every stream has released; return how many.

    Such a stream counts no event after its own bin has closed (``check_visitors``). A record of such a day
    gets another name afterwards, and is late under any name.
    """
    counting = [stream for stream in streams if VISITOR in stream.declared.cell_fields]
    before_us = []
    for stream in counting:
        state = await load(stream.name)
        if state is not None and (state.stopped or state.has_ended):
            continue  # it counts nothing any more
        head = await witnesses[stream.name].head(stream.name)
        if head is None:
            return 0
        before_us.append(stream.declared.time.binning.end_us(RowLink.of(head[1]).bin))
    if not before_us:
        return 0
    return await asyncio.to_thread(keys.destroy_before, min(before_us) // DAY_US)
