"""The one writer of a spool: batches are whole or absent, durable before they are confirmed, stored once."""

from __future__ import annotations

import logging
import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stream_app.durable import locked, secret_directory, sync_directory
from stream_app.ports import OperatorError
from stream_app.receiving.known_keys import KnownKeys, Stored
from stream_app.spool import RECORDS, Batch, OpenSegment, Segment, encode_batch, noted_batches, segments

SEGMENT_BYTES = 64 << 20
SEGMENT_US = 3_600_000_000
_LOCK = "writer.lock"
_OWNER_ONLY = 0o600

log = logging.getLogger(__name__)


class SpoolFullError(OSError):
    """The spool has its largest size; segments must be counted and deleted first."""


class WriterBrokenError(OSError):
    """It is unknown what the disk holds, and it cannot be checked: only another start can go on."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request's records. Args: data, whole lines; key, the digest of sender and idempotency key."""

    data: bytes
    key: str | None = None


class SpoolWriter:
    """Appends batches to a spool's last segment, and begins a new segment when that is large or old.

    Args:
        directory: the spool's; most_bytes, of its records.
        keys: the keys of stored batches; this writer fills it from the files.
        now_us: microseconds since 1970.
    Raises: OperatorError if another process writes to the spool, or it cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        most_bytes: int,
        keys: KnownKeys,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self._directory, self._most_bytes, self._keys, self._now_us = directory, most_bytes, keys, now_us
        self._last: OpenSegment | None = None
        self._began_us = 0  # when the last segment got its first batch; 0 while it is empty
        try:
            secret_directory(directory)
            self._lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
            try:
                if not locked(self._lock):
                    text = f"{directory}: another process writes to this spool; stop that one first"
                    raise OperatorError(text)
                self._recover()
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as failure:
            raise OperatorError(
                f"{directory}: this spool cannot be used ({failure.strerror}); check the disk"
            ) from None

    def close(self) -> None:
        """Close all files, so that another process can write."""
        if self._last is not None:
            self._last.close()
            self._last = None
        os.close(self._lock)

    def append(self, batches: Sequence[Incoming]) -> list[Stored]:
        """Store batches and make them durable together; return what is stored of each, in their order.

        A batch whose key is known is not stored again: the earlier one is returned.
        Raises: SpoolFullError, and nothing was stored; OSError if it is unknown what was stored: the keys
            say it when the same batches are appended again; WriterBrokenError if no later call can work.
        """
        last = self._last
        if last is None:
            raise WriterBrokenError("the spool cannot be written; see the log, then start again")
        replies: list[Stored | None] = [self._keys.get(batch.key, self._now_us()) for batch in batches]
        new: list[tuple[Batch, bytes]] = []
        end, at_us, sent = last.end, self._now_us(), dict[str, Stored]()
        for number, batch in enumerate(batches):
            if replies[number] is None and batch.key is not None:
                replies[number] = sent.get(batch.key)  # the same key twice in one call
            if replies[number] is not None:
                continue
            end += len(batch.data)
            noted = Batch(end, batch.data.count(b"\n"), zlib.crc32(batch.data), at_us, batch.key)
            new.append((noted, batch.data))
            replies[number] = stored = Stored(noted.records, noted.crc, len(batch.data), is_new=True)
            if batch.key is not None:
                sent[batch.key] = stored.again()
        if new:
            self._write(last, new)
        return [reply for reply in replies if reply is not None]

    def turn_over(self) -> None:
        """Begin a new segment if the last one is large or old enough, so that it can be deleted in time."""
        last = self._last
        if last is None or last.end == last.segment.start:
            return
        is_old = self._now_us() - self._began_us >= SEGMENT_US
        if is_old or last.end - last.segment.start >= SEGMENT_BYTES:
            self._last = None  # a failure leaves no segment; the next start finds one
            last.close()
            self._last = self._begin(last.end)

    def _write(self, last: OpenSegment, new: Sequence[tuple[Batch, bytes]]) -> None:
        data = b"".join(part for _, part in new)
        if self._bytes_kept() + len(data) > self._most_bytes:
            raise SpoolFullError("the spool is full")
        try:
            _write_at(last.records, last.end - last.segment.start, data)
        except OSError:
            # No line names these bytes yet, so nobody can have read them.
            os.ftruncate(last.records, last.end - last.segment.start)
            raise
        try:
            lines = b"".join(encode_batch(batch) + b"\n" for batch, _ in new)
            _write_at(last.batches, last.noted_bytes, lines)
            last.sync()
        except OSError:
            self._recover_or_break()
            raise
        last.end, last.noted_bytes = new[-1][0].end, last.noted_bytes + len(lines)
        self._began_us = self._began_us or new[0][0].at_us
        self._remember_all(new[0][0].end - len(new[0][1]), [batch for batch, _ in new])
        self.turn_over()

    def _recover_or_break(self) -> None:
        """Find out what the disk holds after a failed write or sync: readers may have used whole batches."""
        if self._last is not None:
            self._last.close()
            self._last = None
        try:
            self._recover()
        except OSError as failure:
            log.error("%s: the disk fails (%s); start again when it works", self._directory, failure.strerror)

    def _recover(self) -> None:
        """Open the last segment; keep its whole batches, cut the rest off, and make what is left durable."""
        found = segments(self._directory)
        for segment in found[:-1]:
            self._remember_all(segment.start, noted_batches(segment))
        if not found:
            self._last = self._begin(0)
            return
        _touch(found[-1].batches)
        last = OpenSegment(found[-1], os.O_RDWR)
        try:
            whole = list(last.new_batches())
            cut = os.fstat(last.records).st_size - (last.end - last.segment.start)
            os.ftruncate(last.records, last.end - last.segment.start)
            os.ftruncate(last.batches, last.noted_bytes)
            os.fsync(last.records)
            os.fsync(last.batches)
            sync_directory(self._directory)
        except BaseException:
            last.close()
            raise
        if cut > 0:
            log.warning("%s: removed records that were never confirmed, after a crash", self._directory)
        self._remember_all(last.segment.start, whole)
        self._began_us = whole[0].at_us if whole else 0
        self._last = last

    def _begin(self, start: int) -> OpenSegment:
        """Begin an empty segment, whose names are durable when this returns."""
        segment = Segment(self._directory, start)
        _touch(segment.batches)  # first, so that a segment with records has batches
        _touch(segment.records)
        sync_directory(self._directory)
        self._began_us = 0
        return OpenSegment(segment, os.O_RDWR)

    def _remember_all(self, start: int, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if batch.key is not None:
                self._keys.add(batch.key, batch.at_us, Stored(batch.records, batch.crc, batch.end - start))
            start = batch.end

    def _bytes_kept(self) -> int:
        return sum(path.stat().st_size for path in self._directory.glob(f"*{RECORDS}"))


def _write_at(descriptor: int, offset: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written


def _touch(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY))
