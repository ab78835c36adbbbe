"""The files of a log that is rotated in place: ``access.log``, ``access.log.1``, ``access.log.2.gz``.

Names move from file to file, so a file is known by how it begins. A rotation renames the file, or copies it
and truncates the first one (``copytruncate``), and may compress it, at once or a day later.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from stream_app.ports import OperatorError
from stream_app.sources.copies import COMPARED_BYTES, MOST_COMPARED, beginning_of, first_records, notes_more
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
_SETTLED_NS = 2_000_000_000  # a server may write to a renamed file until it opens the new one


_Found = tuple[Path, bytes, int]  # a file, its first bytes, and when it was written last


class RotatedFiles(FileList):
    """The known files of a log that is rotated in place; see ``FileList``, whose positions they have.

    A new file is noted once it has a line, and the one before it has not changed for two seconds.
    Args: pattern, the path of the file that grows; directory, of this log only, for the notes.
    """

    def __init__(self, pattern: Path, directory: Path) -> None:
        super().__init__(pattern, directory)
        self._seen: tuple[int, int, int] | None = None  # device, inode and size of the file that grows
        self._starts: dict[tuple[int, ...], bytes] = {}  # first bytes of files as they were found
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
        """Find where each known file is now, then note files that are new. Raises: FileNotFoundError."""
        existing = self._with_starts(self._existing())
        self.paths, place, known = {}, -1, set[Path]()
        for file in self.files:
            alike = [at for at, (_, start, _) in enumerate(existing) if _is(file, start)]
            if alike:  # the others are copies
                at = alike[0] if len(alike) == 1 else max(alike, key=lambda at: self._rank(existing[at]))
                self.paths[file.name] = existing[at][0]
                known.update(existing[at][0] for at in alike)
                place = max(place, at)
        if self.files and place < 0 and any(start for _, start, _ in existing):
            raise OperatorError(
                f"{self.pattern}: none of its files is one counted so far; put the last one back, or name "
                "this log otherwise"
            )
        for path, start, _ in existing[: max(place, 0)]:
            if start and path not in known:  # rotatelogs -n writes such a file while the log stays as it is
                self._warn_once(path, start, "%s: its name is that of an older file; it is not counted")
        new = [found for found in existing[place + 1 :] if found[0] not in known]
        for path, start in self._without_copies(new):
            if not start:
                if path == self.pattern:
                    raise FileNotFoundError  # no line so far
                _warn_if_unreadable(path)
                continue
            if self.files and not self._has_settled():
                raise FileNotFoundError
            self._take_in(path, start)

    def _rank(self, found: _Found) -> tuple[bool, int, int]:
        """Return a rank: of files that begin with the same lines, the highest has the most lines.

        Cost: decompresses the file once.
        """
        path, _, written_ns = found
        length = _unpacked_bytes(path, written_ns) if is_packed(path) else path.stat().st_size
        return path == self.pattern, length, written_ns

    def _without_copies(self, found: Sequence[_Found]) -> list[tuple[Path, bytes]]:
        """Return new files in order, with their first lines; of files that begin alike only one."""
        kept = list[_Found]()
        for one in sorted(
            found, key=lambda one: (one[0] == self.pattern, len(_lines_of(one[1]))), reverse=True
        ):
            lines = _lines_of(one[1])
            alike = (other for other in kept if lines and _begin_alike(lines, _lines_of(other[1])))
            if (original := next(alike, None)) is None:
                kept.append(one)
                continue
            copy = one
            if lines == _lines_of(original[1]) and self._rank(one) > self._rank(original):
                kept[kept.index(original)] = one
                original, copy = one, original
            said = "%s: it begins as %s does; it is taken for its copy and not counted"
            self._warn_once(copy[0], lines, said, original[0])
        return [(one[0], _lines_of(one[1])) for one in found if one in kept]

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
            older = sorted(found, key=lambda path: (_age(found[path], path), path))
        except FileNotFoundError:
            raise  # a rotation is under way
        except OSError as failure:
            raise self._unreadable(failure) from None
        return [*older, self.pattern] if self.pattern.exists() else older

    def _named(self) -> dict[Path, str]:
        """Return the mark of each rotated file; a file that is being compressed is there once."""
        name, stem, ending = self.pattern.name, self.pattern.stem, self.pattern.suffix
        marks = dict[str, tuple[Path, str]]()
        for path in sorted(self.pattern.parent.glob(f"{escape(stem)}*"), reverse=True):
            plain = unpacked_name(path.name)
            behind = plain.removeprefix(name if plain.startswith(name) else stem)
            if not plain.startswith(name):
                behind = behind.removesuffix(ending) if behind.endswith(ending) else ""
                behind = "" if _PORT.fullmatch(behind[1:]) else behind
            found = _ROTATED.fullmatch(behind)
            if found is not None and path.is_file():
                marks[plain] = path, found[1]
        return dict(marks.values())

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


@lru_cache(64)
def _unpacked_bytes(path: Path, written_ns: int) -> int:
    """Return the length of a compressed file, unpacked. Args: written_ns, its last change."""
    length = 0
    with suppress(*DAMAGE), open_packed(path) as file:
        while part := file.read(1 << 20):
            length += len(part)
    return length


def _is(file: ListedFile, start: bytes) -> bool:
    """Return whether a file begins as it was noted."""
    noted = file.first
    count = 0 if noted is None else int(noted["bytes"])
    return 0 < count <= len(start) and beginning_of(start[:count]) == noted
