"""Reads a body: JSON objects, one per line, or in an array. Only the body itself decides which."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice

import msgspec

from stream_app.core.json_objects import MOST_VALUES, UNDECODABLE, is_object, is_plain, mended

# Records of a body that may be no JSON objects as they stand, and their bytes: each costs as much as ten.
MOST_OTHERS, MOST_OTHER_BYTES = 10_000, 1 << 20
MOST_ARRAY_BYTES = 4 << 20  # an array is read at once, and nothing else runs meanwhile
HINT = (
    f"send one JSON object per line, or one array of objects of at most {MOST_ARRAY_BYTES >> 20} MiB, "
    "uncompressed and in UTF-8 (curl --data-binary @FILE keeps lines; -d joins them)"
)
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def lines_of(body: bytes) -> tuple[bytes, int]:
    """Return the records of a body as whole lines, and the number of records that are no JSON object.

    Lines stay as they are. Each element of an array becomes a line, in order. So does an object that fills
    the whole body.
    Raises: ValueError, one line, if no record is an object, or too many are none, or the only one cannot be
        an event, such as {"events": [...]}.

    >>> lines_of(b'{"a": 1}'), lines_of(b'[{"a": 1},\\n{"a": 2}, 3]')
    ((b'{"a": 1}\\n', 0), (b'{"a": 1}\\n{"a": 2}\\n3\\n', 1))
    """
    lines = lines_in(body)
    others = _others(lines)
    if others != 0 and len(body) <= MOST_ARRAY_BYTES and (whole := _whole(body)) is not None:
        lines, body = whole, b"".join(line + b"\n" for line in whole)
        others = _others(lines)
    if others is None:
        raise ValueError(
            f"more than {MOST_OTHERS:,} lines of it, or {MOST_OTHER_BYTES >> 20} MiB of them, are no JSON "
            f"object (NaN is no JSON); {HINT}, with fewer such lines in a request"
        )
    if lines and others == len(lines):
        raise ValueError(f"no line of it is a JSON object; {HINT}")
    if len(lines) == 1 and _holds_lists_only(lines[0]):
        raise ValueError(f"its one object holds a list and no time, so it is no event; {HINT}")
    return body if not body or body.endswith(b"\n") else body + b"\n", others


def lines_in(data: bytes) -> list[bytes]:
    """Return the lines that are not blank: blank lines are not records."""
    return [line for line in data.split(b"\n") if line and not line.isspace()]


def no_objects(lines: Iterable[bytes]) -> int:
    """Return how many lines are no JSON object: counting refuses them as undecodable."""
    return sum(not is_object(line) for line in lines)


def _others(lines: Sequence[bytes]) -> int | None:
    """Return how many lines are no JSON object, or None if finding that out would hold up other senders."""
    unclear = list(islice((line for line in lines if not is_plain(line)), MOST_OTHERS + 1))
    # Longer lines are not mended, so they cost no more than objects.
    size = sum(len(line) for line in unclear if len(line) <= MOST_VALUES)
    return None if len(unclear) > MOST_OTHERS or size > MOST_OTHER_BYTES else no_objects(unclear)


def _whole(body: bytes) -> list[bytes] | None:
    """Return the records of a body that is one JSON text: an array, or an object. None if it is neither."""
    text = body.removeprefix(BOM_UTF8).strip()
    if not text.startswith(b"["):
        return [_on_one_line(text)] if is_object(text) else None
    for mend in (bytes, mended):  # NaN in a short array is taken as in a line, which counting mends
        with suppress(*UNDECODABLE):
            return list(map(_on_one_line, _elements(mend(text))))
    return None


def _holds_lists_only(record: bytes) -> bool:
    """Return whether each field of an object is a list, in which no time field can be."""
    with suppress(*UNDECODABLE):
        members = _members(record)
        return bool(members) and all(bytes(value).lstrip().startswith(b"[") for value in members.values())
    return False


def _on_one_line(element: msgspec.Raw | bytes) -> bytes:
    """Return a JSON text without line ends, which are between its tokens only."""
    return bytes(element).replace(b"\n", b" ").replace(b"\r", b" ")
