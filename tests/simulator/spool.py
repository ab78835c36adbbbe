"""What is sent to a spool, and what it must hold: read from its files, not with the service's code."""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from stream_app.spool import BATCHES, RECORDS
from tests.simulator.checks import Broken
from tests.simulator.log import FIELDS, Entry, Kind, Log
from tests.stream_app.receiving.failing_disk import FailingDisk

SENDERS = 3
MOST_RECORDS = 4  # of a request


@dataclass(frozen=True, slots=True)
class Arrived(Entry):
    """A record in the spool. Args: mark, decides its fields, wherever and whenever it arrived."""

    mark: int = 0  # of an Entry it is a property


@dataclass(frozen=True, slots=True)
class Request:
    """Records that are sent together.

    Args: number, unique; sender, the number of its sender; at_us, when it is first sent.
    """

    number: int
    sender: int
    at_us: int
    entries: tuple[Entry, ...]

    @property
    def key(self) -> str:
        """The idempotency key. Other senders use the same keys for other requests."""
        return str(self.number // SENDERS)

    @property
    def lines(self) -> list[bytes]:
        """The records as they are sent."""
        return [_line(entry, f"{self.number}.{place}") for place, entry in enumerate(self.entries)]


def draw_requests(entries: Sequence[Entry], rng: random.Random) -> list[Request]:
    """Draw which of these records are sent together; each request is sent when its last record is due.

    A record that is no JSON object is sent beside one that is: a request without an object is refused.
    """
    requests, first = list[Request](), 0
    while first < len(entries):
        size = rng.randint(1, MOST_RECORDS)
        while first + size < len(entries) and _is_refused(entries[first : first + size]):
            size += 1
        together = tuple(entries[first : first + size])
        if _is_refused(together):
            together = (*requests[-1].entries, *together)
            first -= len(requests.pop().entries)
        number = len(requests)
        requests.append(Request(number, number % SENDERS, together[-1].arrival_us, together))
        first += len(together)
    return requests


def _is_refused(entries: Sequence[Entry]) -> bool:
    kinds = {entry.kind for entry in entries}
    return Kind.UNDECODABLE in kinds and kinds <= {Kind.UNDECODABLE, Kind.GAP}


def _line(entry: Entry, name: str) -> bytes:
    """Return a record as a line; a gap is a blank line, which is no record."""
    if entry.kind is Kind.GAP:
        return b"\n"
    if entry.kind is Kind.UNDECODABLE:
        return b'{"name": "%s"\n' % name.encode()
    said = {"name": name, "time": entry.time_us} | {field: getattr(entry, field) for field in FIELDS}
    return json.dumps({field: value for field, value in said.items() if value is not None}).encode() + b"\n"


class SpoolLog:
    """The log that a spool holds at each instant, by byte; and what was confirmed or counted of it.

    Args: directory, of the spool; requests, all that are ever sent.
    """

    def __init__(self, directory: Path, requests: Sequence[Request], disk: FailingDisk) -> None:
        self.used = 0  # a worker has counted up to here
        self.confirmed: set[int] = set()
        self._directory, self._disk = directory, disk
        self._data, self._durable = b"", 0
        self._entries: list[Entry] = []  # one for each byte: a record is where its line begins
        self._sent = {
            line: entry
            for request in requests
            for line, entry in zip(request.lines, request.entries, strict=True)
            if entry.kind is not Kind.GAP
        }
        self._records = {
            request.number: [line for line in request.lines if line in self._sent] for request in requests
        }
        self.log = Log({"0": cast("tuple[Entry, ...]", self._entries)}, {"0": 0})

    def look(self, now_us: int) -> None:
        """Take in what changed in the files at this instant. Raises: Broken."""
        data = self._whole(durable=False)
        kept = _common(self._data, data)
        if kept < self.used:
            raise Broken(f"the spool has lost byte {kept}, and a worker has counted up to {self.used}")
        del self._entries[kept:]
        for line in data[kept:].splitlines(keepends=True):
            self._entries += self._entries_of(line, now_us)
        self._data = data

    def confirm(self, request: Request) -> None:
        """Note that a request was answered with 200. Raises: Broken if a power failure could lose it."""
        self.confirmed.add(request.number)
        self._check_stored(request.number, self._whole(durable=True))

    def use(self, position: int) -> None:
        """Note that a worker has counted up to a position. Raises: Broken if it is not on the disk.

        After a failed sync nobody can know what is on the disk, until the listener has written it again.
        """
        self.used = max(self.used, position)
        if position > self._durable and not self._disk.is_in_doubt:
            self._durable = len(self._whole(durable=True))
            if position > self._durable:
                raise Broken(f"records up to {position} are counted, and a power failure could lose them")

    def check(self) -> None:
        """Check that each confirmed record is stored, and none is stored twice. Raises: Broken."""
        for number in self.confirmed:
            self._check_stored(number, self._data)
        stored = Counter(line for line in self._data.splitlines(keepends=True) if line in self._sent)
        if twice := [line for line, times in stored.items() if times > 1]:
            raise Broken(f"{len(twice)} records are stored twice, such as {twice[0]!r}")

    def _check_stored(self, number: int, data: bytes) -> None:
        stored = set(data.splitlines(keepends=True))
        if missing := [line for line in self._records[number] if line not in stored]:
            raise Broken(f"request {number} was confirmed, and its record {missing[0]!r} is not stored")

    def _entries_of(self, line: bytes, now_us: int) -> list[Entry]:
        """Return the entries of a line's bytes."""
        gap = Entry(Kind.GAP, now_us)
        if line == b"\n":
            return [gap]
        if line not in self._sent:
            raise Broken(f"the spool holds a record that nobody has sent: {line!r}")
        sent = self._sent[line]
        return [Arrived(sent.kind, now_us, sent.time_us, sent.mark), *[gap] * (len(line) - 1)]

    def _whole(self, *, durable: bool) -> bytes:
        """Return the log up to its last whole batch. Args: durable, as a power failure leaves it."""
        data = b""
        for start, records, batches in self._files(durable):
            if start != len(data):
                break
            data += records[: _end(start, records, batches)]
        return data

    def _files(self, durable: bool) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the start and both files of each part, in order."""
        for records in sorted(self._directory.glob(f"*{RECORDS}")):
            paths = records, records.with_suffix(BATCHES)
            if durable:
                found = [self._disk.durable(path) for path in paths]
            else:
                found = [path.read_bytes() if path.exists() else b"" for path in paths]
            yield int(records.stem), found[0], found[1]


def _end(start: int, records: bytes, batches: bytes) -> int:
    """Return the number of bytes of a part that belong to whole batches."""
    end = 0
    for line in batches.split(b"\n")[:-1]:
        try:
            batch = json.loads(line)
        except ValueError:
            break
        after = batch["end"] - start
        if after > len(records) or zlib.crc32(records[end:after]) != batch["crc"]:
            break
        end = after
    return end


def _common(before: bytes, after: bytes) -> int:
    """Return the length of the whole lines with which both begin."""
    if after.startswith(before):
        return len(before)
    length = 0
    for one, other in zip(before.splitlines(keepends=True), after.splitlines(keepends=True), strict=False):
        if one != other:
            break
        length += len(one)
    return length
