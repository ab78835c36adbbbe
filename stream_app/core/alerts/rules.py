"""The rule language: ``sum(departures, 24h) > 900``, ``rate(clicks, 1h) < 40/m``, ``no_data(clicks, 10m)``.

condition = ("count(" stream ")" | "sum(" stream "," length ")") comparison number
          | "rate(" stream "," length ")" comparison number "/" unit
          | "no_data(" stream "," length ")"
comparison = ">" | ">=" | "<" | "<="
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NoReturn, cast

MeasureName = Literal["count", "sum", "rate", "no_data"]
Comparison = Literal[">", ">=", "<", "<="]

UNITS_US = {
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_NOT_BUILT = ("quantile", "cdf", "ks", "key")
_TOKEN = re.compile(
    r"\s*(?:(?P<length>(?:\d+[smhdw])+(?![\w.]))|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[a-z0-9][a-z0-9_-]*)|(?P<sign>[<>]=?|[(),/]))"
)


class RuleError(ValueError):
    """A condition that is not one: one line, with the place in it, counted from 1."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a rule compares.

    Args:
        measure: count: events since the stream's first bin; sum: in the last window; rate: those per time;
            no_data: nothing was released for as long as the window.
        window_us: length of the window; None for count.
        comparison, threshold: None for no_data.
        per_us: the unit of a rate's threshold.
    """

    measure: MeasureName
    stream: str
    window_us: int | None = None
    comparison: Comparison | None = None
    threshold: float | None = None
    per_us: int | None = None

    def events(self, threshold: float) -> float:
        """Return a threshold of this condition as a number of events in the window."""
        if self.per_us is None or self.window_us is None:
            return threshold
        return threshold * self.window_us / self.per_us

    @property
    def upward(self) -> bool:
        """Return whether large values are past the threshold."""
        return self.comparison in (">", ">=")


@dataclass(frozen=True)
class Rule:
    """One alert.

    Args:
        text: the condition as it is written.
        confidence: it holds when the true value is past the threshold with at least this probability.
        for_us: how long it has to hold before the alert fires, in the time of the log.
        clear: a firing alert is resolved when the estimate is back at this value; the threshold if None.
        labels, summary: passed on.
    """

    name: str
    text: str
    condition: Condition
    confidence: float = 0.95
    for_us: int = 0
    clear: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """Return a name for what is decided here: another condition is another alert."""
        said = [self.name, self.text, self.confidence, self.for_us, self.clear]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises: RuleError.

    >>> parse_condition("rate(clicks, 1h30m) < 40/m").events(40.0)
    3600.0
    """
    return _Reader(text).condition()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def condition(self) -> Condition:
        name, at = self._take("word", "count, sum, rate or no_data")
        if name in _NOT_BUILT:
            self._refuse(at, f"{name} is not built yet; use count, sum, rate or no_data")
        if name not in ("count", "sum", "rate", "no_data"):
            self._refuse(at, f'"{name}" is not known; use count, sum, rate or no_data')
        measure = cast("MeasureName", name)
        self._sign("(")
        stream, _ = self._take("word", "the name of a stream")
        window_us = None
        if measure != "count":
            self._sign(",")
            window_us = self._length()
        self._sign(")")
        if measure == "no_data":
            self._end()
            return Condition(measure, stream, window_us)
        comparison, at = self._take("sign", "a comparison: >, >=, < or <=")
        if comparison not in (">", ">=", "<", "<="):
            self._refuse(at, "a comparison belongs here: >, >=, < or <=")
        threshold, _ = self._take("number", "a number")
        per_us = self._unit() if measure == "rate" else None
        self._end()
        return Condition(measure, stream, window_us, cast("Comparison", comparison), float(threshold), per_us)

    def _length(self) -> int:
        text, at = self._take("length", "a length of time, for example 24h")
        length_us = sum(int(count) * UNITS_US[unit] for count, unit in re.findall(r"(\d+)([smhdw])", text))
        if not length_us:
            self._refuse(at, "the length must be longer than zero")
        return length_us

    def _unit(self) -> int:
        self._sign("/", "a rate needs its unit, for example 40/m")
        unit, at = self._take("word", "s, m, h, d or w")
        if unit not in UNITS_US:
            self._refuse(at, "the unit of a rate is s, m, h, d or w")
        return UNITS_US[unit]

    def _take(self, kind: str, wanted: str) -> tuple[str, int]:
        match = _TOKEN.match(self._text, self._at)
        rest = self._text[self._at :]
        at = self._at + len(rest) - len(rest.lstrip())
        # A stream may be called 24h or 2013: where a name is wanted, digits are one.
        named = kind == "word" and match and match.lastgroup in ("length", "number")
        if match is None or (match.lastgroup != kind and not named):
            self._refuse(at, f"here belongs {wanted}")
        self._at = match.end()
        return str(match[match.lastgroup or 0]), at

    def _sign(self, sign: str, remedy: str = "") -> None:
        found, at = self._take("sign", remedy or f'"{sign}"')
        if found != sign:
            self._refuse(at, remedy or f'here belongs "{sign}"')

    def _end(self) -> None:
        rest = self._text[self._at :]
        if rest.strip():
            self._refuse(len(self._text) - len(rest.lstrip()), "the condition ends before this")

    def _refuse(self, at: int, line: str) -> NoReturn:
        raise RuleError(f"character {at + 1}: {line}")
