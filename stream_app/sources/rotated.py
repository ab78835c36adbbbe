"""The files of a log that is rotated in place: ``access.log``, ``access.log.1``, ``access.log.2.gz``.

Names move from file to file, so a file is known by how it begins. A rotation renames the file, or copies it
and truncates the first one (``copytruncate``), and may compress it, at once or a day later.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from stream_app.ports import OperatorError
from stream_app.sources.copies import beginning_of, first_records, notes_more
from stream_app.sources.file_list import FIRST_BYTES, FileList, ListedFile, check_first
from stream_app.sources.packed import ENDINGS, is_packed, unpacked_name

if TYPE_CHECKING:
    from stream_app.sources.lines import LineFile

# Behind the name, or before its ending: a number that grows with each rotation, a month, week or date, or the
# only older file.
_ROTATED = re.compile(r"[.-](old|\d{1,5}|\d{4}-?(?:W?\d\d|\d\d-?\d\d(?:[-_.T]?\d+)*))", re.ASCII)
_LONGEST_NUMBER = 5
_SETTLED_NS = 2_000_000_000  # a server may write to a renamed file until it opens the new one


class RotatedFiles(FileList):
    """The known files of a log that is rotated in place; see ``FileList``, whose positions they have.

    A new file is noted once it has a line, and the one before it has not changed for two seconds.
    Args: pattern, the path of the file that grows; directory, of this log only, for the notes.
    """

    def __init__(self, pattern: Path, directory: Path) -> None:
        super().__init__(pattern, directory)
        self._seen: tuple[int, int, int] | None = None  # device, inode and size of the file that grows
        self._starts: dict[tuple[int, ...], bytes] = {}  # first bytes of files as they were found

    def has_moved(self, number: int, device: int, inode: int) -> bool:
        """Return whether an open file is no longer the one that holds the records of a known file."""
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
        """Return whether the records of a known file are in another one than the one that grows."""
        return self.paths.get(self.files[number].name, self.pattern) != self.pattern

    def refresh(self, *, certainly: bool = False) -> None:
        """Look at the file that grows; if it is another one, find all files again, and note new ones.

        Args: certainly, whether to find them in any case, because a file was missing.
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
        self.paths, place = {}, -1
        for file in self.files:
            at = next((at for at, (_, start) in enumerate(existing) if _is(file, start)), None)
            if at is not None:
                self.paths[file.name] = existing[at][0]
                place = max(place, at)
        if self.files and place < 0 and any(start for _, start in existing):
            raise OperatorError(
                f"{self.pattern}: none of its files is one counted so far; put the last one back, or name "
                "this log otherwise"
            )
        for path, start in existing[place + 1 :]:
            if b"\n" not in start:
                if path == self.pattern:
                    raise FileNotFoundError  # empty so far
                continue
            if self.files and not self._has_settled():
                raise FileNotFoundError
            self._take_in(path, start)

    def _with_starts(self, paths: Sequence[Path]) -> list[tuple[Path, bytes]]:
        """Return files with their first bytes; a file that has not changed is not read again."""
        found = list[tuple[Path, bytes]]()
        starts = dict[tuple[int, ...], bytes]()
        for path in paths:
            status = path.stat()
            at = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            starts[at] = self._starts.get(at) or first_records(path, csv=False)
            found.append((path, starts[at]))
        self._starts = starts
        return found

    def _has_settled(self) -> bool:
        last = self.paths.get(self.files[-1].name)
        return last is None or time.time_ns() - last.stat().st_mtime_ns > _SETTLED_NS

    def _take_in(self, path: Path, start: bytes) -> None:
        number = len(self.files)
        self._add(f"{self.pattern.name}#{number}")
        self.paths[self.files[number].name] = path
        complete = start[: start.rfind(b"\n") + 1]
        self._note({"number": number, "first": beginning_of(complete), "marks": ()})

    def _existing(self) -> list[Path]:
        """Return the files that exist, the oldest first. Raises: OperatorError if nobody may list them."""
        try:
            found = dict(self._named())
        except OSError as failure:
            raise self._unreadable(failure) from None
        older = [found[age] for age in sorted(found)]
        return [*older, self.pattern] if self.pattern.exists() else older

    def _named(self) -> Iterator[tuple[tuple[int, str], Path]]:
        """Yield each rotated file with its place among all; a file that is being compressed counts once."""
        name, stem, ending = self.pattern.name, self.pattern.stem, self.pattern.suffix
        for path in sorted(self.pattern.parent.glob(f"{escape(stem)}*"), reverse=True):
            plain = unpacked_name(path.name)
            behind = plain.removeprefix(name if plain.startswith(name) else stem)
            if not plain.startswith(name):
                behind = behind.removesuffix(ending) if behind.endswith(ending) else ""
            found = _ROTATED.fullmatch(behind)
            if found is not None and path.is_file():
                yield _age(found[1]), path

    def _unreadable(self, failure: OSError) -> OperatorError:
        return OperatorError(
            f"{self.pattern}: its directory cannot be read ({failure.strerror}); let this user read it"
        )

    def recognise(self, number: int, lines: LineFile, complete: int) -> bool:
        """Compare a file's first bytes with its note, and note more of them; see ``FileList``."""
        file = self.files[number]
        check_first(self.paths[file.name], lines, file.first)
        noted, wanted = 0 if file.first is None else file.first["bytes"], min(complete, FIRST_BYTES)
        if notes_more(noted, wanted, FIRST_BYTES):
            self._note({"number": number, "first": beginning_of(lines.bytes_at(0, wanted)), "marks": ()})
        return True

    def is_recognised(self, number: int, header: int) -> bool:
        """Return whether the note of a file has all that is noted of one."""
        first = self.files[number].first
        return first is not None and first["bytes"] >= FIRST_BYTES


def _age(mark: str) -> tuple[int, str]:
    """Return the place of a rotated file among all, the oldest first. Args: mark, by which its name tells."""
    if mark == "old":
        return (2, "")
    return (1, f"{10**9 - int(mark)}") if len(mark) <= _LONGEST_NUMBER else (0, mark)


def _is(file: ListedFile, start: bytes) -> bool:
    """Return whether a file begins as it was noted."""
    noted = file.first
    count = 0 if noted is None else int(noted["bytes"])
    return 0 < count <= len(start) and beginning_of(start[:count]) == noted
