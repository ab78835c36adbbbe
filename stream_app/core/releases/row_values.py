"""What the witness keeps beside a chain row for a lost store: values that the bin released, and settings.

The rows of some kinds hold all values (``Kind.rows_hold_values``). Rows over keys and values, of windows and
of levels over epochs hold totals and hashes only; their values are in tables, and here, packed.

The first row of each epoch of a segment tells its settings. Every row has their hash in ``strategy``. Readers
see rows, so a row tells neither the source, whose name a stream's title may hide, nor another stream, nor a
list of keys that is too long. The whole text is packed behind the row's values.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.kinds import Kind
from stream_app.core.kinds.tables import PUBLISHED, WINDOWS, Block, Closed
from stream_app.core.records import EpochRecord, WitnessRow
from stream_app.core.releases.tiles import TileGeometry, TileSlice, join_slices
from stream_app.core.strategy import Strategy

LARGEST_BYTES = 900_000  # of one row's packed values: a record of a topic holds a megabyte
_NARROWEST_FIRST = ("<i1", "<i2", "<i4", "<i8")
MOST_ROWS = 256
_STEP_BYTES = 16_000_000
_EFFORT = 1  # the least effort: noise hardly compresses

LARGEST_IN_ROW_BYTES = 64_000
_NOT_FOR_READERS = {"source", "successor_of"}
_SETTINGS = b'"settings":'  # in a text the quotation marks would be escaped


def rows_at_once(kind: Kind) -> int:
    """Return how many rows with their values to read in one step."""
    if kind.rows_hold_values:
        return MOST_ROWS
    return max(1, min(MOST_ROWS, _STEP_BYTES // (8 * sum(kind.tables.values()))))


class TableRows(NamedTuple):
    """The rows of one table that one bin released."""

    table: str
    first: int
    stop: int
    width: int

    def slices(self, epoch: int) -> list[TileSlice]:
        """Return the parts of tiles in which the store holds these rows."""
        return list(TileGeometry(self.width).slices(epoch, self.table, self.first, self.stop - self.first))


def rows_of_bin(kind: Kind, bin: int) -> Iterator[TableRows]:
    for table, width in kind.tables_at(bin).items():
        first, stop = (kind.rows_after(table, bins) for bins in (bin, bin + 1))
        if stop > first:
            yield TableRows(table, first, stop, width)


def epoch_of(row: bytes) -> int:
    return int(json.loads(row)["epoch"])


def place_of(epochs: Sequence[EpochRecord], row: bytes) -> tuple[EpochRecord, int]:
    """Return the row's epoch, and its bin in the epoch. Raises: LookupError if the epoch is not listed."""
    message = json.loads(row)
    for epoch in epochs:
        if epoch.epoch == message["epoch"]:
            return epoch, message["bin"] - epoch.first_bin
    raise LookupError(f"row {message['seq']}: epoch {message['epoch']} is not known")


def witness_row(
    strategy: Strategy,
    epochs: Sequence[EpochRecord],
    seq: int,
    row: bytes,
    read: Callable[[TileSlice], bytes],
) -> WitnessRow:
    """Return a row with its values. Args: read, returns the bytes of a part of a tile.

    Raises: LookupError, ValueError if the store no longer holds the released values.
    """
    epoch, bin = place_of(epochs, row)
    tables = []
    for rows in rows_of_bin(strategy.with_found(epoch).kind, bin):
        pieces = ((piece, read(piece)) for piece in rows.slices(epoch.epoch))
        tables.append(join_slices(rows.stop - rows.first, rows.width, pieces))
    settings = settings_beside(strategy, row)
    return WitnessRow(seq, row, packed(tables, LARGEST_BYTES - len(settings)) + settings)


def packed(tables: Sequence[Int64Array], most_bytes: int = LARGEST_BYTES) -> bytes:
    """Return table rows as bytes, in the order of ``rows_of_bin``; empty bytes if they are too large.

    >>> packed([np.array([[1, -2]]), np.array([[70_000]])]) != b""
    True
    """
    parts = []
    for values in tables:
        least, most = values.min(initial=0), values.max(initial=0)
        size = next(s for s in _NARROWEST_FIRST if np.iinfo(s).min <= least and most <= np.iinfo(s).max)
        parts.append(bytes([int(size[-1])]) + values.astype(size).tobytes())
    data = zlib.compress(b"".join(parts), _EFFORT)
    return data if len(data) <= most_bytes else b""


def may_be_too_large(kind: Kind) -> bool:
    """Return whether the values of a bin may be larger, when packed, than the witness keeps beside a row.

    Estimated: a published value takes up to 4 bytes, because noise hardly compresses, and a node's count 2.
    """
    if kind.rows_hold_values:
        return False
    sizes = {table: 4 if table in (PUBLISHED, WINDOWS) else 2 for table in kind.tables}
    return sum(sizes[table] * width for table, width in kind.tables.items()) > LARGEST_BYTES


def unpacked(strategy: Strategy, epoch: EpochRecord, row: bytes, data: bytes) -> list[Block]:
    """Return the table rows from bytes that ``packed`` returned.

    Raises: ValueError for bytes whose hashes differ from the row's.
    """
    kind, message = strategy.with_found(epoch).kind, json.loads(row)
    _, bin = place_of([epoch], row)
    where = f"row {message['seq']}"
    try:
        blocks = list(_blocks(kind, bin, zlib.decompress(data)))
    except (zlib.error, IndexError, ValueError):
        raise ValueError(f"{where}: its values in the witness are damaged") from None
    if not _vouched(kind, bin, blocks, message):
        raise ValueError(f"{where}: its values in the witness are not those that the row has hashes of")
    return blocks


def _blocks(kind: Kind, bin: int, data: bytes) -> Iterator[Block]:
    place = 0
    for table, first, stop, width in rows_of_bin(kind, bin):
        size, start = data[place], place + 1
        place = start + size * (stop - first) * width
        values = np.frombuffer(data[start:place], f"<i{size}").astype(np.int64)
        yield Block(table, first, values.reshape(stop - first, width))
    if place != len(data):
        raise ValueError("more bytes than values")


def _vouched(kind: Kind, bin: int, blocks: Sequence[Block], message: Mapping[str, object]) -> bool:
    """Return whether the row's hashes and totals match these values."""
    running = np.array([message["published"]], np.int64)
    published = next(block.values for block in blocks if block.table == PUBLISHED)
    part = json.loads(json.dumps(kind.row_part(Closed(bin, running, tuple(blocks), b""), 0)))
    same_total = published.shape != running.shape or np.array_equal(published, running)
    return same_total and all(message.get(name) == value for name, value in part.items())


def settings_in_row(text: bytes) -> dict[str, object]:
    """Return the field ``settings`` of an epoch's first row, without names hidden from readers.

    They are None if ``text``, of the strategy, is too long.
    """
    fields = json.loads(text)
    for settings in (fields, fields["declared"]):
        for name in _NOT_FOR_READERS & settings.keys():
            del settings[name]
    return {"settings": fields if len(text) <= LARGEST_IN_ROW_BYTES else None}


def settings_beside(strategy: Strategy, row: bytes) -> bytes:
    """Return the settings that the witness keeps behind a row's values; empty if the row holds none."""
    if _SETTINGS not in row or json.loads(row)["strategy"] != strategy.hash:
        return b""
    return zlib.compress(strategy.to_json())


def strategies_in(rows: Iterable[WitnessRow], known: Collection[str] = ()) -> Iterator[Strategy]:
    """Yield the settings that rows of a witness hold. Older builds wrote rows without settings.

    Args: known, hashes of settings that are not read again: so a damaged row that nobody needs does no harm.
    Raises: ValueError for settings that do not match the row's hash, or that this build cannot read.
    """
    for row in rows:
        if _SETTINGS not in row.row or (named := json.loads(row.row)["strategy"]) in known:
            continue
        if text := parted(row)[1]:
            if hashlib.sha256(text).hexdigest() != named:
                raise ValueError(f"row {row.seq}: its settings are not those that it has the hash of")
            yield Strategy.from_json(text)


def parted(row: WitnessRow) -> tuple[bytes, bytes]:
    """Return the packed values that a witness keeps beside a row, and the text of the settings behind them.

    Raises: ValueError for damaged bytes.
    """
    if _SETTINGS not in row.row:
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
