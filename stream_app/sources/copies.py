"""Recognises a file whose events another file of the same list has: another name of it, or a copy."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from stream_app.ports import OperatorError

Beginning = tuple[int, str]  # of a file: a number of bytes, and their SHA-256

GZIP = ".gz"
COMPARED_BYTES = 4096  # of records: a file that begins with so many bytes of an earlier one is a copy
MOST_COMPARED = 1 << 20  # if both files have more


def check_links(paths: Iterable[Path]) -> None:
    """Check that no two names lead to one file, by a symbolic link, a hard link or a mount.

    Raises: OperatorError, one line.
    """
    names: dict[tuple[int, int], Path] = {}
    for path in paths:
        with suppress(FileNotFoundError):  # renamed just now
            found = path.stat()
            first = names.setdefault((found.st_dev, found.st_ino), path)
            if first is not path:
                link, target = (first, path) if first.is_symlink() else (path, first)
                raise OperatorError(
                    f"{link}: it is another name of {target}, whose events would count twice; move one of "
                    "the names away, or write a list that names the file once"
                )


def first_records(path: Path, csv: bool, most: int = COMPARED_BYTES) -> bytes:
    """Return the first bytes of a file's records, decompressed; nothing if the file cannot be read."""
    try:
        if not path.exists():
            path = path.with_name(path.name + GZIP)  # it was compressed meanwhile
        with gzip.open(path) if path.suffix == GZIP else path.open("rb") as file:
            if csv:
                file.readline(MOST_COMPARED)
            return file.read(most)
    except (OSError, EOFError, zlib.error):
        return b""  # whoever counts the file says it


def is_copy(known: bytes, new: bytes, *, finished: bool) -> bool | None:
    """Return whether a file has the records of an earlier one; None: so far it has, and it may grow.

    Args: known, new, the first bytes of their records; finished, whether the new file has its last byte.

    >>> is_copy(b"a b c ", b"a b c d ", finished=False), is_copy(b"a b c ", b"a x ", finished=True)
    (True, False)
    >>> is_copy(b"a b c ", b"a b ", finished=True), is_copy(b"a b c ", b"a b ", finished=False)
    (True, None)
    """
    common = min(len(known), len(new))
    if not common or known[:common] != new[:common]:
        return False
    return True if finished or len(new) >= min(len(known), COMPARED_BYTES) else None


class Copies:
    """The finished files of a list, in its order, by the first line of their records."""

    def __init__(self, csv: bool) -> None:
        self._csv = csv
        self._by_line: dict[bytes, list[tuple[int, Path]]] = defaultdict(list)

    def add(self, number: int, path: Path) -> None:
        """Add a file. Args: number, its place in the list."""
        if records := first_records(path, self._csv):
            plain = path.with_suffix("") if path.suffix == GZIP else path
            self._by_line[first_line(records)].append((number, plain))

    def copied(self, number: int, new: Callable[[int], bytes], *, finished: bool) -> tuple[Path | None, bool]:
        """Return the earlier file that a new one is a copy of, and whether this is still open.

        Args: number, the place of the new file; new, returns so many of the first bytes of its records;
            finished, whether it has its last byte.
        """
        undecided, records = False, new(COMPARED_BYTES)
        for place, path in self._by_line.get(first_line(records), ()):
            if place >= number:
                break
            known = first_records(path, self._csv)
            if known == records and len(known) == COMPARED_BYTES:
                known, records = first_records(path, self._csv, MOST_COMPARED), new(MOST_COMPARED)
            same = is_copy(known, records, finished=finished)
            if same:
                return path, False
            undecided |= same is None
        return None, undecided


def check_copies(paths: Sequence[Path], csv: bool, *, grows: bool = False) -> None:
    """Check that no file of a list begins as one before it. Args: grows, whether the last one may.

    Raises: OperatorError, one line.
    """
    copies = Copies(csv)
    for number, path in enumerate(paths if len(paths) > 1 else ()):
        finished = not grows or number + 1 < len(paths) or path.suffix == GZIP
        known, _ = copies.copied(number, partial(first_records, path, csv), finished=finished)
        if known is not None:
            raise is_a_copy(path, known)
        copies.add(number, path)


def beginnings(directory: Path) -> set[Beginning]:
    """Return how the files began that were counted here. Args: directory, of one source, with its notes."""
    found: list[dict[str, Any]] = []
    for note in (*directory.glob("*.json"), *directory.glob("files.ndjson")):
        for line in note.read_bytes().splitlines():
            with suppress(ValueError, AttributeError):  # damaged; or a crash cut the last line
                said = json.loads(line)
                found += said.get("files", [said.get("first") or said])
    return {(one["bytes"], one["sha256"]) for one in found if {"bytes", "sha256"} <= one.keys()}


def beginning(path: Path, csv: bool, most: int = COMPARED_BYTES) -> dict[str, Any]:
    """Return the length and the digest of a file's first bytes: a header, and ``most`` bytes of records."""
    start = first_records(path, csv=False, most=MOST_COMPARED)
    start = start[: most + (start.find(b"\n") + 1 if csv else 0)]
    return {"bytes": len(start), "sha256": hashlib.sha256(start).hexdigest()}


def begins_as(path: Path, csv: bool, known: Collection[Beginning]) -> Iterator[Beginning]:
    """Yield the known beginnings with at least one record that a file has, too."""
    start = first_records(path, csv=False, most=max((count for count, _ in known), default=0))
    header = start.find(b"\n") + 1 if csv else 0
    for count in {count for count, _ in known if header < count <= len(start)}:
        if (found := (count, hashlib.sha256(start[:count]).hexdigest())) in known:
            yield found


def is_a_copy(path: Path, known: os.PathLike[str] | str) -> OperatorError:
    """Return the error for a file with the records of another one."""
    return OperatorError(
        f"{path}: it begins with the records of {known}, as a copy does, and they would count twice; move it "
        "away, or, if these are other events, write an empty line before its first record"
    )


def first_line(records: bytes) -> bytes:
    """Return the first line of a file's records, or what is compared of it."""
    return records[:COMPARED_BYTES].partition(b"\n")[0]
