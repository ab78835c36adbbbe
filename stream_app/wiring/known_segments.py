"""The segments of all configured streams, from the store, the ledgers and the witnesses."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stream_app.config import Settings, StreamSettings
from stream_app.config.source import all_ledgers_of
from stream_app.core.records import LedgerEntry, WitnessRow
from stream_app.core.releases.row_values import strategies_in
from stream_app.core.segments.names import base_of, by_stream, number_of
from stream_app.core.segments.plan import Segment, Segments, segments_of
from stream_app.core.strategy import Strategy
from stream_app.loops.segments import SegmentPlan, Witnessed, known_segments, sources_of
from stream_app.ports import OperatorError, OutsideLedger, Store, Witness
from stream_app.ports.errors import about
from stream_app.sinks.witness_file import each_witnessed, first_witnessed, with_files
from stream_app.together import each_to_its_end
from stream_app.wiring.known_logs import with_known_logs

if TYPE_CHECKING:
    from stream_app.sinks.witness_topic import WitnessTopic


async def with_segments(
    settings: Settings,
    store: Store,
    outside: OutsideLedger | None,
    now_us: int,
    witnessed: Witnessed | None = None,
    elsewhere: Collection[str] = (),
) -> SegmentPlan:
    """Return the segments of each configured stream. It stores nothing.

    Args: witnessed, the facts from the witnesses; None: only those in files are asked, for commands over a
        store that a worker keeps; elsewhere, streams that another worker took to a segment since this process
        started: they go on as stored. Raises: OperatorError, as ``known_segments``; OSError.
    """
    settings = await with_known_logs(settings, store, outside)
    asked = witnessed or Witnesses(settings)
    kept = () if outside is None else await outside.entries()
    sources = dict.fromkeys(sources_of(settings))
    # By the streams that they are about: with a thousand streams, each would look at the entries of all.
    ledgers = {source: _by_stream([*await store.ledger(source), *kept], source) for source in sources}

    def entries(stream: StreamSettings) -> list[LedgerEntry]:
        about = (stream.name, stream.declared.successor_of)
        names = all_ledgers_of(stream, settings)
        return [entry for name in names for one in about if one for entry in ledgers[name].get(one, ())]

    async def look(stream: StreamSettings) -> Segments:
        with about(stream.name):
            own, now = entries(stream), Segment(stream.name, stream.declared, stream.until_us)
            return segments_of(now, await known_segments(store, stream, own, asked), own, now_us)

    found = tuple(
        replace(one, next=None) if one.stream in elsewhere else one
        for one in await each_to_its_end(*map(look, settings.streams))
    )
    return SegmentPlan(settings, found, now_us)


def _by_stream(entries: Iterable[LedgerEntry], source: str) -> dict[str, list[LedgerEntry]]:
    """Return a source's entries by the configured names of the stream and of the one that it continues."""
    found = defaultdict[str, list[LedgerEntry]](list)
    for entry in entries:
        if entry.source == source:
            for name in {entry.base, base_of(entry.successor_of or entry.stream)}:
                found[name].append(entry)
    return found


async def of_all_segments(settings: Settings, store: Store, witnessed: Witnessed | None = None) -> Settings:
    """Return the settings of every segment that the store or this machine knows, for commands.

    Args and Raises: as ``with_segments``.
    """
    return (await with_segments(settings, store, None, time.time_ns() // 1_000, witnessed)).history


class Witnesses(Witnessed):
    """Asks the witness of a stream: its files on this machine, or its output topic.

    Args: topics, the open output topics, by cluster and name; without them only files are asked.
    Raises (every method): OSError; OperatorError. Cost: for each topic, reads back to the last rows of its
        streams; for a segment that the store does not know, up to the row that holds its settings.
    """

    def __init__(self, settings: Settings, topics: Mapping[tuple[str, str], WitnessTopic] = {}) -> None:
        self._settings, self._topics = settings, topics
        self._directory = settings.state_dir / "witness"
        self._newest: dict[tuple[str, str], asyncio.Task[dict[str, int]]] = {}

    async def newest(self, base: str) -> int:
        output = self._settings.output_of(base)
        if output is None:
            # A damaged first line of the only segment stops nothing while the store has its rows.
            names = reversed(self._in_files.get(base, ()))
            found = (one for one in names if one == base or first_witnessed(self._directory, one))
            return next(map(number_of, found), 0)
        place = output.cluster, output.topic
        if place not in self._topics:
            return 0
        if place not in self._newest:
            outputs = self._settings.outputs
            streams = {base_of(one.stream) for one in outputs if (one.cluster, one.topic) == place}
            self._newest[place] = asyncio.create_task(self._topics[place].newest(streams))
        return (await self._newest[place]).get(base, 0)

    @cached_property
    def _in_files(self) -> Mapping[str, Sequence[str]]:
        """The segments that have a file, by stream: one look at the directory for all streams."""
        return by_stream(with_files(self._directory))

    async def strategy(self, name: str) -> Strategy | None:
        output = self._settings.output_of(base_of(name))
        if number_of(name) > await self.newest(base_of(name)):
            return None
        place = "state.dir/witness" if output is None else f"topic {output.topic}"
        try:
            if output is None:
                return await asyncio.to_thread(_strategy_in_file, self._directory, name)
            return await self._topics[output.cluster, output.topic].strategy(name)
        except OperatorError:
            raise
        except ValueError as failure:
            raise OperatorError(
                f"{place}: the settings in the rows of {name} cannot be read ({failure}); use the release "
                "that wrote them, or a newer one"
            ) from None


def _strategy_in_file(directory: Path, name: str) -> Strategy | None:
    """Return the strategy in the rows of a file. Rows after it are not read: they may be damaged."""
    return next(strategies_in(each_witnessed(directory, name)), None)


class Unwritten(Witness):
    """The witness of a segment that can still be taken back: nobody has made its file or topic."""

    async def claim(self, stream: str) -> None:
        """Do nothing: nobody writes."""

    async def resign(self, stream: str) -> None:
        """Do nothing: nobody writes."""

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        raise AssertionError(f"{stream} has not begun")

    async def head(self, stream: str) -> None:
        """Return None: there is no row."""

    async def rows(self, stream: str, after_seq: int) -> list[WitnessRow]:
        """Return no row."""
        return []
