"""Regular expressions over labels: texts, dots, alternatives and groups, matched without backtracking.

Grafana escapes every special character of a variable's values. So its patterns are lists of plain texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_DOTS = 64  # with groups written out
MOST_GROUPS = 16
MOST_ALTERNATIVES = 20_000  # with groups written out

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


def parse_pattern(pattern: str) -> Pattern:
    r"""Read a pattern. Raises: PatternError.

    >>> [parse_pattern(r"(C\+\+|/a/.+)").matches(label) for label in ("C++", "/a/b", "/a/")]
    [True, True, False]
    """
    alternatives = _Reader(pattern).all()
    dotted = [one for one in alternatives if _dots(one)]
    plain = ["".join(text for _, text in one) for one in alternatives if not _dots(one)]
    if sum(map(_dots, dotted)) > MOST_DOTS:
        raise PatternError(f"more than {MOST_DOTS} dots with groups written out; ask several times")
    expression = re.compile("|".join(map(_expression, dotted)), re.DOTALL) if dotted else None
    return Pattern(frozenset(plain), expression)


def _dots(alternative: Written) -> int:
    return sum(kind == "dot" for kind, _ in alternative)


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
    def __init__(self, pattern: str) -> None:
        self._tokens, at = list[Token](), 0
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
        for kind, most in (("dot", MOST_DOTS), ("open", MOST_GROUPS)):
            if sum(one == kind for one, _ in self._tokens) > most:
                raise PatternError(
                    f"more than {most} {'dots' if kind == 'dot' else 'groups'}; ask several times"
                )
        self._tokens.reverse()

    def all(self) -> list[Written]:
        """Return the alternatives of the pattern, with groups written out. Raises: PatternError."""
        found = self._alternatives()
        if self._tokens:
            raise PatternError("a parenthesis is closed and not opened; open it")
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
            if len(finished) + len(current) * len(after) > MOST_ALTERNATIVES:
                raise PatternError(f"more than {MOST_ALTERNATIVES:,} alternatives; ask several times")
            current = [before + one for before in current for one in after]
        return finished + current

    def _group(self) -> list[Written]:
        found = self._alternatives()
        if not self._tokens:
            raise PatternError("a parenthesis is not closed; close it")
        self._tokens.pop()
        return found
