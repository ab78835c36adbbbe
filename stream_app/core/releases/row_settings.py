"""The settings of a segment, which the first row of each of its epochs tells.

Every row has their hash in ``strategy``. Readers see rows, so a row tells neither the source, whose name a
stream's title may hide, nor another stream, nor a list of keys that is too long. The whole text is packed
behind the values that the witness keeps beside this row.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Iterable, Iterator

from stream_app.core.records import WitnessRow
from stream_app.core.strategy import Strategy

LARGEST_IN_ROW_BYTES = 64_000
_NOT_FOR_READERS = {"source", "successor_of"}
_TELLS = b'"settings":'  # in a text the quotation marks would be escaped


def settings_in_row(text: bytes) -> dict[str, object]:
    """Return the field ``settings`` of an epoch's first row, without names hidden from readers.

    They are None if ``text``, of the strategy, is too long.
    """
    told = json.loads(text)
    for settings in (told, told["declared"]):
        for name in _NOT_FOR_READERS & settings.keys():
            del settings[name]
    return {"settings": told if len(text) <= LARGEST_IN_ROW_BYTES else None}


def settings_beside(strategy: Strategy, row: bytes) -> bytes:
    """Return the settings that the witness keeps behind a row's values; empty if the row tells none."""
    if _TELLS not in row or json.loads(row)["strategy"] != strategy.hash:
        return b""
    return zlib.compress(strategy.to_json())


def told_by(rows: Iterable[WitnessRow], known: Collection[str] = ()) -> Iterator[Strategy]:
    """Yield the settings that rows of a witness tell. Older builds wrote rows that tell none.

    Args: known, hashes of settings that are not read: a damaged row stops no stream that needs none of it.
    Raises: ValueError for settings that do not match the row's hash, or that this build cannot read.
    """
    for row in rows:
        if _TELLS not in row.row or (named := json.loads(row.row)["strategy"]) in known:
            continue
        if text := parted(row)[1]:
            if hashlib.sha256(text).hexdigest() != named:
                raise ValueError(f"row {row.seq}: its settings are not those that it has the hash of")
            yield Strategy.from_json(text)


def parted(row: WitnessRow) -> tuple[bytes, bytes]:
    """Return the packed values that a witness keeps beside a row, and the text of the settings behind them.

    Raises: ValueError for damaged bytes.
    """
    if _TELLS not in row.row:
        return row.values, b""
    reader = zlib.decompressobj()
    try:
        first = reader.decompress(row.values)
        if first.startswith(b"{"):  # packed values begin with the size of a number
            return b"", first
        behind = reader.unused_data
        return row.values[: len(row.values) - len(behind)], zlib.decompress(behind) if behind else b""
    except zlib.error:
        raise ValueError(f"row {row.seq}: its values in the witness are damaged") from None
