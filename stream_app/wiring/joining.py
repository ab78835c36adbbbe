"""How a segment joins the running loops of a worker, which go on meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from stream_app.loops.segment_plan import until_begun_elsewhere
from stream_app.ports import Clock, OperatorError
from stream_app.state.safety import Unreachable
from stream_app.together import until_one_ends
from stream_app.wiring.counted_log import Adapters
from stream_app.wiring.counted_logs import CountedLogs
from stream_app.wiring.starting import CheckedStart

AGAIN_S = 1.0
REFUSED_S = 60.0

log = logging.getLogger(__name__)


async def keep_joining(
    adapters: Adapters,
    logs: CountedLogs,
    wall: Clock,
    elsewhere: set[str],
    checked: Callable[[CheckedStart], Awaitable[CheckedStart | None]],
) -> None:
    """Let each segment that begins join the running loops.

    Returns when a log must be reopened, because it does not decode a field of the segment. A segment that
    cannot join stops nothing: the settings so far hold, and the worker tries again.
    Args: elsewhere, gets the streams that another worker has taken to a segment; checked, stores the ends
        that are due and returns what is then to run, as a start does; None: it is to be called again.
    """

    async def begins_elsewhere() -> None:
        elsewhere.update(await until_begun_elsewhere(adapters.start.settings, adapters.store))

    while True:
        start = adapters.start
        await until_one_ends(start.plan.until_next(start.settings, wall), begins_elsewhere())
        if not await logs.join(await _outlasting(checked, start)):
            return


async def _outlasting(
    checked: Callable[[CheckedStart], Awaitable[CheckedStart | None]], start: CheckedStart
) -> CheckedStart:
    """Return what is to run, as soon as it is known."""
    while True:
        wait_s = AGAIN_S
        try:
            if (following := await checked(start)) is not None:
                return following
        except (OSError, Unreachable) as failure:
            log.warning("a segment is to begin: %s; trying again", failure)
        except OperatorError as refusal:
            log.error("a segment cannot begin, so the settings so far hold: %s", refusal)
            wait_s = REFUSED_S
        await asyncio.sleep(wait_s)
