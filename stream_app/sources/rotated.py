"""The files of a log that is rotated in place: ``access.log``, ``access.log.1``, ``access.log.2.gz``.

Names move from file to file, so a file is known by how it begins. A rotation renames the file, or copies it
and truncates the first one (``copytruncate``), and may compress it, at once or a day later.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from stream_app.ports import OperatorError
from stream_app.sources.copies import (
    COMPARED_BYTES,
    FEWEST_RECORDS,
    MOST_COMPARED,
    WRITTEN_NS,
    beginning_of,
    first_records,
    notes_more,
)
from stream_app.sources.file_list import FIRST_BYTES, FileList, ListedFile, check_first
from stream_app.sources.packed import DAMAGE, ENDINGS, is_packed, open_packed, unpacked_name

if TYPE_CHECKING:
    from stream_app.sources.lines import LineFile

log = logging.getLogger(__name__)

# Behind the name, or before its ending: a number that grows with each rotation, a month, week or date, or the
# only older file.
_ROTATED = re.compile(
    r"[._-](old|\d{1,5}|\d{4}-?(?:W?\d\d|\d\d-?\d\d(?:[-_.:T]?\d+)*Z?)|\d\d-?\d\d-?\d{4})", re.ASCII
)
_PORT = re.compile(r"(?!19|20)\d{4}|\d{5}", re.ASCII)  # before the ending: another server's log, and no age
_YEAR_LAST = re.compile(r"\d\d-?\d\d-?(?:19|20)\d\d", re.ASCII)
_LONGEST_NUMBER = 5
_IS_A_COPY = "%s: it begins as %s does; it is taken for its copy and not counted"
_SETTLED_NS = 2_000_000_000  # a server may write to a renamed file until it opens the new one


_Found = tuple[Path, bytes, int]  # a file, its first bytes, and when it was written last


class UnmeasuredError(Exception):
    """The length of a compressed file decides. ``measure`` unpacks it, so it is called in a thread."""

    def __init__(self, measure: Callable[[], None]) -> None:
        super().__init__()
        self.measure = measure


class RotatedFiles(FileList):
    """The known files of a log that is rotated in place; see ``FileList``, whose positions they have.

    A new file is noted once it has a line, and the one before it has not changed for two seconds. As long as
    it has only lines with which a longer file begins, and fewer than ``FEWEST_RECORDS``, it may be either new
    or a copy that is being written: it waits for a line that differs.
    Args: pattern, the path of the file that grows; directory, of this log only, for the notes.
    """

    def __init__(self, pattern: Path, directory: Path) -> None:
        super().__init__(pattern, directory)
        self._seen: tuple[int, int, int] | None = None  # device, inode and size of the file that grows
        self._starts: dict[tuple[int, ...], bytes] = {}  # first bytes of files as they were found
        self._lengths: dict[tuple[Path, int], int] = {}  # of compressed files, by path and last change
        self._passed_over = set[tuple[Path, str]]()  # files not counted, by path and hash of the first lines

    def has_moved(self, number: int, device: int, inode: int) -> bool:
        """Return whether the records of a known file are no longer in this open file."""
        path = self.paths.get(self.files[number].name)
        if path is None or is_packed(path):
            return False
        found = path.stat()
        return (found.st_dev, found.st_ino) != (device, inode)

    def path(self, number: int) -> Path:
        """Return where the records of a known file are now. Raises: OperatorError if they are nowhere."""
        found = self.paths.get(self.files[number].name)
        if found is None:
            raise OperatorError(
                f"{self.pattern}: the file with its last records was emptied, deleted, or compressed "
                f"otherwise than as {', '.join(ENDINGS)}; put it back as {self.pattern.name}.1, or name this "
                "log otherwise"
            )
        return found

    def is_rotated(self, number: int) -> bool:
        """Return whether a known file was renamed, so that another file grows under its first name."""
        return self.paths.get(self.files[number].name, self.pattern) != self.pattern

    def refresh(self, *, certainly: bool = False) -> None:
        """Look at the file that grows. If it was replaced, find all files again, and note new ones.

        Args: certainly, whether to find all files in any case, because a file was missing.
        """
        try:
            named = self.pattern.stat()
        except FileNotFoundError:
            named = None  # between two steps of a rotation, or since
        except OSError as failure:
            raise self._unreadable(failure) from None
        now = None if named is None else (named.st_dev, named.st_ino, named.st_size)
        before, same = self._seen, False
        if now is not None and before is not None:
            same = now[:2] == before[:2] and now[2] >= before[2]
        if same and not certainly:
            self._seen = now
            return
        try:
            self._find()
            self._seen = now
        except FileNotFoundError:
            self._seen = None  # a rotation is under way: look again

    def _find(self) -> None:
        """Find where each known file is now, then note files that are new.

        Raises: FileNotFoundError if that cannot be told yet; UnmeasuredError.
        """
        existing = self._with_starts(self._existing())
        places = {one[0]: at for at, one in enumerate(existing)}
        self.paths, place, known = {}, -1, set[Path]()
        # The file whose note has most bytes first: a file that begins as two of them do is that one.
        for file in sorted(self.files, key=_noted_bytes, reverse=True):
            alike = [one for one in existing if _is(file, one[1])]
            if free := [one for one in alike if one[0] not in self.paths.values()]:
                whole, *copies = self._copies(free)
                self.paths[file.name] = whole[0]
                place = max(place, places[whole[0]])
                known.update(one[0] for one in (whole, *copies) if not self._may_be_new(one, whole))
                self._warn_of_forms(whole, copies)
        if self.files and place < 0 and any(start for _, start, _ in existing):
            raise OperatorError(
                f"{self.pattern}: none of its files is one counted so far; put the last one back, or name "
                "this log otherwise"
            )
        for path, start, _ in existing[: max(place, 0)]:
            if start and path not in known:  # rotatelogs -n writes such a file while the log stays as it is
                self._warn_once(path, start, "%s: its name is that of an older file; it is not counted")
        self._take_in_all([found for found in existing[place + 1 :] if found[0] not in known], existing)

    def _take_in_all(self, new: Sequence[_Found], existing: Sequence[_Found]) -> None:
        """Note new files, each once. Raises: FileNotFoundError for one that is to be looked at again."""
        readable = {unpacked_name(path.name) for path, start, _ in existing if start}
        for found in self._without_copies(new):
            path, lines = found[0], _lines_of(found[1])
            if not lines and path != self.pattern:
                if unpacked_name(path.name) not in readable:
                    _warn_if_unreadable(path)
                continue
            if not lines or any(self._may_be_new(found, other) for other in existing):
                raise FileNotFoundError  # it has no line so far, or too few to tell
            if self.files and not self._has_settled():
                raise FileNotFoundError
            self._take_in(path, lines)

    def _may_be_new(self, found: _Found, other: _Found) -> bool:
        """Return whether the file that grows has so far only lines of a longer file, and few of them."""
        if found[0] != self.pattern:
            return False
        lines, longer = _lines_of(found[1]), _lines_of(other[1])
        few = len(set(lines.splitlines())) < FEWEST_RECORDS
        return few and len(lines) < len(longer) and _begin_alike(longer, lines)

    def _copies(self, alike: Sequence[_Found]) -> list[_Found]:
        """Return of some files those that begin as the oldest one does, the one with most lines first.

        Args: alike, oldest first. Raises: UnmeasuredError.
        """
        oldest = _lines_of(alike[0][1])
        copies = [one for one in alike if _begin_alike(_lines_of(one[1]), oldest)]
        return copies if len(copies) == 1 else sorted(copies, key=self._rank, reverse=True)

    def _rank(self, found: _Found) -> tuple[int, bool, bool, int]:
        """Return a rank: of files that begin with the same lines, the highest has the most lines."""
        path, _, written_ns = found
        if not (packed := is_packed(path)):
            length = path.stat().st_size
        elif path.with_name(unpacked_name(path.name)).exists():
            length = 0  # it may still be written, and is deleted otherwise
        elif (path, written_ns) in self._lengths:
            length = self._lengths[path, written_ns]
        else:
            raise UnmeasuredError(partial(self._measure, path, written_ns))
        return length, path == self.pattern, not packed, written_ns

    def _measure(self, path: Path, written_ns: int) -> None:
        """Learn the length of a compressed file, unpacked. Cost: decompresses it."""
        length = 0
        with suppress(*DAMAGE), open_packed(path) as file:
            while part := file.read(1 << 20):
                length += len(part)
        self._lengths[path, written_ns] = length

    def _without_copies(self, found: Sequence[_Found]) -> list[_Found]:
        """Return new files in order; of files that begin alike only one."""
        kept = list[_Found]()
        for one in sorted(found, key=lambda one: len(_lines_of(one[1])), reverse=True):
            lines = _lines_of(one[1])
            alike = (other for other in kept if lines and _begin_alike(lines, _lines_of(other[1])))
            original = next(alike, None)
            if original is None or self._may_be_new(one, original):
                kept.append(one)
                continue
            copy = one
            if lines == _lines_of(original[1]) and self._rank(one) > self._rank(original):
                kept[kept.index(original)] = one
                original, copy = one, original
            if not _is_being_written(copy, original):
                self._warn_once(copy[0], lines, _IS_A_COPY, original[0])
        return [one for one in found if one in kept]

    def _warn_of_forms(self, whole: _Found, copies: Sequence[_Found]) -> None:
        """Log a warning about other forms of a known file, plain or compressed, that stay beside it."""
        for path, start, written_ns in copies:
            is_form = unpacked_name(path.name) == unpacked_name(whole[0].name)
            if is_form and not _is_being_written((path, start, written_ns), whole):
                self._warn_once(path, _lines_of(start), _IS_A_COPY, whole[0])

    def _warn_once(self, path: Path, start: bytes, said: str, *more: Path) -> None:
        """Log a warning about a file that is not counted. Args: start, its first bytes."""
        if (passed_over := (path, beginning_of(start)["sha256"])) not in self._passed_over:
            self._passed_over.add(passed_over)
            log.warning(said, path, *more)

    def _with_starts(self, paths: Sequence[Path]) -> list[_Found]:
        """Return each file once, with its first bytes; a file that has not changed is not read again."""
        found = dict[tuple[int, int], _Found]()
        starts = dict[tuple[int, ...], bytes]()
        for path in paths:
            status = path.stat()
            one = (status.st_dev, status.st_ino)
            at = (*one, status.st_size, status.st_mtime_ns)
            starts[at] = self._starts.get(at) or self._start_of(path)
            found.pop(one, None)  # a link: the file has the place of its last name
            found[one] = (path, starts[at], status.st_mtime_ns)
        self._starts = starts
        return list(found.values())

    def _start_of(self, path: Path) -> bytes:
        """Return the first bytes of a file: more than usual if its first line is longer than they are."""
        start = first_records(path, csv=False)
        if len(start) < FIRST_BYTES or b"\n" in start:
            return start
        start = first_records(path, csv=False, most=MOST_COMPARED)
        start = start[: start.find(b"\n") + 1] or start
        if len(start) == MOST_COMPARED and not start.strip(b"\0"):
            raise OperatorError(
                f"{path}: it begins with {MOST_COMPARED} bytes of zero, as if a server did not append to "
                "the log that copytruncate cut; let it append, or rotate without copytruncate"
            )
        return start

    def _has_settled(self) -> bool:
        last = self.paths.get(self.files[-1].name)
        return last is None or time.time_ns() - last.stat().st_mtime_ns > _SETTLED_NS

    def _take_in(self, path: Path, start: bytes) -> None:
        number = len(self.files)
        self._add(f"{self.pattern.name}#{number}")
        self.paths[self.files[number].name] = path
        self._note({"number": number, "first": beginning_of(start), "marks": ()})

    def _existing(self) -> list[Path]:
        """Return the files that exist, the oldest first. Raises: OperatorError if nobody may list them."""
        try:
            found = self._named()
            older = sorted(found, key=lambda path: (_age(found[path], path), path.stat().st_mtime_ns, path))
        except FileNotFoundError:
            raise  # a rotation is under way
        except OSError as failure:
            raise self._unreadable(failure) from None
        return [*older, self.pattern] if self.pattern.exists() else older

    def _named(self) -> dict[Path, str]:
        """Return the mark of each rotated file."""
        name, stem, ending = self.pattern.name, self.pattern.stem, self.pattern.suffix
        marks = dict[Path, str]()
        for path in self.pattern.parent.glob(f"{escape(stem)}*"):
            plain = unpacked_name(path.name)
            behind = plain.removeprefix(name if plain.startswith(name) else stem)
            if not plain.startswith(name):
                behind = behind.removesuffix(ending) if behind.endswith(ending) else ""
                behind = "" if _PORT.fullmatch(behind[1:]) else behind
            found = _ROTATED.fullmatch(behind)
            if found is not None and path.is_file():
                marks[path] = found[1]
        return marks

    def _unreadable(self, failure: OSError) -> OperatorError:
        return OperatorError(
            f"{self.pattern}: its directory cannot be read ({failure.strerror}); let this user read it"
        )

    def recognise(self, number: int, lines: LineFile, complete: int) -> bool:
        """Compare a file's first bytes with its note, then note further first bytes; see ``FileList``."""
        file = self.files[number]
        check_first(self.paths[file.name], lines, file.first)
        noted, wanted = 0 if file.first is None else file.first["bytes"], min(complete, FIRST_BYTES)
        if notes_more(noted, wanted, FIRST_BYTES):
            self._note({"number": number, "first": beginning_of(lines.bytes_at(0, wanted)), "marks": ()})
        return True

    def is_recognised(self, number: int, header: int) -> bool:
        """Return whether the note of a file has as many first bytes as a note may have."""
        first = self.files[number].first
        return first is not None and first["bytes"] >= FIRST_BYTES


def _age(mark: str, path: Path) -> tuple[int, ...]:
    """Return a rank of a rotated file; older files have lower ranks. Args: mark, the end of its name.

    If the mark ends with a year, day and month may be in either order: the file's last change decides.

    >>> sorted(["old", "1", "2026-03-01.10", "2026-03-01.9", "2"], key=lambda mark: _age(mark, Path()))
    ['2026-03-01.9', '2026-03-01.10', '2', '1', 'old']
    """
    if mark == "old":
        return (2,)
    if len(mark) <= _LONGEST_NUMBER:
        return (1, -int(mark))
    if _YEAR_LAST.fullmatch(mark):
        return (-1, path.stat().st_mtime_ns)
    return (0, *map(int, re.findall(r"\d+", mark)))


def _warn_if_unreadable(path: Path) -> None:
    try:
        with open_packed(path) if is_packed(path) else path.open("rb") as file:
            file.read(COMPARED_BYTES)
    except FileNotFoundError:
        raise  # it was renamed meanwhile
    except DAMAGE as failure:
        log.warning("%s: it cannot be read (%s); the log is counted without it", path, type(failure).__name__)


def _lines_of(start: bytes) -> bytes:
    """Return the complete lines at the start of a file, or the start of a longer one."""
    return start if len(start) == MOST_COMPARED else start[: start.rfind(b"\n") + 1]


def _begin_alike(one: bytes, other: bytes) -> bool:
    return bool(other) and (one.startswith(other) or other.startswith(one))


def _is_being_written(copy: _Found, original: _Found) -> bool:
    """Return whether a file is the compressed form of another one that a program may still write."""
    is_form = is_packed(copy[0]) and unpacked_name(copy[0].name) == original[0].name
    return is_form and time.time_ns() - copy[2] < WRITTEN_NS


def _noted_bytes(file: ListedFile) -> int:
    return 0 if file.first is None else int(file.first["bytes"])


def _is(file: ListedFile, start: bytes) -> bool:
    """Return whether a file begins as it was noted."""
    count = _noted_bytes(file)
    return 0 < count <= len(start) and beginning_of(start[:count]) == file.first
