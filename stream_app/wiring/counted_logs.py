"""The logs of a worker: each is opened, counted, and stopped at a fault by itself, while the others go on.

A segment that begins joins the running loops of its log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from stream_app.config import StreamSettings
from stream_app.config.plans import planned
from stream_app.config.source import by_log, by_source
from stream_app.core.strategy import Strategy
from stream_app.loops.segments import until_begun_elsewhere
from stream_app.loops.stream import Stream
from stream_app.ports import Clock, OperatorError
from stream_app.state.safety import Unreachable
from stream_app.together import until_all_end, until_one_ends
from stream_app.wiring.counted_log import Adapters, CountedLog, ledger_over
from stream_app.wiring.halted import Halted
from stream_app.wiring.starting import CheckedStart

log = logging.getLogger(__name__)


class CountedLogs:
    """All logs of a worker. Args: halted, the streams that must not begin; it learns of those that stop."""

    def __init__(self, adapters: Adapters, halted: Halted) -> None:
        streams = adapters.start.settings.streams
        self._logs = [CountedLog(group, adapters, halted, self._measuring) for group in by_log(streams)]
        self._adapters = adapters
        self._together: dict[str, list[Stream]] = {}

    async def open(self, has_read: Callable[[], None], opened: Callable[[str], None]) -> None:
        """Open all logs, then all streams. Args: has_read, called between; opened, for each stream.

        Raises: OperatorError if no stream is left; OSError.
        """
        for one in self._logs:
            await one.open_log(self._named())
        has_read()
        for one in self._logs:
            await one.open_streams(opened)

    async def run(self) -> None:
        """Count until cancelled, or until nothing is left to do.

        Raises: OperatorError, with the line of each fault, if nothing is left to do and a stream has halted.
        """
        await until_all_end(*(one.run() for one in self._logs))

    async def join(self, start: CheckedStart) -> bool:
        """Let segments join the running loops; return False if a log must be reopened for another field.

        Args: start, as a start would make it now. Raises: OperatorError; OSError.
        """
        running = self._adapters.start.settings
        known = {stream.name for stream in running.streams}
        joining = [stream for stream in start.settings.streams if stream.name not in known]
        logs = {id(one): one for stream in joining for one in self._logs if one.is_over_this_log(stream)}
        if not all(one.can_read(joining) for one in logs.values()):
            return False
        outputs = {output.stream: output for output in (*running.outputs, *start.settings.outputs)}
        streams = (*running.streams, *joining)
        settings = replace(start.settings, streams=streams, outputs=tuple(outputs.values()))
        self._adapters.run_start(replace(start, settings=settings))
        for one in logs.values():
            await one.join([stream for stream in joining if one.is_over_this_log(stream)])
        ends = {stream.name: stream.until_us for stream in start.settings.streams}
        for one in self._logs:
            one.end_at(ends)
        return True

    def _named(self) -> list[Strategy]:
        return [strategy for one in self._logs for strategy in one.named.values()]

    def _measuring(self) -> dict[str, list[Stream]]:
        """Return the streams of each source, by its name: those that share one ledger, halted ones too.

        The lists stay the same ones, so the loops that run see each stream that joins.
        """
        named = {strategy.stream: strategy for strategy in self._named()}
        found = measuring(self._adapters.start.settings.streams, named, self._adapters)
        for source, streams in found.items():
            self._together.setdefault(source, [])[:] = streams
        return self._together


def measuring(
    streams: Sequence[StreamSettings], named: Mapping[str, Strategy], adapters: Adapters
) -> dict[str, list[Stream]]:
    """Return streams by the name of their source: the streams of a source share one ledger.

    Args: named, the strategies that name their logs, by stream.
    """
    return {
        source: [
            Stream(strategy=named.get(one.name) or planned(one), ledger=ledger_over(one, adapters))
            for one in together
        ]
        for source, together in by_source(streams).items()
    }


AGAIN_S = 1.0
REFUSED_S = 60.0


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
