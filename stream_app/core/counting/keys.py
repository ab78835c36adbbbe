"""The keys of an axis: how values become keys, and the place of each key in the public list.

Normalising is the public rule by which values that people write in several ways become one key.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import product, repeat
from typing import Any, Literal

import msgspec
import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.coded import Coded, Column, for_each
from stream_app.core.counting.read_values import as_listed, each_once, listed_as
from stream_app.core.counting.unlisted import LONGEST_NAME, Discover, key_names
from stream_app.core.counting.unlisted import OTHER as OTHER

_NOTHING = Fraction(0)
Option = bool | int | float | str | list[int] | None  # a JSON value that a mechanism's option may have

NONE = "none"  # the key of events without the field
_MOST_REMEMBERED, _MOST_RULES = 1 << 16, 64
_LONGEST_VALUE = (
    2_000  # characters before the rule: an address that a browser sends; a longer value has no key
)
_MOST_COMPOSED = 4  # characters that become one in Unicode's composed form
# A group that repeats takes exponential time on some texts, and many repeats a high power of their length.
# Each ? and each | may double the time: of two repeats before four of them, or of one before eight, it is a
# millisecond.
_LITERALS = re.compile(r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_SLOW = re.compile(r"\)[*+{]|\(\?|\\[1-9]")
_REPEATS, _CHOICES = re.compile(r"[*+]|\{\d*,\d*\}"), re.compile(r"[?|]")
_MOST_CHOICES = (8, 8, 4)  # by the number of repeats
_ESCAPES = re.compile(r"(?:%[0-9a-fA-F]{2})+")

ANY = "*"  # in a pattern of keys: any value of a field
_PARTS = re.compile(r"(?:\A|/)((?:[^/\\]|\\.)*+)", re.DOTALL)  # the parts of a label, with slashes between
_NONE = -1


class Axis(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True, kw_only=True
):
    """How the counts of keys or buckets are released: live, or once per tumbling window.

    Args: for windows only: their length, mechanism, share of epsilon and the mechanism's options.
    """

    mode: Literal["tree", "window"] = "tree"
    window_us: int = 0
    mechanism: str = ""
    share: Fraction = _NOTHING
    options: dict[str, Option] = {}

    def __post_init__(self) -> None:
        """Replace values that equal a default by the default itself: msgspec omits only that object."""
        if self.mode == "tree":
            msgspec.structs.force_setattr(self, "mode", "tree")
        if self.share == _NOTHING:
            msgspec.structs.force_setattr(self, "share", _NOTHING)


class Normalise(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True, kw_only=True
):
    """How a value becomes a key, in this order; each step is left out unless it is asked for.

    A value of more than 2,000 characters has no key: the rule runs beside cuts, and nobody's value may delay
    the releases of others. ``Slices.make_keys`` lets cuts run between two values.

    Args:
        query: the names of parameters that stay behind the ``?``, in this order; None: the query stays whole.
        percent: whether percent-encoding is decoded, if the result is UTF-8.
        nfc: whether a text is in Unicode's composed form.
        lower: whether letters are small.
        strip_slash: whether slashes at the end go, but that of ``/``.
        patterns: a regular expression that must match all of a value, and its replacement; the first
            one that matches counts. ``\\1`` is the text of its first group.
        replace: a value, and its replacement.
        none: whether events without the field have the key ``none``.

    >>> rule = Normalise(query=("p",), lower=True, strip_slash=True, patterns=((r"/u/\\d+(/.*)?", r"/u\\1"),))
    >>> [rule.of(value) for value in ("/A/?x=1&p=2", "/a/", "/u/7/Posts", 200.0, "/")]
    ['/a?p=2', '/a', '/u/posts', '200', '/']
    """

    query: tuple[str, ...] | None = None
    percent: bool = False
    nfc: bool = False
    lower: bool = False
    strip_slash: bool = False
    patterns: tuple[tuple[str, str], ...] = ()
    replace: tuple[tuple[str, str], ...] = ()
    none: bool = False

    def of(self, value: object) -> object:
        """Return the key of a value; a value that can be no key stays as it is."""
        if type(value) is str:
            return self._keys[value]
        if self.none and value is None:
            return NONE
        return self._made(value) if isinstance(value, int | float) else value

    def of_each(self, column: Sequence[object]) -> Sequence[object]:
        """Return the keys of values."""
        if set(map(type, column)) == {str}:
            return list(map(self._keys.__getitem__, column))  # type: ignore[arg-type]
        return each_once(self.of, column)

    def each_made(self, column: Column) -> Iterator[object]:
        """Yield the key of each new text in a column; the keys of all its texts are remembered then."""
        if len(self._keys) > _MOST_REMEMBERED:
            self._keys.clear()
        values = column.values if isinstance(column, Coded) else column
        new = {value for value in values if type(value) is str} - self._keys.keys()
        yield from map(self._keys.__getitem__, new)

    @cached_property
    def _keys(self) -> _Keys:
        return _keys_of(self)

    @cached_property
    def _compiled(self) -> list[tuple[re.Pattern[str], str]]:
        return [(re.compile(pattern), becomes) for pattern, becomes in self.patterns]

    @cached_property
    def _replaced(self) -> dict[str, str]:
        return dict(self.replace)

    def _made(self, value: str | int | float) -> object:
        if not isinstance(value, str):
            [text] = key_names([value])
            return self._keys[text] if text else value
        path, mark, query = value.partition("?")
        if self.query is not None:
            query = _kept(query, self.query)
            mark = "?" if query else ""
        if self.percent:
            path, query = _decoded(path), _decoded(query)
        if self.strip_slash:
            path = path.rstrip("/") or path[:1]
        text = f"{path}{mark}{query}"
        if len(text) > _MOST_COMPOSED * LONGEST_NAME:
            return text
        if self.nfc:
            text = unicodedata.normalize("NFC", text)
        if self.lower:
            text = text.lower()
        if len(text) <= LONGEST_NAME:
            text = self._matched(text)
        return self._replaced.get(text, text)

    def _matched(self, text: str) -> str:
        for pattern, becomes in self._compiled:
            if (found := pattern.fullmatch(text)) is not None:
                return re.sub(r"\\(\d)", lambda group: found[int(group[1])] or "", becomes)
        return text

    @property
    def in_words(self) -> str:
        """The rule, for readers: "in lower case, without a slash at the end"."""
        query = "without query"
        if self.query:
            query = f"with the parameters {', '.join(self.query)} only"
        said = [
            (self.query is not None, query),
            (self.percent, "without percent-encoding"),
            (self.nfc, "in Unicode's composed form"),
            (self.lower, "in lower case"),
            (self.strip_slash, "without a slash at the end"),
            (bool(self.patterns), f"by {len(self.patterns)} patterns"),
            (bool(self.replace), f"by a table of {len(self.replace)} replacements"),
            (self.none, f"as {NONE} if the field is missing"),
        ]
        return ", ".join(words for is_there, words in said if is_there)


class _Keys(dict[str, object]):
    """The key of each text that a rule has seen."""

    def __init__(self, rule: Normalise) -> None:
        self._rule = rule

    def __missing__(self, text: str) -> object:
        if len(text) > _LONGEST_VALUE:
            return text
        key = self[text] = NONE if self._rule.none and not text else self._rule._made(text)
        return key


_keys_of = lru_cache(_MOST_RULES)(_Keys)  # equal rules of several streams share it


def normalised(rule: Normalise | None, column: Sequence[object]) -> Sequence[object]:
    """Return the keys of values: the one place for listed and for found keys."""
    return column if rule is None else rule.of_each(column)


def check_pattern(pattern: str, becomes: str) -> None:
    """Refuse a pattern that may take long on some text, or is none. Raises: ValueError, one line."""
    plain = _LITERALS.sub("x", pattern)
    repeats, choices = (len(signs.findall(plain)) for signs in (_REPEATS, _CHOICES))
    if _SLOW.search(plain) or repeats >= len(_MOST_CHOICES) or choices > _MOST_CHOICES[repeats]:
        raise ValueError(
            f"{pattern!r} may take long on some texts; repeat no group, use * and + at most twice, "
            "and ? and | at most eight times, beside two repeats at most four times"
        )
    try:
        groups = re.compile(pattern).groups
    except re.error as failure:
        raise ValueError(f"{pattern!r} is no regular expression: {failure}") from None
    if any(int(number) > groups for number in re.findall(r"\\(\d)", becomes)):
        raise ValueError(f"{becomes!r} names a group that {pattern!r} has not")


def _kept(query: str, names: tuple[str, ...]) -> str:
    """Return the parameters of these names, in their order."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for part in query.split("&") if query else ():
        if (same := found.get(part.partition("=")[0])) is not None:
            same.append(part)
    return "&".join(part for parts in found.values() for part in parts)


def _decoded(text: str) -> str:
    """Return a text without percent-encoding; with it, in capital letters, if the result is not UTF-8."""
    try:
        return _ESCAPES.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode(), text)
    except UnicodeDecodeError:
        return _ESCAPES.sub(lambda found: found[0].upper(), text)


class KeyField(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, rename={"names": "list"}):
    """A field whose values are listed. Args: as of ``KeyList``."""

    field: str
    names: tuple[str, ...]
    other: bool

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Return the value at each place of the list, ``other`` included."""
        return (*self.names, OTHER) if self.other else self.names

    @cached_property
    def _places(self) -> dict[str | int | float, int]:
        return listed_as(self.names)

    def places(self, column: Sequence[Any]) -> Int64Array:
        """Return the place in the list of each event's value, -1 if it has none.

        Args: column, the values as read; ``read_values.listed_as`` says which of them are on a list.
        """
        missing = len(self.names) if self.other else _NONE
        return np.fromiter(map(self._places.get, as_listed(column), repeat(missing)), np.int64, len(column))


class KeyList(Axis, frozen=True, rename={"names": "list"}):
    """The keys that are counted separately: the values of one field, or every combination of several fields.

    Args:
        field: the column of keys, with dots for nested objects.
        names: the public list.
        other: whether all other keys count as ``other``; else their events are refused.
        total: whether the total over keys is measured too, with its own share of epsilon.
        fields: of a stream with several key fields, which has no ``field``, ``names`` and ``other`` then.
        discover: how keys beside the list are found; None: they are not. With it ``other`` is no key of the
            list, but the total less all keys, at the place after them.
        normalise: how values become keys; None: as they are.
    """

    field: str = ""
    names: tuple[str, ...] = ()
    other: bool | None = None
    total: bool | None = None
    fields: tuple[KeyField, ...] = ()
    discover: Discover | None = None
    normalise: Normalise | None = None

    @cached_property
    def parts(self) -> tuple[KeyField, ...]:
        """Return every field with its values; the first one varies slowest in the list of keys."""
        return self.fields or (KeyField(self.field, self.names, bool(self.other)),)

    @cached_property
    def count(self) -> int:
        """Return the number of places of keys, that of ``other`` included."""
        return math.prod(self.sizes)

    def with_found(self, names: tuple[str, ...]) -> KeyList:
        return msgspec.structs.replace(self, names=self.names + names)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(part.values) for part in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns from which an event's key is determined."""
        return tuple(part.field for part in self.parts)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the key at each place of the list, ``other`` included.

        >>> keys = KeyList(fields=(KeyField("c", ("FR", "a/b"), False), KeyField("d", ("tv",), True)))
        >>> keys.labels
        ('FR/tv', 'FR/other', 'a\\\\/b/tv', 'a\\\\/b/other')
        """
        if not self.fields:
            return self.names if self.discover is not None else self.parts[0].values
        return tuple(map("/".join, product(*self._written)))

    @cached_property
    def _written(self) -> tuple[tuple[str, ...], ...]:
        """The values of each field as parts of a label, so that no two combinations have one label."""
        return tuple(tuple(map(_escaped, part.values)) for part in self.parts)

    @cached_property
    def place_of_label(self) -> dict[str, int]:
        """Return the place of each key by its label, ``other`` included."""
        labels = self.labels if self.discover is None else (*self.labels, OTHER)
        return {label: place for place, label in enumerate(labels)}

    def matching(self, pattern: str) -> tuple[int, ...]:
        """Return the places of the keys that match a pattern: of several fields, or the start of a found key.

        >>> keys = KeyList(fields=(KeyField("c", ("FR", "DE"), False), KeyField("d", ("tv", "pc"), False)))
        >>> keys.matching("DE/*"), keys.matching("*/tv"), keys.matching("FR/radio"), keys.matching("FR")
        ((2, 3), (0, 2), (), ())
        """
        if not (chosen := self._chosen(pattern)):
            return ()
        places = np.arange(math.prod(self.sizes)).reshape(self.sizes)[
            np.ix_(*(np.array(one, np.int64) for one in chosen))
        ]
        return tuple(places.ravel().tolist())

    def matches(self, pattern: str) -> bool:
        """Return whether a pattern matches keys. Cost: of several fields, the same for any number of keys."""
        chosen = self._chosen(pattern)
        return bool(chosen) and all(chosen)

    def _chosen(self, pattern: str) -> list[Sequence[int]]:
        """Return the places of the values that a pattern chooses, by field; none if it is no pattern."""
        if self.discover is not None and pattern.endswith(ANY):
            return [[at for at, label in enumerate(self.labels) if label.startswith(pattern[:-1])]]
        written = _PARTS.findall(pattern) if self.fields else []
        if len(written) != len(self.parts) or "/".join(written) != pattern:
            return []
        return [
            range(len(places)) if one == ANY else [places[one]] if one in places else []
            for one, places in zip(written, self._places_written, strict=True)
        ]

    @cached_property
    def _places_written(self) -> tuple[dict[str, int], ...]:
        return tuple({one: place for place, one in enumerate(values)} for values in self._written)

    @property
    def a_pattern(self) -> str:
        """Return one pattern that matches keys; empty if there is only one field."""
        return self.pattern_of(0, 0) if self.fields else ""

    def pattern_of(self, field: int, value: int) -> str:
        """Return the pattern of all keys with one value of one field. Args: the field's and value's index."""
        return "/".join(self._written[field][value] if at == field else ANY for at in range(len(self.sizes)))

    def values_at(self, place: int) -> dict[str, str]:
        """Return the value of each field for the key at a place; empty if there is only one field."""
        if not self.fields:
            return {}
        indices = np.unravel_index(place, self.sizes)
        return {part.field: part.values[index] for part, index in zip(self.parts, indices, strict=True)}

    def places(self, *columns: Column) -> Int64Array:
        """Return the place in the list of each event's key, -1 if it has none.

        Args: for each field the values as read.

        >>> KeyList("c", ("UA", "7"), False, False).places(["UA", 7, 7.0, "7.0", "AA", None]).tolist()
        [0, 1, 1, -1, -1, -1]
        """
        first, *others = (
            for_each(column, partial(self._places_in, part))
            for part, column in zip(self.parts, columns, strict=True)
        )
        for size, places in zip(self.sizes[1:], others, strict=True):
            first = np.where((first < 0) | (places < 0), _NONE, first * size + places)
        return first

    def _places_in(self, part: KeyField, values: Sequence[object]) -> Int64Array:
        return part.places(normalised(self.normalise, values))


def _escaped(value: str) -> str:
    """Return a value as a part of a label: a slash, a backslash and a lone star get a backslash before them.

    >>> print(_escaped("/price"), _escaped("*"), _escaped("5*"))
    \\/price \\* 5*
    """
    return "\\*" if value == ANY else value.replace("\\", "\\\\").replace("/", "\\/")
