"""The streams that a worker has stopped because of a fault of their log or their own, while others go on.

Which faults stop which streams: docs/decisions/0056-what-a-fault-stops.md.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress

from stream_app.config import StreamSettings, TopicSettings
from stream_app.loops.lease import Lease
from stream_app.monitoring.metrics import Metrics
from stream_app.ports import OperatorError, Store
from stream_app.ports.errors import StreamError

START_AGAIN = "once the cause is corrected, start the worker again"

log = logging.getLogger(__name__)


class Halted:
    """The streams that this worker does not run, each with the line that says why.

    Args: names, of all streams that the worker is to run.
    """

    def __init__(self, names: Iterable[str], store: Store, metrics: Metrics) -> None:
        self.lines: dict[str, str] = {}
        self._at_work, self._store, self._metrics = set(names), store, metrics
        self._all = len(self._at_work)
        self._show()

    async def add(self, streams: Sequence[StreamSettings], why: OperatorError, then: str) -> None:
        """Note and log that streams have stopped, and mark them for readers.

        Args: then, the step after the cause is corrected. Raises: OperatorError, as ``ended``.
        """
        new = [stream for stream in streams if self.lines.get(stream.name) != str(why)]
        self.lines |= {stream.name: str(why) for stream in streams}
        for stream in new:
            with suppress(OSError):  # no reader hears of it; the loops say that the store is unreachable
                await self._mark(stream)
        names = [stream.name for stream in streams]
        self.ended(names)
        self._show()
        if new:
            log.error("%s; stopped: %s; all other streams go on; %s", why, some_of(names), then)

    async def refuse(self, streams: Sequence[StreamSettings], fault: StreamError) -> None:
        """Note that a stream, one of ``streams``, cannot start. Raises: as ``add``."""
        await self.add([one for one in streams if one.base == fault.base], fault, START_AGAIN)

    def expect(self, names: Iterable[str]) -> None:
        """Note which streams are to run. Raises: as ``ended``."""
        self._at_work = {*names} - self.lines.keys()
        self._all = len(self._at_work | self.lines.keys())
        self.ended(())
        self._show()

    def ended(self, names: Iterable[str]) -> None:
        """Note that nothing is left to do for streams.

        Raises: OperatorError, with the line of each fault, if this is true of all streams and any has halted.
        """
        self._at_work.difference_update(names)
        if not self._at_work:
            self.check_none()

    def check_none(self) -> None:
        """Raise an OperatorError with the line of each fault if any stream has halted."""
        if self.lines:
            raise OperatorError("; ".join(dict.fromkeys(self.lines.values())))

    async def resume(self, streams: Sequence[StreamSettings], marked: Iterable[str]) -> None:
        """Record that streams are counted again. Args: marked, the names that the store marks as halted."""
        names = [stream.name for stream in streams]
        for name in marked:
            await self._store.mark_halted(name, False)
        self._at_work.update(names)
        again = [name for name in names if self.lines.pop(name, None) is not None]
        self._show()
        if again:
            log.warning("the cause is corrected: %s: counted again", some_of(again))

    async def _mark(self, stream: StreamSettings) -> None:
        """Mark a stream for readers, unless another worker goes on with it."""
        lease = Lease(self._store, stream.name, secrets.token_hex(8))
        if not isinstance(stream.source, TopicSettings) or not await lease.is_anothers():
            await self._store.mark_halted(stream.name, True)

    def _show(self) -> None:
        self._metrics.halt(self.lines)
        number = f"{len(self.lines):,} of {self._all:,} streams stopped, see the log"
        self._metrics.waiting.lacking = number if self.lines else ""


def some_of(names: Sequence[str], most: int = 10) -> str:
    """Return names as text; of a long list the first ones, and how many more there are.

    >>> some_of(["a", "b", "c"]), some_of(["a", "b", "c", "d"], most=3)
    ('a, b, c', 'a, b, c and 1 more')
    """
    more = len(names) - most
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:most])} and {more:,} more"
