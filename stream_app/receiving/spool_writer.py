"""The writers of a spool: batches are whole or absent, durable before they are confirmed, stored once.

Several processes may write to one spool in turns: a listener, and commands that read standard input. Each
holds the lock only while it appends, and first takes over the batches that others wrote since, or left
behind.
"""

from __future__ import annotations

import errno
import logging
import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stream_app.durable import secret_directory, sync_directory, waited_for
from stream_app.ports import OperatorError
from stream_app.receiving.body import lines_in
from stream_app.receiving.known_keys import KnownKeys, Stored
from stream_app.spool import (
    Batch,
    OpenPart,
    Part,
    bytes_kept,
    encode_batch,
    last_batch,
    noted_batches,
    parts,
)

PART_BYTES = 64 << 20
PART_BATCHES_BYTES = 8 << 20  # of its file of batches, which is read whole
PART_US = 3_600_000_000
_LOCK = "writer.lock"
_OWNER_ONLY = 0o600
_REWRITTEN_AT_ONCE = 1 << 20
_MAY_PASS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

log = logging.getLogger(__name__)


class SpoolFullError(OSError):
    """The spool has its largest size; parts must be counted and deleted first."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request's records.

    Args: data, whole lines; key, the digest of sender and idempotency key; sender, the mark of an API key.
    """

    data: bytes
    key: str | None = None
    sender: str | None = None


class SpoolWriter:
    """Appends batches to a spool's last part, and begins a new part when that is large or old.

    Args:
        directory: the spool's; most_bytes, of its files.
        keys: the keys of stored batches; this writer fills it from the files.
        now_us: microseconds since 1970.
    Raises: OperatorError if the directory cannot be used. A disk that fails now may work later.
    """

    def __init__(
        self,
        directory: Path,
        most_bytes: int,
        keys: KnownKeys,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self.directory, self._most_bytes, self._keys, self._now_us = directory, most_bytes, keys, now_us
        self._last: OpenPart | None = None
        self._synced = 0  # up to here this process knows that the last part is on the disk
        self._found: list[Batch] = []  # whole batches after that
        self._is_named = True  # whether the last part's names are on the disk
        self._began_us = 0  # when the last part got its first batch; 0 while it is empty
        self._most_kept = 0  # bytes of all files when they were looked at, and what was written since
        try:
            secret_directory(directory)
            self._lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        except OSError as failure:
            raise self._unusable(failure) from None
        try:
            with self._alone():
                pass
        except OSError as failure:
            if failure.errno not in _MAY_PASS:
                self.close()
                raise self._unusable(failure) from None
            log.error("%s: the disk fails (%s); trying again", directory, failure.strerror)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._forget_last()
        os.close(self._lock)

    def append(self, batches: Sequence[Incoming]) -> list[Stored | None]:
        """Store batches and make them durable together; return the place of each, in their order.

        A batch whose key is known is not stored again: the earlier one is returned. None is returned for a
        batch that is not stored, because too many keys of its sender are remembered.
        Raises: SpoolFullError, and nothing was stored; OSError if it is unknown what was stored: the keys
            say it when the same batches are appended again, even if other calls come first.
        """
        with self._alone() as last:
            at_us, end = self._now_us(), last.end
            replies: list[Stored | None] = []
            new: list[tuple[Batch, bytes]] = []
            sent, coming = dict[str, Stored](), Counter[str | None]()
            self._keys.forget_old(at_us)
            for batch in batches:
                key, sender = batch.key, batch.sender
                known = self._keys.get(sender, key) or sent.get(key or "")  # the same key twice in one call
                if known is not None or (key is not None and not self._keys.has_room(sender, coming[sender])):
                    replies.append(known)
                    continue
                end += len(batch.data)
                noted = Batch(end, len(lines_in(batch.data)), zlib.crc32(batch.data), at_us, key, sender)
                new.append((noted, batch.data))
                stored = Stored(noted.records, noted.crc, len(batch.data), is_new=True)
                replies.append(stored)
                if key is not None:
                    sent[key] = replace(stored, is_new=False)
                    coming[sender] += 1
            if new:
                self._write(last, new)
                self._turn_over(last)
        return replies

    def turn_over(self) -> None:
        """Begin a new part if the last one is large or old enough, so that it can be deleted in time."""
        try:
            with self._alone() as last:
                self._turn_over(last)
        except OSError as failure:
            log.error("%s: the disk fails (%s); trying again", self.directory, failure.strerror)

    @contextmanager
    def _alone(self) -> Iterator[OpenPart]:
        """Keep other writers out, and yield the last part, all of whose batches are whole and durable."""
        with waited_for(self._lock):
            if self._last is not None and not os.fstat(self._last.records).st_nlink:
                self._forget_last()  # counted and deleted, while other processes wrote
            if self._last is None:
                self._find_last()
            yield self._catch_up()

    def _find_last(self) -> None:
        """Open the last part, and remember the batches' keys of earlier parts that are not too old."""
        found = parts(self.directory)
        for part in found[:-1]:
            last = last_batch(part)
            if last is not None and self._keys.remembers(last.at_us, self._now_us()):
                self._remember_all(part.start, noted_batches(part))
        if found:
            _touch(found[-1].batches)
            self._use(OpenPart(found[-1], os.O_RDWR))
        else:
            self._begin(0)
        self._most_kept = bytes_kept(self.directory)

    def _catch_up(self) -> OpenPart:
        """Return the last part, after other processes or a failed write: keep its whole batches, cut the
        rest off, and make what is left durable."""
        last = self._last
        assert last is not None
        while True:
            self._take_over(last)
            following = Part(self.directory, last.end)
            if last.end == last.part.start or not following.records.exists():
                return last
            last = self._use(OpenPart(following, os.O_RDWR))

    def _take_over(self, last: OpenPart) -> None:
        if not self._is_named:
            sync_directory(self.directory)
            self._is_named = True
        if _sizes(last) == (last.end - last.part.start, last.noted_bytes) and self._synced == last.end:
            return
        self._found += last.new_batches()
        whole = last.end - last.part.start
        if _sizes(last) != (whole, last.noted_bytes):
            log.warning("%s: removed records that were never confirmed", self.directory)
            os.ftruncate(last.records, whole)
            os.ftruncate(last.batches, last.noted_bytes)
        # A sync that failed may have forgotten what it did not write: the next sync would succeed without it.
        _write_again(last.records, self._synced - last.part.start, whole)
        _write_again(last.batches, 0, last.noted_bytes)
        last.sync()
        self._confirm(last, self._found)

    def _write(self, last: OpenPart, new: Sequence[tuple[Batch, bytes]]) -> None:
        data = b"".join(part for _, part in new)
        lines = b"".join(encode_batch(batch) + b"\n" for batch, _ in new)
        self._make_room(len(data) + len(lines))
        # After a failure the next call finds out what is stored: readers may have used whole batches.
        _write_at(last.records, last.end - last.part.start, data)
        _write_at(last.batches, last.noted_bytes, lines)
        last.sync()
        last.end, last.noted_bytes = new[-1][0].end, last.noted_bytes + len(lines)
        self._confirm(last, [batch for batch, _ in new])

    def _confirm(self, last: OpenPart, batches: Sequence[Batch]) -> None:
        """Take the keys of batches, now that they are on the disk up to the end of the part."""
        if batches:
            self._remember_all(self._synced, batches)
            self._began_us = self._began_us or batches[0].at_us
        self._synced, self._found = last.end, []

    def _make_room(self, length: int) -> None:
        if self._most_kept + length > self._most_bytes:
            self._most_kept = bytes_kept(self.directory)
        if self._most_kept + length > self._most_bytes:
            raise SpoolFullError("the spool is full")
        self._most_kept += length

    def _turn_over(self, last: OpenPart) -> None:
        records = last.end - last.part.start
        if not records:
            return
        is_old = self._now_us() - self._began_us >= PART_US
        if is_old or records >= PART_BYTES or last.noted_bytes >= PART_BATCHES_BYTES:
            try:
                self._begin(last.end)
            except OSError as failure:  # what was confirmed stays so, and the old part can go on
                log.error("%s: no new file can be made (%s)", self.directory, failure.strerror)

    def _begin(self, start: int) -> None:
        """Begin an empty part. Its names are made durable before anything in it is confirmed."""
        part = Part(self.directory, start)
        _touch(part.batches)  # first, so that a part with records has batches
        _touch(part.records)
        self._use(OpenPart(part, os.O_RDWR))

    def _use(self, opened: OpenPart) -> OpenPart:
        """Make an open part the last one. Its writer may have died before the names were durable."""
        self._forget_last()
        self._last, self._synced, self._found, self._began_us = opened, opened.part.start, [], 0
        self._is_named = False
        return opened

    def _forget_last(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None

    def _remember_all(self, start: int, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if batch.key is not None:
                stored = Stored(batch.records, batch.crc, batch.end - start)
                self._keys.add(batch.sender, batch.key, batch.at_us, stored)
            start = batch.end

    def _unusable(self, failure: OSError) -> OperatorError:
        return OperatorError(
            f"{self.directory}: this spool cannot be used ({failure.strerror}); check its rights and the disk"
        )


def _sizes(opened: OpenPart) -> tuple[int, int]:
    return os.fstat(opened.records).st_size, os.fstat(opened.batches).st_size


def _write_again(descriptor: int, start: int, end: int) -> None:
    while start < end:
        data = os.pread(descriptor, min(_REWRITTEN_AT_ONCE, end - start), start)
        _write_at(descriptor, start, data)
        start += len(data)


def _write_at(descriptor: int, offset: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written


def _touch(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY))
