"""Decides which names of logs may mean the same events, by the files that are read.

They do if a file can have both names: their patterns match a common name, compressed or not; a spool is
a list of files; two names lead to one file now; one has a copy of a file of the other now, or a file that
began like it when it was counted.
"""

from __future__ import annotations

import glob
import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from itertools import combinations, product
from pathlib import Path

from stream_app.sources.copies import Beginning, Marks, begins_as, common_records, first_records, marks_of
from stream_app.sources.file_list import is_list, listed
from stream_app.sources.packed import unpacked_name
from stream_app.spool import RECORDS

Place = tuple[str, Path]  # the name of a log, and its file or list

_FILE, _SPOOL = "file:", "http:"
_Compared = Mapping[Path, tuple[Hashable, int]]

_TOKEN = re.compile(r"\[!?\]?[^]]*\]|.", re.DOTALL)  # of fnmatch: a set of characters, or one character


@dataclass(frozen=True, slots=True)
class Logs:
    """The names of logs that a ledger may have, and which of them may mean the same events.

    Args:
        directory: of the configuration; names of files are relative to it.
        spools: where events over HTTP are stored.
        names: all names of logs that were compared.
        noted: how files began that were counted under these names, on this machine.
        same: by the name of a log, the other names that may mean its events.
        compared: by the name of a log, its files when they were compared, with a hash of their first records.
    """

    directory: Path = Path()
    spools: Path = Path("spool")
    names: frozenset[str] = frozenset()
    noted: Mapping[str, Collection[Beginning]] = field(default_factory=dict)
    same: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    compared: Mapping[str, _Compared] = field(default_factory=dict)

    def among(self, names: Iterable[str], noted: Mapping[str, Collection[Beginning]] | None = None) -> Logs:
        """Return the same with all relations between these names. Args: noted, as for ``related``."""
        places = [(name, path) for name in sorted(names) if (path := self._path_of(name)) is not None]
        counted = self.noted if noted is None else noted
        # Read before they are compared: a file that changes meanwhile is compared again.
        compared = {name: _compared(path) for name, path in places} if len(places) > 1 else {}
        same = related(places, counted)
        return replace(self, names=frozenset(names), noted=counted, same=same, compared=compared)

    def others(self, name: str) -> tuple[str, ...]:
        """Return the other names under which a log may have been measured."""
        return self.same.get(name, ())

    def knows(self, name: str, names: Iterable[str]) -> bool:
        """Return whether a log with the files that it has now was compared with all these names."""
        path = self._path_of(name)
        was = self.compared.get(name)
        return self.names.issuperset(names) and (was is None or path is None or was == _compared(path))

    def _path_of(self, name: str) -> Path | None:
        if name.startswith(_FILE):
            return self.directory.resolve() / name.removeprefix(_FILE)
        if name.startswith(_SPOOL):
            return of_spool(self.spools / name.removeprefix(_SPOOL))
        return None


def of_spool(directory: Path) -> Path:
    """Return a spool as the list of files that it is."""
    return directory / f"*{RECORDS}"


def says_csv(name: str) -> bool:
    """Return whether a name in lower case says that a file, or each file of a list, is CSV."""
    return unpacked_name(name.rstrip("*")).endswith(".csv")


def related(
    places: Collection[Place], noted: Mapping[str, Collection[Beginning]] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return, by the name of each log, the other logs that may have common events.

    Args: places, of a log with several patterns several; noted, how files of these logs began when they were
        counted, by name.
    Cost: looks at every file of these logs if there are several logs, and reads its first bytes.
    """
    found: dict[str, dict[str, None]] = defaultdict(dict)
    if len({name for name, _ in places}) > 1:
        for one, other in (*_by_name(places), *_by_content(places), *_by_notes(places, noted or {})):
            if one != other:
                found[one][other] = found[other][one] = None
    return {name: tuple(others) for name, others in found.items()}


def _by_name(places: Collection[Place]) -> Iterator[tuple[str, str]]:
    """Yield pairs of logs of which a file can have both names."""
    plain: dict[Hashable, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, path in places:
        pattern = unpacked_name(path.name)
        plain[_identity(path.parent)][pattern if is_list(path) else glob.escape(pattern)].append(name)
    for patterns in plain.values():
        for names in patterns.values():
            yield from combinations(names, 2)
        for one in filter(glob.has_magic, patterns):
            for other in patterns:
                if one != other and can_match_alike(one, other):
                    yield from product(patterns[one], patterns[other])


def _by_content(places: Collection[Place]) -> Iterator[tuple[str, str]]:
    """Yield pairs of logs that share a file, or a file and its copy, at this moment."""
    by_file: dict[Hashable, dict[str, None]] = defaultdict(dict)  # all names of each file
    by_record: dict[str, list[tuple[str, Marks]]] = defaultdict(list)  # by the first one
    for name, path in places:
        for file in _files(path):
            names = by_file[_identity(file)]
            yield from product(names, [name])
            names[name] = None
            if not (marks := marks_of(partial(first_records, file, says_csv(file.name.lower())))):
                continue
            alike = by_record[marks[0]]
            for other, known in alike:
                if other != name and common_records(known, marks):
                    yield other, name
            if (name, marks) not in alike:
                alike.append((name, marks))


def _by_notes(
    places: Collection[Place], noted: Mapping[str, Collection[Beginning]]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of logs: one now has a file that was counted under the other's name."""
    names: dict[Beginning, list[str]] = defaultdict(list)
    for name, known in noted.items():
        for begins in known:
            names[begins].append(name)
    for name, path in places:
        for file in _files(path) if names else ():
            for begins in begins_as(file, says_csv(file.name.lower()), names):
                yield from product(names[begins], [name])


def _compared(path: Path) -> _Compared:
    """Return, by file of a log, its identity and a hash of its first records: both are compared."""
    return {
        file: (_identity(file), hash(first_records(file, says_csv(file.name.lower()))))
        for file in _files(path)
    }


def _files(path: Path) -> Iterable[Path]:
    with suppress(OSError):
        return listed(path).values() if is_list(path) else [path] if path.is_file() else []
    return []


def _identity(path: Path) -> Hashable:
    """Return an identity that all paths of one file or directory share."""
    try:
        found = path.stat()
    except OSError:
        return str(path)
    return found.st_dev, found.st_ino


@lru_cache(maxsize=65_536)
def can_match_alike(one: str, other: str) -> bool:
    """Return whether some name matches both patterns, as ``fnmatch`` reads them; True if that is not certain.

    >>> can_match_alike("a-*.csv", "*-9.csv"), can_match_alike("a-*.csv", "b-*.csv")
    (True, False)
    >>> can_match_alike("day-*.csv", "day-1.csv"), can_match_alike("a?", "a")
    (True, False)
    """
    if "*" not in one + other and "?" not in one + other and "[" not in one + other:
        return one == other
    left, right = _TOKEN.findall(one), _TOKEN.findall(other)
    # The prefixes of ``one`` that some name matches which also matches what was read of ``other``.
    reached = _with_stars({0}, left)
    for token in right:
        if token == "*":
            reached = set(range(min(reached, default=len(left) + 1), len(left) + 1))
            continue
        reached = _with_stars(
            {at + (left[at] != "*") for at in reached if at < len(left) and _share(left[at], token)}, left
        )
    return len(left) in reached


def _with_stars(reached: set[int], tokens: list[str]) -> set[int]:
    """Add the prefixes that go on with stars only, which match nothing."""
    for at in sorted(reached):
        while at < len(tokens) and tokens[at] == "*":
            at += 1
            reached.add(at)
    return reached


def _share(one: str, other: str) -> bool:
    """Return whether one character matches both tokens."""
    if len(one) == len(other) == 1 and not {one, other} & {"*", "?"}:
        return one == other
    if (len(one) > 1 and len(other) > 1) or {one, other} & {"*", "?"}:
        return True  # of two sets of characters this is not certain
    return fnmatchcase(other, one) if len(one) > 1 else fnmatchcase(one, other)
