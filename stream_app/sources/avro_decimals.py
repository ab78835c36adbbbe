"""Reads Avro's decimals as the numbers that the same digits give in JSON.

fastavro's own reader rounds to the precision that a schema states, and fails on some schemas. The reader
here is registered with fastavro under another name. It gives the nearest number for any digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from fastavro.read import LOGICAL_READERS

LOGICAL_TYPE = "decimal"
READ_AS = "number-of-decimal"  # the logical type that replaces it in parsed schemas
MOST_DIGITS = 1_000  # far beyond a double's range; Python itself refuses to write numbers of 4,301 digits
MOST_BYTES = 416  # the bytes that hold this many digits


def is_decimal(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is a valid decimal; with invalid attributes it is plain bytes.

    Source: Avro specification 1.12, "Decimal".

    >>> is_decimal({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    True
    >>> is_decimal({"type": "fixed", "size": 1, "logicalType": "decimal", "precision": 3})
    False
    """
    precision, scale, size = schema.get("precision"), schema.get("scale", 0), schema.get("size")
    if schema.get("logicalType") != LOGICAL_TYPE or type(precision) is not int or type(scale) is not int:
        return False
    if not 0 < precision <= MOST_DIGITS or not 0 <= scale <= precision:
        return False
    if schema.get("type") == "fixed":
        return type(size) is int and size > 0 and 10**precision <= 1 << 8 * size - 1
    return schema.get("type") == "bytes"


def number(data: bytes, scale: int) -> int | float | None:
    """Return a decimal as a number: exact if the scale is 0, otherwise the nearest double.

    Args: data, the digits as a big-endian two's complement; no bytes, or too many, are no number.

    >>> number(b"\\x04\\xd2", 2), number(b"\\xff", 0), number(b"\\x05", 1), number(b"", 0)
    (12.34, -1, 0.5, None)
    """
    if not 0 < len(data) <= MOST_BYTES:
        return None
    digits = int.from_bytes(data, "big", signed=True)
    if not scale:
        return digits
    try:
        return digits / _power_of_ten(scale)
    except OverflowError:
        return math.inf if digits > 0 else -math.inf


@cache
def _power_of_ten(scale: int) -> int:
    return int(10**scale)


def _read(data: bytes, schema: Mapping[str, Any], _reader_schema: Any = None) -> int | float | None:
    return number(data, schema.get("scale", 0))


LOGICAL_READERS |= {f"bytes-{READ_AS}": _read, f"fixed-{READ_AS}": _read}
