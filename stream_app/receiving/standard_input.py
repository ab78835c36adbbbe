"""Standard input into a spool: whole lines, synced as they come."""

from __future__ import annotations

import os
import select

from stream_app.receiving.body import lines_in, no_objects
from stream_app.receiving.spool_writer import Incoming, SpoolWriter

BATCH_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 24
_KEPT_OF_LONG_LINE = 1 << 10


def store_lines(writer: SpoolWriter, descriptor: int) -> tuple[int, int]:
    """Store lines until the input ends; return their number, and how many of them are no JSON object.

    A last line without an end is stored, too.

    Lines are durable once no more are waiting, and after each ``BATCH_BYTES``. Of a line that is too long
    its beginning is stored, which becomes a dead letter: an end here would keep all later lines out.
    Raises: OSError if they cannot be stored.
    """
    unfinished, records, others, open_ = _UnfinishedLine(), 0, 0, True
    while open_:
        data, open_ = _available(descriptor)
        first, line_end, rest = data.partition(b"\n")
        unfinished.add(first)
        lines = b""
        if line_end:
            whole, last_end, first = rest.rpartition(b"\n")
            lines = unfinished.taken() + line_end + whole + last_end
            unfinished.add(first)
        if not open_ and unfinished.data:
            lines += unfinished.taken() + b"\n"
        if lines:
            records += sum(stored.records for stored in writer.append([Incoming(lines)]) if stored)
            others += no_objects(lines_in(lines))
    return records, others


class _UnfinishedLine:
    """The line whose end has not come; of a line that is too long, the beginning."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._is_too_long = False

    def add(self, data: bytes) -> None:
        if self._is_too_long:
            return
        self.data += data
        if len(self.data) >= LONGEST_LINE_BYTES:
            del self.data[_KEPT_OF_LONG_LINE:]
            self._is_too_long = True

    def taken(self) -> bytes:
        data, self.data, self._is_too_long = bytes(self.data), bytearray(), False
        return data


def _available(descriptor: int) -> tuple[bytes, bool]:
    """Wait for a first byte; return the bytes that can be read now, and whether more may come."""
    parts = [os.read(descriptor, BATCH_BYTES)]
    length = len(parts[0])
    while parts[-1] and length < BATCH_BYTES and select.select([descriptor], [], [], 0)[0]:
        parts.append(os.read(descriptor, BATCH_BYTES - length))
        length += len(parts[-1])
    return b"".join(parts), bool(parts[-1])
