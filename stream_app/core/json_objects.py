"""Reads a record of JSON as an object, by its own bytes alone, whichever fields are used."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from stream_app.core.incoming import Reason

MOST_VALUES = 1 << 16  # of a text record with more bytes than this, estimated from its punctuation
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# Up to a number that is no JSON but that Python writes, or to the end: whole texts, and all other bytes.
_NO_JSON = re.compile(
    rb'((?:[^"NI]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|N(?!aN\b)|I(?!nfinity\b))*+)(NaN|Infinity|\Z)',
    flags=re.DOTALL,
)
# A text, or a whole number of more digits than are read, in a group.
_TOO_LONG = re.compile(
    rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|(?<![\d.eE])(?<![eE][+-])(\d{4301,}+)(?![.eE])', flags=re.DOTALL
)
_MOST_DIGITS = 4_300
_AS_JSON = {b"NaN": b"null", b"Infinity": b"1e999", b"": b""}
# The escapes of a text; those of half a character, which JSON cannot hold but JavaScript writes, in a group.
_ESCAPES = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", flags=re.DOTALL)


class _Object(msgspec.Struct):
    """Any JSON object."""


_decode = msgspec.json.Decoder(float_hook=float).decode  # a number beyond all doubles is infinite
_decode_nothing = msgspec.json.Decoder(_Object).decode  # raises for anything but an object


def is_object(record: bytes) -> bool:
    """Return whether a record is a JSON object; any other one is refused as undecodable.

    >>> [is_object(record) for record in (b'{"at": 1}', b'[{"at": 1}]', b"at,page")]
    [True, False, False]
    """
    return not has_too_many_values(record) and any(map(is_plain, _forms_of(record)))


def is_plain(record: bytes) -> bool:
    """Return whether a record is a JSON object as it stands, so that nothing of it has to be mended."""
    try:
        _decode_nothing(record)
    except UNDECODABLE:
        return False
    return True


def bare(record: bytes) -> bytes:
    """Return a record without a byte order mark before it, and without line ends and zeros around it.

    Such zeros end texts of C. They are also what a file has where it was truncated under its writer.
    """
    return record.strip(b"\0\r\n").removeprefix(BOM_UTF8)


def value_of(record: bytes) -> Any:
    """Return the value of a record, mended where that is needed. Raises: ValueError.

    >>> value_of(b' {"a": NaN}'), value_of(b"1e999")
    ({'a': None}, inf)
    """
    for form in _forms_of(record):
        with suppress(*UNDECODABLE):
            return _decode(form)
    raise ValueError("no JSON in UTF-8")


def _forms_of(record: bytes) -> Iterator[bytes]:
    """Yield a record as it stands, then ``bare``, then also ``mended``."""
    yield record
    yield (clean := bare(record))
    yield mended(clean)


def has_too_many_values(record: bytes) -> bool:
    """Return whether a record may hold more than ``MOST_VALUES`` values, by counting punctuation.

    Commas, brackets and braces within texts count too, because excluding them is slow. One record must not
    delay a cut, or it would decide in which bin another record counts.
    """
    return len(record) > MOST_VALUES and sum(map(record.count, (b",", b"[", b"{"))) > MOST_VALUES


def mended(record: bytes) -> bytes:
    """Return a record with JSON in place of the forms that other programs write.

    NaN becomes null. Infinity and whole numbers of more than 4,300 digits become a number beyond all doubles.
    Halves of characters, as they arise where a program cuts a text, become U+FFFD. A long record stays as it
    is, because this could delay a cut.

    >>> mended(b'{"NaN": [NaN, -Infinity]}')
    b'{"NaN": [null, -1e999]}'
    """
    if len(record) > MOST_VALUES:
        return record
    record = _NO_JSON.sub(lambda found: found[1] + _AS_JSON[found[2]], record)
    if len(record) > _MOST_DIGITS:
        record = _TOO_LONG.sub(lambda found: b"1e999" if found[1] else found[0], record)
    return _ESCAPES.sub(lambda found: b"\\ufffd" if found[1] else found[0], record)


def nested_value(record: Any, path: str) -> Any:
    """Return the value at a path, or the reason why a record has none; ``json_fields`` has the rule of names.

    >>> [nested_value(record, "log.level") for record in ({"log": {"level": 1}}, {"log.level": 2, "log": {}})]
    [1, 2]
    """
    if record is None:
        return Reason.NULL
    if not path:
        return record
    for name, rest in names_of(path) if isinstance(record, dict) else ():
        if name in record:
            return nested_value(record[name], rest)
    return Reason.MISSING_FIELD


def names_of(path: str) -> Iterator[tuple[str, str]]:
    """Yield the names with which a path may begin, the longest first, each with the rest of the path."""
    yield path, ""
    end = len(path)
    while (end := path.rfind(".", 0, end)) >= 0:
        yield path[:end], path[end + 1 :]
