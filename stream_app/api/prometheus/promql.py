"""The supported part of PromQL: one selector with matchers, its sum over time, or arithmetic on numbers.

All other functions and operators over series are refused in one line, because their results would lose the
estimates' errors. Grafana queries ``1+1`` to check the connection.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stream_app.api.prometheus.patterns import Pattern, PatternError, Room, parse_pattern

NAME_LABEL = "__name__"
LONGEST_QUERY = 20_000

# Grafana may leave quotes inside a text as they are. A quote that ends a text has a sign or a label after it.
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<text>(?P<quote>["'])
            (?:(?!(?P=quote))[^\\] | \\. | (?P=quote)(?!\s*(?:[,}]|\w+\s*[=!]|\Z)))*
            (?P=quote) | `[^`]*`)
      | \[(?P<over>[^\]]*)\]
      | (?P<sign>=~|!~|!=|[={},+\-*/()])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{3})|(?P<digits>x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|(?P<sign>.))",
    re.DOTALL,
)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
# Grafana writes $__rate_interval with several units, 1h0m0s.
_DURATION = re.compile(r"\s*\d+(?:\.\d+)?(?:(?:ms|[smhdwy])(?:\d+(?:ms|[smhdwy]))*)?\s*", flags=re.ASCII)
_PART = re.compile(r"([\d.]+)([a-z]*)")
_SECONDS = {"ms": 1e-3, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_OVER_TIME = "sum_over_time"
_REMEDY = 'ask for one series, for example private_counts_running{stream="clicks"}'


class PromQLError(ValueError):
    """A query outside the supported part; one line with the position."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label; a missing label counts as the empty text, as in Prometheus."""

    label: str
    wanted: Pattern
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series with these labels matches."""
        return self.wanted.matches(labels.get(self.label, "")) != self.negated


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects series whose labels fulfil every matcher.

    Args: over_us, the time whose bins ``sum_over_time`` adds up; None: single samples are wanted.
    """

    matchers: tuple[Matcher, ...]
    over_us: int | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series with these labels, including its name, matches."""
        return all(matcher.matches(labels) for matcher in self.matchers)

    def without(self, *labels: str) -> Selector:
        """Return the selector without its conditions on these labels."""
        return Selector(tuple(one for one in self.matchers if one.label not in labels))


def length_us(name: str, text: str) -> int:
    """Return a length of time in microseconds. Raises: PromQLError, which names the part of the question.

    >>> length_us("step", "5m"), length_us("step", "1h30m"), length_us("step", "0.5")
    (300000000, 5400000000, 500000)
    """
    parts = _PART.findall(text) if _DURATION.fullmatch(text) else []
    asked_us = sum(float(number) * _SECONDS[unit or "s"] * 1e6 for number, unit in parts)
    us = round(asked_us) if math.isfinite(asked_us) else 0
    if us <= 0:
        raise PromQLError(f"{name}: {text!r} is not a length of time; write seconds, or for example 5m")
    return us


def parse(query: str) -> Selector | float:
    """Read a query. Raises: PromQLError.

    >>> parse('private_counts_running{stream=~"a|b"}').matches({"__name__": "private_counts_running"})
    False
    >>> parse("1+1")
    2.0
    """
    return _Reader(query).query()


def parse_selector(text: str) -> Selector:
    """Read a query that must be a selector. Raises: PromQLError."""
    found = parse(text)
    if isinstance(found, float) or found.over_us is not None:
        raise PromQLError(
            f"{text!r} is {'a number' if isinstance(found, float) else 'a sum'}, not a series; {_REMEDY}"
        )
    return found


class _Reader:
    def __init__(self, query: str) -> None:
        if len(query) > LONGEST_QUERY:
            raise PromQLError(f"the query is longer than {LONGEST_QUERY} characters; {_REMEDY}")
        self._query, self._tokens, self._at = query, self._split(query), 0
        self._room = Room()

    def query(self) -> Selector | float:
        kind, _, _ = self._peek()
        if kind == "number" or self._is("-") or self._is("+"):
            found: Selector | float = self._sum()
        else:
            found = self._over_time() if self._tokens[0][1] == _OVER_TIME else self._selector()
        kind, text, position = self._peek()
        if kind != "end":
            raise self._outside(text, position)
        if isinstance(found, float) and not math.isfinite(found):
            raise PromQLError(f"{self._query[:40]!r} is beyond all numbers; {_REMEDY}")
        return found

    def _sum(self) -> float:
        total = self._number()
        while self._is("+") or self._is("-"):
            add = self._next()[1] == "+"
            term = self._number()
            total = total + term if add else total - term
        return total

    def _number(self) -> float:
        sign = 1.0
        if self._is("-") or self._is("+"):
            sign = -1.0 if self._next()[1] == "-" else 1.0
        kind, text, position = self._next()
        if kind != "number":
            raise self._outside(text, position)
        return sign * float(text)

    def _over_time(self) -> Selector:
        self._next()
        self._expect("(")
        selector = self._selector()
        kind, text, position = self._next()
        if kind != "over":
            raise self._outside(text, position)
        self._expect(")")
        return replace(selector, over_us=length_us(_OVER_TIME, text))

    def _selector(self) -> Selector:
        matchers: list[Matcher] = []
        kind, text, position = self._peek()
        if kind == "name":
            self._next()
            matchers.append(Matcher(NAME_LABEL, Pattern(frozenset([text]))))
        elif not self._is("{"):
            raise self._outside(text, position)
        if self._is("{"):
            self._next()
            while not self._is("}"):
                matchers.append(self._matcher())
                if not self._is("}"):
                    self._expect(",")
            self._next()
        if all(one.negated or one.wanted.texts == {""} for one in matchers):
            raise PromQLError(f"{self._query[:80]!r} matches every series; {_REMEDY}")
        return Selector(tuple(matchers))

    def _matcher(self) -> Matcher:
        kind, label, position = self._next()
        if kind != "name":
            raise self._outside(label, position)
        _, operator, position = self._next()
        if operator not in ("=", "!=", "=~", "!~"):
            raise self._outside(operator, position)
        kind, value, position = self._next()
        if kind != "text":
            raise self._outside(value, position)
        text = _unquoted(value, position)
        try:
            wanted = (
                parse_pattern(text, self._room) if operator in ("=~", "!~") else Pattern(_spellings(text))
            )
        except PatternError as failure:
            raise PromQLError(f"pattern at character {position + 1}: {failure}") from None
        return Matcher(label, wanted, operator in ("!=", "!~"))

    def _split(self, query: str) -> list[tuple[str, str, int]]:
        tokens, at, kind = [], 0, ""
        while kind != "end":
            match = _TOKEN.match(query, at)
            if match is None or match.lastgroup is None:
                start = at + len(query[at:]) - len(query[at:].lstrip())
                raise self._outside(query[start], start)
            kind, at = match.lastgroup, match.end()
            tokens.append((kind, match[kind] or "the end", match.start(kind)))
        return tokens

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._at]

    def _next(self) -> tuple[str, str, int]:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _is(self, sign: str) -> bool:
        return self._peek()[:2] == ("sign", sign)

    def _expect(self, sign: str) -> None:
        kind, text, position = self._next()
        if (kind, text) != ("sign", sign):
            raise self._outside(text, position)

    def _outside(self, text: str, position: int) -> PromQLError:
        return PromQLError(
            f"{text[:40]!r} at character {position + 1}: this service answers selectors, their "
            f"{_OVER_TIME}, and no other functions, ranges or operators; {_REMEDY}"
        )


def _spellings(text: str) -> frozenset[str]:
    """Return the labels that a text is equal to. Grafana writes two backslashes before an apostrophe."""
    return frozenset([text, text.replace("\\'", "'")])


def _unquoted(written: str, position: int) -> str:
    """Return the value of a string in quotes; backticks keep backslashes. Raises: PromQLError."""
    quote, inner = written[0], written[1:-1]
    if quote == "`":
        return inner

    def meant(match: re.Match[str]) -> str:
        sign, octal, digits = match["sign"], match["octal"], match["digits"]
        if sign in (quote, *_ESCAPES):
            return _ESCAPES.get(sign, sign)
        code = int(octal, 8) if octal else int(digits[1:], 16) if digits else -1
        as_byte = octal is not None or (digits or "").startswith("x")
        if not 0 <= code <= (0xFF if as_byte else 0x10FFFF) or 0xD800 <= code < 0xE000:
            raise PromQLError(
                f"{match[0]!r} in the text at character {position + 1} means nothing; write two backslashes "
                "for a backslash"
            )
        return chr(code + 0xDC00) if as_byte and code > 0x7F else chr(code)

    found = _ESCAPE.sub(meant, inner)  # bytes of UTF-8 may be written one by one
    return found.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
