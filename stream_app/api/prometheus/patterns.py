"""Regular expressions over labels: texts, dots, alternatives and groups, matched without backtracking.

Grafana escapes every special character of a variable's values. So its patterns are lists of plain texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_DOTS = 64  # of all patterns of a query, with groups written out
MOST_GROUPS = 16  # of a pattern
MOST_WRITTEN = 100_000  # characters and alternatives of all patterns of a query, with groups written out

# As in RE2, a backslash makes any sign plain, and a brace that begins no repetition is plain, too.
_TOKEN = re.compile(
    r"""(?: (?P<text>(?:[^\\.*+?^$(){}\[\]|]|[\]}]|\{(?!\d+(?:,\d*)?\})|\\(?:[^a-zA-Z0-9]|[afnrtv]))+)
          | (?P<dot>\.[*+]?)
          | (?P<close>\))
        ) (?![*+?])
      | (?P<open>\((?:\?:|(?!\?)))
      | (?P<or>\|)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LETTERS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

Token = tuple[str, str]  # its kind, and its text
Written = tuple[Token, ...]  # the texts and the dots of an alternative


class PatternError(ValueError):
    """A pattern that is not supported; one line."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which labels match. Args: texts, all that match without a dot; dotted, an expression of the others."""

    texts: frozenset[str]
    dotted: re.Pattern[str] | None = None

    def matches(self, label: str) -> bool:
        """Return whether the whole label matches. Cost: at most its length times the pattern's."""
        return label in self.texts or (self.dotted is not None and self.dotted.fullmatch(label) is not None)


@dataclass(slots=True)
class Room:
    """What the patterns of one query may still have with groups written out. ``parse_pattern`` changes it."""

    dots: int = MOST_DOTS
    written: int = MOST_WRITTEN


def parse_pattern(pattern: str, room: Room | None = None) -> Pattern:
    r"""Read a pattern. Raises: PatternError. Args: room, of the query; None: the pattern is all of it.

    >>> [parse_pattern(r"(C\+\+|/a/.+)").matches(label) for label in ("C++", "/a/b", "/a/")]
    [True, True, False]
    """
    alternatives = _Reader(pattern, room or Room()).all()
    dotted = [one for one in alternatives if _dots([one])]
    plain = ["".join(text for _, text in one) for one in alternatives if not _dots([one])]
    expression = re.compile("|".join(map(_expression, dotted)), re.DOTALL) if dotted else None
    return Pattern(frozenset(plain), expression)


def _dots(alternatives: list[Written]) -> int:
    return sum(kind == "dot" for one in alternatives for kind, _ in one)


def _written(alternatives: list[Written]) -> int:
    return len(alternatives) + sum(len(text) for one in alternatives for _, text in one)


def _expression(alternative: Written) -> str:
    """Return an expression that takes each piece between stars where it is found first.

    All labels that a piece matches are of one length. So no later place could match where the first does not.
    """
    pieces = [""]
    for kind, text in alternative:
        pieces[-1] += re.escape(text) if kind == "text" else text[:1] * (text != ".*")
        if text in (".*", ".+") and kind == "dot":
            pieces.append("")
    first, *others = pieces
    if not others:
        return first
    return "".join([first, *(f"(?>.*?{piece})" for piece in others[:-1]), f".*{others[-1]}"])


class _Reader:
    def __init__(self, pattern: str, room: Room) -> None:
        self._room, self._tokens, at = room, list[Token](), 0
        while at < len(pattern):
            match = _TOKEN.match(pattern, at)
            if match is None or match.lastgroup is None:
                raise PatternError(
                    f"{pattern[at : at + 2]!r} is not understood; known are texts, |, groups, ., .* and .+; "
                    r"write two backslashes (\\) before a sign that is meant as a text"
                )
            text = match[match.lastgroup]
            if match.lastgroup == "text":
                text = _ESCAPED.sub(lambda one: _LETTERS.get(one[1], one[1]), text)
            self._tokens.append((match.lastgroup, text))
            at = match.end()
        if sum(kind == "open" for kind, _ in self._tokens) > MOST_GROUPS:
            raise PatternError(f"more than {MOST_GROUPS} groups; ask several times")
        self._tokens.reverse()

    def all(self) -> list[Written]:
        """Return the alternatives of the pattern, with groups written out. Raises: PatternError."""
        found = self._alternatives()
        if self._tokens:
            raise PatternError("a parenthesis is closed and not opened; open it")
        dots, written = _dots(found), _written(found)
        self._check(dots, written)
        self._room.dots -= dots
        self._room.written -= written
        return found

    def _alternatives(self) -> list[Written]:
        finished, current = list[Written](), list[Written]([()])
        while self._tokens and self._tokens[-1][0] != "close":
            kind, text = self._tokens.pop()
            if kind == "or":
                finished += current
                current = [()]
                continue
            after: list[Written] = [((kind, text),)] if kind != "open" else self._group()
            self._check(*(of(current) * len(after) + of(after) * len(current) for of in (_dots, _written)))
            current = [before + one for before in current for one in after]
        return finished + current

    def _check(self, dots: int, written: int) -> None:
        """Refuse alternatives with too much in them, before they are made. Raises: PatternError."""
        for has, room, most, what in (
            (dots, self._room.dots, MOST_DOTS, "dots"),
            (written, self._room.written, MOST_WRITTEN, "characters"),
        ):
            if has > room:
                raise PatternError(f"more than {most:,} {what} with groups written out; ask several times")

    def _group(self) -> list[Written]:
        found = self._alternatives()
        if not self._tokens:
            raise PatternError("a parenthesis is not closed; close it")
        self._tokens.pop()
        return found
