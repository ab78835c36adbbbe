"""The one format of stored states: numbers, arrays and nested snapshots, each under its name.

A snapshot consists of four letters for its kind, the format's version, a line of JSON, and the contents. The
line lists the parts in order, each with its *form*: the value of a number, the shape of an array, or the size
of a nested snapshot. The contents are the arrays, as little-endian int64, and the nested snapshots.

In version 1 each kind of state had its own header. Streams may hold such bytes, so they stay readable.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

_START = struct.Struct("<4sH")
_VERSION = 2
Form = int | list[int] | dict[str, int]  # a number's value, an array's shape, or {"bytes": size}


@dataclass(frozen=True)
class FirstVersion:
    """How version 1 stored a kind of state: a header, then the same contents as today.

    Args: start, the first bytes; header, the layout of the numbers after them, as in ``struct``; forms, a
        function from the size of the contents and the header's numbers to the forms of the parts.
    """

    start: bytes
    header: str
    forms: Callable[..., dict[str, Form]]

    def read(self, data: bytes) -> tuple[dict[str, Form], int]:
        """Return the forms, and the offset of the contents. Raises: ValueError for a header cut short."""
        header = struct.Struct(self.header)
        stop = len(self.start) + header.size
        if len(data) < stop:
            raise ValueError("the header is cut off")
        return self.forms(len(data) - stop, *header.unpack_from(data, len(self.start))), stop


@dataclass(frozen=True)
class Snapshot:
    """A state that is stored. The fields of a subclass are its parts: int, int64 arrays, or bytes.

    A field whose part is not stored gets its default; unknown parts are ignored. So parts can be added later.

    Attributes:
        code: four letters for the kind of state.
        noun: its name in error messages.
        first_version: how version 1 stored it; None for kinds that are younger than version 2.
    """

    code: ClassVar[bytes]
    noun: ClassVar[str]
    first_version: ClassVar[FirstVersion | None] = None

    def to_bytes(self) -> bytes:
        """Return a versioned, platform-independent copy. It is as secret as the snapshot."""
        forms, contents = dict[str, Form](), []
        for field in fields(self):
            part = getattr(self, field.name)
            if isinstance(part, np.ndarray):
                forms[field.name] = list(part.shape)
                contents.append(part.astype("<i8").tobytes())
            elif isinstance(part, bytes):
                forms[field.name] = {"bytes": len(part)}
                contents.append(part)
            else:
                forms[field.name] = int(part)
        line = json.dumps(forms, separators=(",", ":")).encode()
        return b"".join([_START.pack(self.code, _VERSION), line, b"\n", *contents])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the snapshot that ``to_bytes`` wrote, today or in version 1.

        Raises: ValueError for bytes of another kind or version, or damaged ones. The message shows no part.
        """
        old = cls.first_version
        first = old is not None and data.startswith(old.start)
        if not first and not data.startswith(_START.pack(cls.code, _VERSION)):
            raise ValueError(
                f"{cls.noun}: not one of version 1 or {_VERSION}; the stored bytes are damaged, or a newer "
                "version wrote them"
            )
        known = {field.name for field in fields(cls)}
        try:
            parts = _parts(data, *(old.read(data) if old is not None and first else _read(data)))
            return cls(**{name: part for name, part in parts.items() if name in known})
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(f"{cls.noun}: the stored bytes are damaged") from None


def _read(data: bytes) -> tuple[dict[str, Form], int]:
    """Return the forms, and the offset of the contents. Raises: ValueError if the line does not end."""
    end = data.index(b"\n")
    return json.loads(data[_START.size : end]), end + 1


def _parts(data: bytes, forms: Mapping[str, Form], start: int) -> dict[str, Any]:
    """Read the parts that ``forms`` describes. Raises: ValueError if the contents have another size."""
    parts = dict[str, Any]()
    for name, form in forms.items():
        if isinstance(form, int):
            parts[name] = form
        elif isinstance(form, dict):
            parts[name] = data[start : start + form["bytes"]]
            start += form["bytes"]
        else:
            values = np.frombuffer(data, "<i8", math.prod(form), start)
            parts[name] = values.astype(np.int64).reshape(form)
            start += values.nbytes
    if start != len(data):
        raise ValueError("contents of another size")
    return parts
