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

# Stores the ends that are due, and returns what is then to run, as a start does; None: call it again.
Checked = Callable[[CheckedStart], Awaitable[CheckedStart | None]]


class Joining:
    """Lets each segment that begins join the loops of a worker, start after start.

    A segment that cannot join stops nothing: the settings so far hold, and the worker tries again.
    """

    def __init__(self) -> None:
        self.elsewhere = set[str]()  # the streams that another worker has taken to a segment
        self.must_reopen = False  # a log does not decode a field of a segment

    async def run(self, adapters: Adapters, logs: CountedLogs, wall: Clock, checked: Checked) -> None:
        """Let segments join the loops of one start. Returns when a log must be reopened."""
        self.must_reopen = False
        while not self.must_reopen:
            start = adapters.start
            begins = start.plan.until_next(start.settings, wall)
            await until_one_ends(begins, self._begins_elsewhere(adapters))
            self.must_reopen = not await logs.join(await _outlasting(checked, start))

    async def _begins_elsewhere(self, adapters: Adapters) -> None:
        self.elsewhere |= await until_begun_elsewhere(adapters.start.settings, adapters.store)


async def _outlasting(checked: Checked, start: CheckedStart) -> CheckedStart:
    """Return the checked start that is to run, as soon as the store and the source answer."""
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
