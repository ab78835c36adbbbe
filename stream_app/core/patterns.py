"""Whether two lists of files can name the same file, by their patterns alone."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache

_TOKEN = re.compile(r"\[!?\]?[^]]*\]|.", re.DOTALL)  # of fnmatch: a set of characters, or one character


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
