"""Recognises a file whose events another file of the same list has: another name of it, or a copy."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from stream_app.core.json_objects import bare
from stream_app.ports import OperatorError
from stream_app.sources.packed import DAMAGE, ENDINGS, is_packed, open_packed

Beginning = tuple[int, str]  # of a file: a number of bytes, and their SHA-256
Marks = tuple[str, ...]  # of a file: digests of its beginnings, at most ``MOST_MARKS``

COMPARED_BYTES = 4096  # of records: they identify a file
FEWEST_RECORDS = 5  # different records that make a file a copy; fewer may be equal by chance
_MARKED = (1, 2, 3, 4, FEWEST_RECORDS, 8, 16, 32)  # different records in each compared beginning
MOST_MARKS = len(_MARKED)
_COMPARED_FIRST = 1 << 16  # bytes
WRITTEN_NS = 2_000_000_000  # a younger compressed file may still grow, and its plain file then be deleted
MOST_COMPARED = 1 << 20  # bytes, if the first ones have too few different records

log = logging.getLogger(__name__)


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


def check_forms(forms: Sequence[Path]) -> None:
    """Check that the forms of one file, plain or compressed, have the same records, as far as bytes tell.

    Log a warning of each form that is not read, once it is not being written any more.
    Args: forms, the one that is read first.
    Raises: OperatorError, one line.
    """
    read, *others = forms
    for other in others:
        records = first_records(other, csv=False)
        if not first_records(read, csv=False).startswith(records):
            raise OperatorError(
                f"{other}: its records are not those of {read}, which has the same name in the list; rename "
                "one of the files, or move it away"
            )
        with suppress(FileNotFoundError):  # it was the plain form of a file that was compressed just now
            if time.time_ns() - other.stat().st_mtime_ns > WRITTEN_NS:
                _warn_of_form(other, read)


@lru_cache(1024)
def _warn_of_form(other: Path, read: Path) -> None:
    log.warning("%s: it is another form of %s, which is read; it is not counted", other, read)


def first_records(path: Path, csv: bool, most: int = COMPARED_BYTES) -> bytes:
    """Return the first bytes of a file's records, decompressed; nothing if the file cannot be read.

    Raises: OperatorError without the package of its compression.
    """
    try:
        if not path.exists():  # it was compressed meanwhile
            packed = (path.with_name(path.name + ending) for ending in ENDINGS)
            path = next(filter(Path.exists, packed), path)
        with open_packed(path) if is_packed(path) else path.open("rb") as file:
            if csv:
                file.readline(MOST_COMPARED)
            return file.read(most)
    except DAMAGE:
        return b""  # the reader that counts the file reports the damage


def marks_of(first: Callable[[int], bytes]) -> Marks:
    """Return digests of a file's beginnings: up to its first record, its second different one, and so on.

    Args: first, returns so many of the first bytes of its records.

    >>> len(marks_of(lambda most: b"a\\nb\\na\\nc")), marks_of(lambda most: b"")
    (3, ())
    """
    records = first(_COMPARED_FIRST)
    if len(records) < _COMPARED_FIRST:
        return _marks(records)
    found = _marks(records[: records.rfind(b"\n") + 1])
    return found if len(found) == MOST_MARKS else _marks(first(MOST_COMPARED))


def _marks(records: bytes) -> Marks:
    seen, digest, found = set[bytes](), hashlib.sha256(), list[str]()
    for line in io.BytesIO(records):
        record = bare(line)
        digest.update(record + b"\n")
        if record not in seen:
            seen.add(record)
            if len(seen) in _MARKED:
                found.append(digest.hexdigest()[:32])
                if len(found) == MOST_MARKS:
                    break
    return tuple(found)


def common_records(known: Marks, new: Marks) -> int:
    """Return how many first different records two files share, up to the shorter one's end; 0 if one differs.

    >>> common_records(("1", "2"), ("1", "2", "3")), common_records(("1", "2"), ("1", "4"))
    (2, 0)
    """
    common = min(len(known), len(new))
    return _MARKED[common - 1] if common and known[common - 1] == new[common - 1] else 0


def check_copies(paths: Sequence[Path], csv: bool) -> None:
    """Check that no file of a list begins like an earlier one; log a warning for files too short to compare.

    Raises: OperatorError, one line.
    """
    known: dict[str, list[tuple[Marks, Path]]] = defaultdict(list)  # by the first mark
    for path in paths if len(paths) > 1 else ():
        if new := marks_of(partial(first_records, path, csv)):
            common = {earlier: common_records(marks, new) for marks, earlier in known[new[0]]}
            check_common(path, common)
            known[new[0]].append((new, path))


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
    return beginning_of(start[: most + (start.find(b"\n") + 1 if csv else 0)])


def beginning_of(start: bytes) -> dict[str, Any]:
    return {"bytes": len(start), "sha256": hashlib.sha256(start).hexdigest()}


def notes_more(noted: int, wanted: int, most: int) -> bool:
    """Return whether to note a growing file again. Args: number of first bytes; most, noted so far.

    >>> notes_more(0, 1, 4096), notes_more(100, 150, 4096), notes_more(4000, 4096, 4096)
    (True, False, True)
    """
    return wanted >= max(2 * noted, 1) or noted < wanted == most


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


def check_common(path: Path, common: Mapping[Any, int]) -> None:
    """Refuse a file that begins with the records of an earlier one; log a warning if few records are equal.

    Args: common, for each earlier file, with how many of its different records this file begins.
    Raises: OperatorError, one line.
    """
    known = max(common, key=common.__getitem__, default=None)
    if known is None or not common[known]:
        return
    if common[known] >= FEWEST_RECORDS:
        raise is_a_copy(path, known)
    log.warning(
        "%s: it begins with %d different records of %s, too few to tell a copy by; they count in both files, "
        "so write no copies into the list",
        path,
        common[known],
        known,
    )
