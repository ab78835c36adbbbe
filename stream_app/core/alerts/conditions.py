"""The language of conditions: ``sum(departures, 24h) > 900``, ``rate(clicks['FR'], 1h) < 40/m``.

condition = "count(" counted ")" comparison number
          | window comparison ( number | [ number "*" ] past )
          | "rate(" counted "," length ")" comparison number "/" unit
          | "mean(" counted "," length ")" strictly number
          | "quantile(" counted "," number "," length ")" strictly number
          | "cdf(" counted "," number "," length ")" strictly number
          | "ks(" counted "," length "," reference ")" strictly number
          | "no_data(" stream "," length ")"
window    = ( "count(" | "sum(" | "total(" ) counted "," length ")"
past      = the window's name and "(" counted "," length "," length "ago" ")"
counted   = stream [ "[" ( [ "not" ] key { "," key } | "each" ) "]" ]
reference = length [ "ago" length ] | "'" instant "/" instant "'"
comparison = ">" | ">=" | "<" | "<="; strictly = ">" | "<"
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NoReturn, cast, get_args

from stream_app.core.instants import parse_instant

MeasureName = Literal["count", "sum", "rate", "total", "mean", "quantile", "cdf", "ks", "no_data"]
Comparison = Literal[">", ">=", "<", "<="]

UNITS_US = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000, "w": 604_800_000_000}
_LONGEST_US = 36_500 * UNITS_US["d"]
MEASURES: tuple[MeasureName, ...] = get_args(MeasureName)
OF_VALUES: frozenset[MeasureName] = frozenset({"quantile", "cdf", "ks"})
OF_AMOUNTS: frozenset[MeasureName] = frozenset({"total", "mean"})
_OF_WINDOWS = ("sum", "total")  # may be compared with their own past
_LARGEST_FACTOR = 1e6
_STRICT = OF_VALUES | {"mean"}
_KNOWN = f"{', '.join(MEASURES[:-1])} or {MEASURES[-1]}"
_TOKEN = re.compile(
    r"\s*(?:(?P<length>(?:\d{1,18}[smhdw])+(?![\w.]))|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"""|(?P<word>[a-z0-9][a-z0-9_-]*)|(?P<text>'[^']*'|"[^"]*")|(?P<sign>[<>]=?|[(),/*[\]]))"""
)


class RuleError(ValueError):
    """An invalid condition: one line that names the character at fault, counted from 1."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The range that a rule compares its window with: a moving range of a given age, or a fixed range.

    Args:
        length_us, ago_us: a range of this length that ends ``ago_us`` before the last released bin ends.
        from_us, to_us: or this fixed range.
    """

    length_us: int = 0
    ago_us: int = 0
    from_us: int | None = None
    to_us: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """The comparison that a rule makes.

    Args:
        measure: count: events since the stream's first bin; sum: events in the last window (as written also
            count, with a length); rate: these
            events per time; total and mean: of the amounts in the window; quantile: of the values in the
            window; cdf: the share of values below a point; ks: the greatest distance of their distribution
            from the reference; no_data: no release for a window's length.
        window_us: length of the window; None for count.
        comparison, threshold: None for no_data. Against the past the threshold is the factor of that count.
        per_us: the unit of a rate's threshold.
        keys: the keys that are counted together; empty for all.
        without: whether ``keys`` are left out, and all others are counted together.
        each: whether the text means one condition per key; see ``of_key``.
        level: for a quantile its level in (0, 1); for a cdf the point.
        reference: the range with which ks, or a rule against the past, compares the window.
        places: the position of each part in the text, counted from 0.
    """

    measure: MeasureName
    stream: str
    window_us: int | None = None
    comparison: Comparison | None = None
    threshold: float | None = None
    per_us: int | None = None
    keys: tuple[str, ...] = ()
    level: float | None = None
    reference: Reference | None = None
    places: Mapping[str, int] = field(default_factory=dict, compare=False)
    each: bool = False
    without: bool = False

    def events(self, threshold: float) -> float:
        """Return a threshold of this condition as a number of events in the window."""
        if self.per_us is None or self.window_us is None:
            return threshold
        return threshold * self.window_us / self.per_us

    def in_unit(self, events: float) -> float:
        """Return a number of events in the window in the unit of the threshold: of a rate, events per time.

        >>> parse_condition("rate(clicks, 1h30m) < 40/m").in_unit(3600.0)
        40.0
        """
        if self.per_us is None or self.window_us is None:
            return events
        return events * self.per_us / self.window_us

    @property
    def against_past(self) -> bool:
        """Return whether the window is compared with an earlier one instead of a number."""
        return self.reference is not None and self.measure != "ks"

    @property
    def looks_back_us(self) -> int:
        """Return how long before the end of its window the past begins that the rule compares it with."""
        found = self.reference
        return found.length_us + found.ago_us if found is not None and self.against_past else 0

    @property
    def unit(self) -> str:
        """The unit of a rate as its threshold is written, for example "/m"; empty for other measures."""
        return next((f"/{unit}" for unit, us in UNITS_US.items() if us == self.per_us), "")

    @property
    def upward(self) -> bool:
        return self.comparison in (">", ">=")

    def error(self, part: str, line: str) -> RuleError:
        return RuleError(f"character {self.places.get(part, 0) + 1}: {line}")


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises: RuleError.

    >>> parse_condition("rate(clicks, 1h30m) < 40/m").events(40.0)
    3600.0
    >>> parse_condition("quantile(delays['UA', 'AA'], 0.95, 24h) > 60").keys
    ('UA', 'AA')
    >>> parse_condition("sum(clicks[not 'FR'], 1h) > 5").without
    True
    """
    return _Reader(text).condition()


@lru_cache(maxsize=1_024)
def known_condition(text: str) -> Condition | None:
    """Return the condition of a stored rule; None if this version cannot read it."""
    try:
        return parse_condition(text)
    except RuleError:
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._places: dict[str, int] = {}

    def condition(self) -> Condition:
        name, at = self._take("word", _KNOWN)
        if name not in MEASURES:
            self._refuse(at, f'"{name}" is not known; use {_KNOWN}')
        measure, written = name, name
        self._sign("(")
        stream = self._noted("stream", "word", "the name of a stream")
        keys, each, without = self._keys() if measure != "no_data" else ((), False, False)
        level = self._level(measure) if measure in ("quantile", "cdf") else None
        window_us, reference = None, None
        if measure == "count" and self._next_is(","):
            measure = "sum"
        if measure != "count":
            self._sign(",")
            window_us = self._length("window")
            reference = self._reference(window_us) if measure == "ks" else None
        self._sign(")")
        if measure == "no_data":
            self._end()
            return Condition(measure, stream, window_us, places=self._places)
        comparison = self._comparison(measure)
        if window_us is not None and measure in _OF_WINDOWS and self._past_follows():
            factor = self._factor()
            reference = self._past((written, stream, keys, each, without), window_us)
            self._end()
            against = Condition(measure, stream, window_us, comparison, factor, None, keys, None, reference)
            return replace(against, places=self._places, each=each, without=without)
        threshold = self._number("threshold", "a number")
        if measure in ("cdf", "ks") and not 0.0 < threshold < 1.0:
            self._refuse(self._places["threshold"], f"{measure} is a share; give one above 0 and below 1")
        per_us = self._unit() if measure == "rate" else None
        self._end()
        found = (measure, stream, window_us, comparison, threshold, per_us, keys, level, reference)
        return Condition(*found, self._places, each, without)

    def _keys(self) -> tuple[tuple[str, ...], bool, bool]:
        """Read the keys in brackets, if there are any; return too whether the brackets hold each, and not."""
        if not self._next_is("["):
            return (), False, False
        self._sign("[")
        if self._next_is("each", "word"):
            self._noted("each", "word", "each")
            self._sign("]")
            return (), True, False
        without = self._next_is("not", "word")
        if without:
            self._take("word", "not")
        keys: list[str] = []
        while True:
            text, at = self._take("text", "a key in quotes, for example 'FR', not 'FR', or each")
            key = text[1:-1]
            if key in keys:
                self._refuse(at, f"{key!r} is named twice; an event is counted once")
            keys.append(key)
            self._places[f"key {key}"] = at
            if not self._next_is(","):
                self._sign("]")
                return tuple(keys), False, without
            self._sign(",")

    def _level(self, measure: MeasureName) -> float:
        self._sign(",")
        level = self._number("level", "a quantile, for example 0.95" if measure == "quantile" else "a value")
        if measure == "quantile" and not 0.0 < level < 1.0:
            self._refuse(self._places["level"], "a quantile is above 0 and below 1, for example 0.95")
        return level

    def _reference(self, window_us: int) -> Reference:
        self._sign(",")
        if self._text[self._at :].lstrip()[:1] in ("'", '"'):
            text = self._noted("reference", "text", "a range")
            try:
                from_us, to_us = (parse_instant(part) for part in text[1:-1].split("/"))
            except ValueError:
                wanted = "two instants, for example '2013-01-01T00:00:00Z/2013-02-01T00:00:00Z'"
                self._refuse(self._places["reference"], f"here belong {wanted}")
            if from_us >= to_us:
                self._refuse(self._places["reference"], "the range ends before it begins; exchange its ends")
            return Reference(from_us=from_us, to_us=to_us)
        length_us = self._length("reference")
        if not self._next_is("ago", "word"):
            return Reference(length_us, window_us)
        self._take("word", "ago")
        return Reference(length_us, self._length("ago"))

    def _past_follows(self) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup != "number":
            return match is not None and match["word"] in MEASURES
        follows = _TOKEN.match(self._text, match.end())
        return follows is not None and follows["sign"] == "*"

    def _factor(self) -> float:
        """Read the factor of the past; without one it is 1."""
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup == "word":
            return 1.0
        factor = self._number("threshold", "a number")
        if not 0.0 < factor <= _LARGEST_FACTOR:
            self._refuse(self._places["threshold"], "a factor is above 0 and at most 1,000,000")
        self._sign("*")
        return factor

    def _past(self, window: tuple[object, ...], window_us: int) -> Reference:
        """Read the past of a window. Args: window, its name, its stream and its keys as ``_keys``."""
        places = dict(self._places)
        name, at = self._take("word", str(window[0]))
        self._sign("(")
        stream, _ = self._take("word", "the name of a stream")
        if (name, stream, *self._keys()) != window:
            self._refuse(at, "only the same count is compared with; write its name, stream and keys again")
        if "each" in places:
            places["each past"] = self._places["each"]
        self._places = places
        self._sign(",")
        length_us = self._length("reference")
        self._sign(",", "a past ends some time ago, for example , 7d ago)")
        ago_us = self._length("ago")
        if ago_us < window_us:
            self._refuse(
                self._places["ago"], "the past has to end before the window begins; write a longer one"
            )
        self._take("word", "ago")
        self._sign(")")
        return Reference(length_us, ago_us)

    def _comparison(self, measure: MeasureName) -> Comparison:
        comparison, at = self._take("sign", "a comparison: >, >=, < or <=")
        if comparison not in (">", ">=", "<", "<="):
            self._refuse(at, "a comparison belongs here: >, >=, < or <=")
        if measure in _STRICT and comparison in (">=", "<="):
            self._refuse(at, f"{measure} is compared strictly; write {comparison[0]}")
        return cast("Comparison", comparison)

    def _number(self, part: str, wanted: str) -> float:
        number = float(self._noted(part, "number", wanted))
        if not math.isfinite(number):
            self._refuse(self._places[part], "the number is larger than any count; write a smaller one")
        return number

    def _length(self, part: str) -> int:
        text = self._noted(part, "length", "a length of time, for example 24h")
        length_us = sum(int(count) * UNITS_US[unit] for count, unit in re.findall(r"(\d+)([smhdw])", text))
        if not length_us:
            self._refuse(self._places[part], "the length must be longer than zero")
        if length_us > _LONGEST_US:
            self._refuse(self._places[part], "the length is more than a hundred years; write a shorter one")
        return length_us

    def _unit(self) -> int:
        self._sign("/", "a rate needs its unit, for example 40/m")
        unit, at = self._take("word", "s, m, h, d or w")
        if unit not in UNITS_US:
            self._refuse(at, "the unit of a rate is s, m, h, d or w")
        return UNITS_US[unit]

    def _noted(self, part: str, kind: str, wanted: str) -> str:
        """Take a token and remember its position."""
        text, self._places[part] = self._take(kind, wanted)
        return text

    def _next_is(self, text: str, kind: str = "sign") -> bool:
        match = _TOKEN.match(self._text, self._at)
        return match is not None and match.lastgroup == kind and match[kind] == text

    def _take(self, kind: str, wanted: str) -> tuple[str, int]:
        match = _TOKEN.match(self._text, self._at)
        rest = self._text[self._at :]
        at = self._at + len(rest) - len(rest.lstrip())
        # A stream may be called 24h or 2013: where a name is expected, such a token is a name.
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
