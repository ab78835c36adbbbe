"""A spool as a log: events that arrived over HTTP or stdin, read as far as they are on the disk."""

from __future__ import annotations

import asyncio
import bisect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from stream_app.core.incoming import RecordBatch
from stream_app.durable import sync_directory, write_durably
from stream_app.ports import OperatorError
from stream_app.sources.copies import COMPARED_BYTES, beginning_of, notes_more
from stream_app.sources.decode import TimeField
from stream_app.sources.lines import PARTITION, GrowingFile, LineFile, moved, open_lines
from stream_app.spool import OpenPart, Part, last_batch, noted_batches, parts


class SpoolSource(GrowingFile):
    """Follow a spool from any position. A spool that nobody has written to yet is an empty log.

    Guarantee: every end that this source returns, and every record below it, is on the disk. This process
        syncs the batches that it finds in the last part; the writer synced a part before it began the next
        one.
    Args:
        directory, time: the spool, and where its records have their time.
        notes: a directory of this spool only; keeps how its parts began, to recognise a file of events
            that is one of them.
        others: paths of other fields to decode.
    Raises (every method): OperatorError if the parts are not those counted so far.
    """

    def __init__(self, directory: Path, time: TimeField, notes: Path, others: Sequence[str] = ()) -> None:
        self._directory, self._time, self._others = directory, time, others
        self._notes = notes
        self._noted: dict[int, int] = {}  # by the start of a part: how many first bytes are noted
        self._parts: list[Part] = []
        self._last: OpenPart | None = None
        self._reading: tuple[int, LineFile] | None = None  # the start of a part, and its records
        self._looking = asyncio.Lock()
        self._end = 0

    async def first_position(self, partition: str, since_us: int | None) -> int:
        """Return the start of the first part that is left, or that has records since an instant."""
        await self._advance()
        found = self._parts
        for part in found[:-1]:
            last = last_batch(part)
            if since_us is None or (last is not None and last.at_us >= since_us):
                return part.start
        return found[-1].start if found else 0

    async def kept_since_us(self) -> int | None:  # type: ignore[override]
        """Return when the first record that is left arrived; None if no part was deleted."""
        await self._advance()
        if not self._parts or self._parts[0].start == 0:
            return None
        for part in self._parts:
            if batches := noted_batches(part):
                return batches[0].at_us
        return int(self._parts[0].batches.stat().st_mtime * 1e6)

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        return dict.fromkeys(partitions, [await self._advance()] * len(instants_us))

    async def _after(self, position: int) -> RecordBatch | None:
        end = await self._advance()
        if position > end:
            raise OperatorError(f"{self._directory}: this is not the spool counted so far; put that back")
        return await self._batch(position, end) if position < end else None

    def ends(self) -> Mapping[str, int]:
        """Return the spool's end when it was last read, for the operator's lag metric."""
        return {PARTITION: self._end}

    async def close(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None
        self._stop_reading()

    async def _advance(self) -> int:
        """Return the end of the log, once all before it is durable. A sync does not stop the event loop."""
        async with self._looking:
            self._end = await asyncio.to_thread(self._look)
        return self._end

    def _look(self) -> int:
        if not self._directory.is_dir():
            return self._end
        found = parts(self._directory)
        if not found:
            return self._end
        if self._last is None or self._last.part.start != found[-1].start:
            opened = OpenPart(found[-1])
            sync_directory(self._directory)
            if self._last is not None:
                self._last.close()
            self._last = opened
        before = self._last.end
        for _ in self._last.new_batches():
            pass
        if self._last.end != before:
            try:
                self._last.sync()
            except OSError:
                self._last.close()
                self._last = None  # look at everything again before any of it is used
                raise
        self._parts = found
        return self._last.end

    async def _batch(self, position: int, end: int) -> RecordBatch:
        starts = [part.start for part in self._parts]
        number = bisect.bisect_right(starts, position) - 1
        if number < 0:
            raise OperatorError(
                f"{self._directory}: records were deleted before they were counted; put their files back"
            )
        start, stop = starts[number], [*starts[1:], end][number]
        if self._reading is None or self._reading[0] != start:
            self._stop_reading()
            lines = open_lines(self._parts[number].records, "ndjson", self._time, self._others)
            self._reading = start, lines
        lines = self._reading[1]
        offset, limit = position - start, stop - start
        if offset and lines.bytes_at(offset - 1, 1) != b"\n":
            raise OperatorError(f"{self._directory}: this is not the spool counted so far; put that back")
        await self._note_beginning(start, lines, limit)
        batch = await lines.read_in_turns(offset, limit)
        assert batch is not None  # batches end with a line end
        return moved(batch, start, batch.end + start)

    async def _note_beginning(self, start: int, lines: LineFile, size: int) -> None:
        """Note durably how a part begins, before its records are counted."""
        wanted = min(size, COMPARED_BYTES)
        if notes_more(self._noted.get(start, 0), wanted, COMPARED_BYTES):
            note = json.dumps(beginning_of(lines.bytes_at(0, wanted))).encode()
            await asyncio.to_thread(write_durably, self._notes / f"{start:020}.json", [note])
            self._noted[start] = wanted

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None
