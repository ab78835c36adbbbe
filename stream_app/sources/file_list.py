"""The files of one log in the order of their names, and the durable notes about them."""

from __future__ import annotations

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream_app.durable import LineLog
from stream_app.ports import OperatorError
from stream_app.sources.copies import (
    COMPARED_BYTES,
    FEWEST_RECORDS,
    MOST_MARKS,
    Marks,
    beginning_of,
    check_common,
    check_forms,
    check_links,
    common_records,
    first_records,
    is_a_copy,
    marks_of,
    notes_more,
)
from stream_app.sources.packed import ENDINGS, is_packed, unpacked_name

if TYPE_CHECKING:
    from stream_app.sources.lines import LineFile

FIRST_BYTES = COMPARED_BYTES  # behind a header, that identify a file
_NOTES = "files.ndjson"
_NUMBERED = re.compile(r"\d+([-_.]\d+)*", re.ASCII)
_OTHER_PATTERN = re.compile(r"[?\[]")
_SETTLED_NS = 2_000_000_000  # a directory's time has coarse ticks: a younger one is listed again


def is_list(path: Path) -> bool:
    """Return whether a path names a list of files, or one file that has to be decompressed.

    >>> is_list(Path("clicks-*.ndjson")), is_list(Path("clicks.ndjson.gz")), is_list(Path("clicks.ndjson"))
    (True, True, False)
    """
    return "*" in path.name or is_packed(path)


def files_of(pattern: Path) -> dict[str, Path]:
    """Return the existing files of a list in order: each file by its name, as if it was not compressed.

    Raises: OSError if the directory cannot be read; OperatorError if two names lead to one file, or a plain
        and a compressed file with one name have different records.
    """
    forms = _forms(pattern)
    for several in forms.values():
        check_forms(several)
    files = {name: first for name, (first, *_) in forms.items()}
    check_links(files.values())
    return files


def listed(pattern: Path) -> dict[str, Path]:
    """Return the result of ``files_of``, with all names of each file. Raises: OSError."""
    return {name: first for name, (first, *_) in _forms(pattern).items()}


def _forms(pattern: Path) -> dict[str, list[Path]]:
    """Return the forms of each file: the plain one before the compressed ones, which may still be written."""
    wanted = unpacked_name(pattern.name)
    found: dict[str, list[Path]] = defaultdict(list)
    with os.scandir(pattern.parent) as entries:
        for entry in entries:
            name = unpacked_name(entry.name)
            if fnmatchcase(name, wanted) and entry.is_file():
                found[name].append(pattern.parent / entry.name)
    return {name: sorted(forms) for name, forms in sorted(found.items())}


def in_order(pattern: Path, names: Iterable[str], known: Sequence[str] = ()) -> list[str]:
    """Return names in the order in which their files are read: by their numbers, or by letter.

    By their numbers if nothing else varies. Numbers of equal length have the same order either way.
    Args: known, names that were read in this order already; an older version read all names by letter.

    >>> in_order(Path("clicks-*.csv"), ["clicks-10.csv", "clicks-9.csv"])
    ['clicks-9.csv', 'clicks-10.csv']
    >>> in_order(Path("clicks-*.csv"), ["clicks-9a.csv", "clicks-10a.csv"])
    ['clicks-10a.csv', 'clicks-9a.csv']
    """
    numbers = {name: _numbers(pattern, name) for name in (*known, *names)}
    kinds = {None if found is None else found[0] for found in numbers.values()}
    read = [numbers[name] for name in known]
    if None in kinds or len(kinds) != 1 or read != sorted(read, key=lambda found: found[1] if found else ()):
        return sorted(names)
    return sorted(names, key=lambda name: ((numbers[name] or ("", ()))[1], name))


def misplaced(pattern: Path, names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that are read one after the other against the order of their numbers, or None.

    >>> misplaced(Path("a-*.csv"), ["a-9x.csv", "a-10x.csv"])
    ('a-10x.csv', 'a-9x.csv')
    """
    for first, second in pairwise(in_order(pattern, names)):
        by_number = (_with_numbers(first), _with_numbers(second))
        if _skeleton(first) == _skeleton(second) and by_number[0] > by_number[1]:
            return first, second
    return None


def _with_numbers(name: str) -> list[int]:
    return list(map(int, re.findall(r"[0-9]+", name)))


def _skeleton(name: str) -> str:
    return re.sub(r"[0-9]+", "0", name)


def _numbers(pattern: Path, name: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the texts between the numbers in a name, and the numbers; None if letters vary in it.

    >>> _numbers(Path("a-*.csv"), "a-2024-09.csv"), _numbers(Path("a-*.csv"), "a-x1.csv")
    (('-', (2024, 9)), None)
    """
    wanted = unpacked_name(pattern.name)
    start, stop = wanted.find("*"), len(name) - (len(wanted) - wanted.rfind("*") - 1)
    if start < 0 or _OTHER_PATTERN.search(wanted) or not _NUMBERED.fullmatch(varied := name[start:stop]):
        return None
    return re.sub(r"\d", "", varied), tuple(map(int, re.findall(r"\d+", varied)))


@dataclass(slots=True)
class ListedFile:
    """One known file.

    Args:
        appeared_us: when the worker first saw it; every record of a later file was written after that.
        ended_at: its length when the next file appeared; None if it is the last, or was compressed then.
        first: the length and digest of its first bytes, to recognise it; None while it is empty.
        marks: how its records begin; none in notes of older versions.
    """

    name: str
    appeared_us: int
    ended_at: int | None = None
    first: dict[str, Any] | None = None
    marks: Marks = ()


class FileList:
    """The known files of a log. Each fact is durable before the caller learns it.

    Args: pattern, a path with ``*`` in its name; directory, of this log only, for the notes; csv, whether the
        files begin with a header.
    Raises (every method): OperatorError if the files cannot be the log that the notes describe.
    """

    def __init__(self, pattern: Path, directory: Path, csv: bool = False) -> None:
        self.pattern = pattern
        self.files: list[ListedFile] = []
        self.paths: dict[str, Path] = {}  # of the files that exist now
        self._csv, self._compared = csv, dict[int, Marks]()  # how earlier files begin that were read again
        self._listed_ns = -1  # the directory's time of modification when it was listed
        self._notes = LineLog(directory / _NOTES)
        for line in self._notes.lines():
            self._take(json.loads(line))

    def close(self) -> None:
        self._notes.close()

    def path(self, number: int) -> Path:
        """Return where a known file is now. Raises: OperatorError if it is gone."""
        name = self.files[number].name
        if name not in self.paths:
            path = self.pattern.parent / name
            raise OperatorError(f"{path} (or {', '.join(ENDINGS)}): it is gone and still needed; put it back")
        return self.paths[name]

    def is_finished(self, number: int) -> bool:
        """Return whether a file has its last byte: a later one appeared, or it is compressed."""
        path = self.paths.get(self.files[number].name)
        return number + 1 < len(self.files) or (path is not None and is_packed(path))

    def has_moved(self, number: int, device: int, inode: int) -> bool:
        """Return False: in a list, a name always means the same file."""
        return False

    def first_left(self) -> int:
        """Return the number of the first file from which on no file was deleted."""
        number = len(self.files)
        while number and self.files[number - 1].name in self.paths:
            number -= 1
        return number

    def refresh(self, *, certainly: bool = False) -> None:
        """List the directory again if it may have changed, and note the files that are new.

        Args: certainly, whether to list it in any case, because a file was missing.
        """
        try:
            changed_ns = self.pattern.parent.stat().st_mtime_ns
            if changed_ns == self._listed_ns and not certainly:
                return
            listed_ns = time.time_ns()
            self.paths = files_of(self.pattern)
        except OSError as failure:
            text = f"{self.pattern}: its directory cannot be read ({failure.strerror}); let this user read it"
            raise OperatorError(text) from None
        known = [file.name for file in self.files]
        new = in_order(self.pattern, [*known[-1:], *(self.paths.keys() - set(known))], known)
        if known and new[0] != known[-1]:
            raise OperatorError(
                f"{self.paths[new[0]]}: its name sorts before {known[-1]}, which was read already; rename it "
                "so that it sorts last, or move it away"
            )
        for name in new[len(known[-1:]) :]:
            self._add(name)
        self._listed_ns = changed_ns if listed_ns - changed_ns > _SETTLED_NS else -1

    def recognise(self, number: int, lines: LineFile, complete: int) -> bool:
        """Compare a file's first bytes with its note, or write the note; return False if it may be a copy.

        The note of a file that grows is written again with more bytes, up to ``FIRST_BYTES`` of records.
        Args: complete, the length of its complete lines, of a finished file of all.
        """
        file, header = self.files[number], lines.first_position
        most = header + FIRST_BYTES
        start = lines.bytes_at(0, most)
        check_first(self.paths[file.name], lines, file.first)
        noted, wanted = 0 if file.first is None else file.first["bytes"], min(complete, most)
        marks = marks_of(lambda most: lines.bytes_at(header, min(complete - header, most)))
        is_new = noted <= header < complete  # no record was read
        if is_new and self._may_be_copied(number, marks, start[:complete], header):
            return False
        if notes_more(noted, wanted, most) or len(marks) > len(file.marks):
            self._note({"number": number, "first": beginning_of(start[:wanted]), "marks": marks})
        return True

    def is_recognised(self, number: int, header: int) -> bool:
        """Return whether a file's note is complete: nothing more will be noted. Args: header, its bytes."""
        file = self.files[number]
        noted = 0 if file.first is None else file.first["bytes"]
        return noted >= header + FIRST_BYTES and len(file.marks) == MOST_MARKS

    def _may_be_copied(self, number: int, new: Marks, start: bytes, header: int) -> bool:
        """Refuse a new file with the records of an earlier one; return whether it may still become one."""
        path, undecided, decided = self.path(number), False, dict[str, int]()
        for place, earlier in enumerate(self.files[:number]):
            known = self._marks(place)
            common = common_records(known, new)
            may_grow = len(new) < len(known) and not self.is_finished(number)
            if may_grow and common and len(known) >= FEWEST_RECORDS:
                undecided = True
            elif not known and _is_noted(earlier.first, start, header):
                raise is_a_copy(path, earlier.name)
            else:
                decided[earlier.name] = common
        if not undecided or max(decided.values(), default=0) >= FEWEST_RECORDS:
            check_common(path, decided)
        return undecided

    def _marks(self, number: int) -> Marks:
        """Return how an earlier file begins: as it is now, or as it was noted if less of it is left."""
        file = self.files[number]
        if number not in self._compared and (path := self.paths.get(file.name)) is not None:
            known = len(file.marks) == MOST_MARKS
            self._compared[number] = () if known else marks_of(partial(first_records, path, self._csv))
        return max(file.marks, self._compared.get(number, ()), key=len)

    def _add(self, name: str) -> None:
        """Note a new file, and thereby the end of the file before it."""
        ended_at = None
        if self.files:
            last = self.files[-1].name
            before = self.paths.get(last)
            if before is not None and not is_packed(before):
                with suppress(FileNotFoundError):  # it was compressed just now
                    ended_at = before.stat().st_size
        self._note({"name": name, "at_us": time.time_ns() // 1_000, "previous_ended_at": ended_at})

    def _note(self, fact: dict[str, Any]) -> None:
        self._notes.append([json.dumps(fact).encode()])
        self._take(fact)

    def _take(self, fact: dict[str, Any]) -> None:
        """Apply a noted fact; an unknown one is from a later version and concerns only that version."""
        if "name" in fact:
            if self.files:
                self.files[-1].ended_at = fact["previous_ended_at"]
            self.files.append(ListedFile(fact["name"], fact["at_us"]))
        elif "first" in fact:
            self.files[fact["number"]].first = fact["first"]
            self.files[fact["number"]].marks = tuple(fact.get("marks", ()))


def check_listed_file(path: Path, name: str, lines: LineFile, directory: Path) -> None:
    """Compare a file with the note of its first bytes, if there is one, and change nothing.

    Args: name, in the list; directory, with the list's notes.
    Raises: OperatorError if the file has other bytes.
    """
    notes, names, first = directory / _NOTES, list[str](), dict[str, Any]()
    for line in notes.read_bytes().splitlines() if notes.exists() else ():
        with suppress(ValueError, LookupError):  # a worker may be writing the last line
            fact = json.loads(line)
            if "name" in fact:
                names.append(fact["name"])
            elif "first" in fact:
                first[names[fact["number"]]] = fact["first"]
    check_first(path, lines, first.get(name))


def check_first(path: Path, lines: LineFile, noted: dict[str, Any] | None) -> None:
    """Compare a file with the note of its first bytes. Raises: OperatorError if it has other bytes."""
    if noted is not None and beginning_of(lines.bytes_at(0, noted["bytes"])) != noted:
        raise OperatorError(f"{path}: this is not the file counted so far; put that back")


def _is_noted(noted: dict[str, Any] | None, start: bytes, header: int) -> bool:
    """Return whether a file begins with the records that an older version noted of another one."""
    count = 0 if noted is None else noted["bytes"]
    return header < count <= len(start) and beginning_of(start[:count]) == noted
