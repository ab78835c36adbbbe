"""Standard input into a spool: whole lines, synced as they come."""

from __future__ import annotations

import os
import select

from stream_app.receiving.spool_writer import Incoming, SpoolWriter

BATCH_BYTES = 1 << 20


def store_lines(writer: SpoolWriter, descriptor: int) -> int:
    """Store lines until the input ends; return their number. A last line without an end is stored, too.

    Lines are durable once no more are waiting, and after each ``BATCH_BYTES``.
    Raises: OSError if they cannot be stored.
    """
    unfinished, records, open_ = b"", 0, True
    while open_:
        data, open_ = _available(descriptor)
        whole, line_end, unfinished = (unfinished + data).rpartition(b"\n")
        lines = whole + line_end
        if not open_ and unfinished:
            lines += unfinished + b"\n"
        if lines:
            records += sum(stored.records for stored in writer.append([Incoming(lines)]))
    return records


def _available(descriptor: int) -> tuple[bytes, bool]:
    """Return what can be read now, after waiting for the first byte; and whether more may come."""
    parts = [os.read(descriptor, BATCH_BYTES)]
    length = len(parts[0])
    while parts[-1] and length < BATCH_BYTES and select.select([descriptor], [], [], 0)[0]:
        parts.append(os.read(descriptor, BATCH_BYTES - length))
        length += len(parts[-1])
    return b"".join(parts), bool(parts[-1])
