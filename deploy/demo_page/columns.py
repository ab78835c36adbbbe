"""Numbers as text: whole multiples of a power of ten, their differences byte by byte, compressed."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np


def packed(numbers: Any, decimals: int = 0, order: int = 0) -> str:
    """Return numbers as text that ``columns.js`` reads.

    The text is the decimals, the order, the bytes of each number, and in base64 a zlib stream. The stream has
    the lowest bytes of all numbers, then the next ones. A number has its sign in the lowest bit.

    Args: decimals, to which the numbers are rounded, may be negative; order, how often differences of
        neighbours are taken: 1 or 2 for numbers that change slowly.

    >>> packed([3, 4, 4, -2])[:6]
    '0:0:1:'
    """
    column = np.round(np.asarray(numbers, dtype=np.float64) * 10.0**decimals).astype(np.int64)
    for _ in range(order):
        column = np.diff(column, prepend=0)
    signed = np.where(column >= 0, 2 * column, -2 * column - 1).astype("<u8")
    size = max(1, -(-int(signed.max(initial=0)).bit_length() // 8))
    planes = signed.view(np.uint8).reshape(-1, 8)[:, :size].T.tobytes()
    return f"{decimals}:{order}:{size}:{base64.b64encode(zlib.compress(planes, 9)).decode()}"


def packed_errors(errors: Any, order: int = 0, digits: int = 4) -> str:
    """Return errors as text, rounded up. Args: digits, which the largest one keeps."""
    column = np.asarray(errors, dtype=np.float64)
    decimals = digits - 1 - int(np.floor(np.log10(column.max(initial=1.0))))
    return packed(np.ceil(column * 10.0**decimals - 1e-6) * 10.0**-decimals, decimals, order)
