"""The settings of a segment, which the first row of each of its epochs tells.

Every row has their hash in ``strategy``. A text that is too long for a row, because of its list of keys, is
packed behind the values that the witness keeps beside this row.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator

from stream_app.core.records import WitnessRow
from stream_app.core.strategy import Strategy, canonical_json

LARGEST_IN_ROW_BYTES = 64_000
_NAME = "settings"
_TELLS = b'"settings":'  # in a text the quotation marks would be escaped
_BESIDE = b'"settings":null'


def settings_in_row(text: bytes) -> dict[str, object]:
    """Return the field ``settings`` of an epoch's first row; None in it: the witness has them beside the row.

    Args: text, of the strategy.
    """
    return {_NAME: json.loads(text) if len(text) <= LARGEST_IN_ROW_BYTES else None}


def settings_beside(strategy: Strategy, row: bytes) -> bytes:
    """Return the settings that the witness keeps behind a row's values; empty if the row has them."""
    if _BESIDE not in row or json.loads(row)["strategy"] != strategy.hash:
        return b""
    return zlib.compress(strategy.to_json())


def told_by(rows: Iterable[WitnessRow]) -> Iterator[Strategy]:
    """Yield the settings that rows of a witness tell. Older builds wrote rows that tell none.

    Raises: ValueError for settings that do not match the row's hash, or that this build cannot read.
    """
    for row in rows:
        if _TELLS in row.row and (text := _text(row)) is not None:
            if hashlib.sha256(text).hexdigest() != json.loads(row.row)["strategy"]:
                raise ValueError(f"row {row.seq}: its settings are not those that it has the hash of")
            yield Strategy.from_json(text)


def _text(row: WitnessRow) -> bytes | None:
    """Return the text of the settings that a row tells; None if the witness could not keep it."""
    told = json.loads(row.row).get(_NAME)
    if told is not None:
        return canonical_json(told)
    reader = zlib.decompressobj()
    try:
        reader.decompress(row.values)
        return zlib.decompress(reader.unused_data) if reader.unused_data else None
    except zlib.error:
        raise ValueError(f"row {row.seq}: its values in the witness are damaged") from None
