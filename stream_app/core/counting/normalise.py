"""Keys as people write them: the public rule by which values that mean one thing become one key."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec

from stream_app.core.counting.unlisted import LONGEST_NAME, key_names

NONE = "none"  # the key of events without the field
_MOST_REMEMBERED, _LONGEST_REMEMBERED = 1 << 16, 2_000
# A group that repeats takes exponential time on some texts, and many repeats a high power of their length.
# Each ? and each | may double the time: eight of them behind two repeats take a tenth of a second.
_LITERALS = re.compile(r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_SLOW = re.compile(r"\)[*+{]|\(\?|\\[1-9]")
_REPEATS, _MOST_REPEATS = re.compile(r"[*+]|\{\d*,\d*\}"), 2
_CHOICES, _MOST_CHOICES = re.compile(r"[?|]"), 8
_ESCAPE = re.compile(r"%[0-9a-fA-F]{2}")


class Normalise(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True, kw_only=True
):
    """How a value becomes a key, in this order; each step is left out unless it is asked for.

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

    def of(self, value: Any) -> Any:
        """Return the key of a value; a value that can be no key stays as it is."""
        if self.none and (value is None or value == ""):
            return NONE
        if not isinstance(value, str | int | float):
            return value
        is_long = isinstance(value, str) and len(value) > _LONGEST_REMEMBERED
        return self._made(value) if is_long else self._remembered(value)

    @cached_property
    def _remembered(self) -> Callable[[Any], Any]:
        return lru_cache(_MOST_REMEMBERED, typed=True)(self._made)

    @cached_property
    def _compiled(self) -> list[tuple[re.Pattern[str], str]]:
        return [(re.compile(pattern), becomes) for pattern, becomes in self.patterns]

    def _made(self, value: str | int | float) -> str | int | float:
        if not isinstance(value, str):
            [text] = key_names([value])
            return self._made(text) if text else value
        path, mark, query = value.partition("?")
        if self.query is not None:
            query = _kept(query, self.query)
            mark = "?" if query else ""
        if self.percent:
            path, query = _decoded(path), _decoded(query)
        if self.strip_slash:
            path = path.rstrip("/") or path[:1]
        text = f"{path}{mark}{query}"
        if self.nfc:
            text = unicodedata.normalize("NFC", text)
        if self.lower:
            text = text.lower()
        if len(text) <= LONGEST_NAME:
            text = self._matched(text)
        return dict(self.replace).get(text, text)

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


def normalised(rule: Normalise | None, column: Sequence[Any]) -> Sequence[Any]:
    """Return the keys of values: the one place for listed and for found keys."""
    return column if rule is None else list(map(rule.of, column))


def check_pattern(pattern: str, becomes: str) -> None:
    """Refuse a pattern that may take long on some text, or is none. Raises: ValueError, one line."""
    plain = _LITERALS.sub("x", pattern)
    is_long = len(_REPEATS.findall(plain)) > _MOST_REPEATS or len(_CHOICES.findall(plain)) > _MOST_CHOICES
    if is_long or _SLOW.search(plain):
        raise ValueError(
            f"{pattern!r} may take long on some texts; repeat no group, use * and + at most twice, "
            "and ? and | at most eight times"
        )
    try:
        groups = re.compile(pattern).groups
    except re.error as failure:
        raise ValueError(f"{pattern!r} is no regular expression: {failure}") from None
    if any(int(number) > groups for number in re.findall(r"\\(\d)", becomes)):
        raise ValueError(f"{becomes!r} names a group that {pattern!r} has not")


def _kept(query: str, names: tuple[str, ...]) -> str:
    """Return the parameters of these names, in their order."""
    parts = query.split("&") if query else []
    return "&".join(part for name in names for part in parts if part.partition("=")[0] == name)


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return _ESCAPE.sub(lambda found: found[0].upper(), text)
