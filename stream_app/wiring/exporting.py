"""Exports what a store has released: what readers may see, and the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from dphist.arrays import Int64Array
from stream_app.config import Settings
from stream_app.core.answers.visible import visible_rows
from stream_app.core.exports import Export, ExportedStream
from stream_app.core.ledger import entry_to_json
from stream_app.core.records import EpochRecord, LedgerEntry, PublicState, WitnessRow
from stream_app.core.releases.row_values import packed, place_of, rows_of_bin
from stream_app.core.segments.names import address_of, base_of, by_stream
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader
from stream_app.source_ledger import ledgers_of_all_names
from stream_app.state.reader import RedisReader
from stream_app.state.safety import check_reading
from stream_app.wiring.redis_server import looked_at

_ROWS_AT_ONCE = 10_000
_LARGEST_VALUES = 1 << 30  # of a row's packed values: no record of a topic holds them here


async def export(settings: Settings, names: Sequence[str]) -> Export:
    """Return the released data of streams, and every measurement of their sources.

    It reads only data that readers may see.
    Args: names, of the streams, each with all its segments, or of one segment; empty: all of the store.
    Raises: OperatorError for a stream that the store does not have, or that has released nothing.
    """
    async with reading(settings, names) as (reader, wanted):
        found = [await _exported(reader, name) for name in wanted]
        streams = tuple(one for one in found if one is not None)
        return Export(streams, await measurements(reader, [one.strategy.source for one in streams]))


def named_segments(name: str, known: Sequence[str]) -> Sequence[str]:
    """Return the segments that a name means, as the store names them. Raises: OperatorError."""
    own = by_stream(known).get(base_of(name), ())
    found = own if name == base_of(name) else [one for one in own if address_of(one) == name]
    if not found:
        raise OperatorError(f"{name}: the store has no such stream; it has {', '.join(known)}")
    return found


async def _exported(reader: PublicReader, name: str) -> ExportedStream | None:
    state = await reader.public_state(name)
    if state is None or state.visible_seq == 0:
        return None
    strategy = Strategy.from_json(state.strategy)  # if it has changed, all its kinds of rows hold values
    rows: list[tuple[int, bytes]] = []
    while found := await reader.rows(name, rows[-1][0] if rows else 0, _ROWS_AT_ONCE):
        rows += [row for row in found if row[0] <= state.visible_seq]
        if found[-1][0] >= state.visible_seq:
            break
    if strategy.kind.rows_hold_values:
        witnessed = [WitnessRow(seq, row) for seq, row in rows]
    else:
        tables = await _tables(reader, strategy, state)
        witnessed = [WitnessRow(seq, row, _values(strategy, state.epochs, row, tables)) for seq, row in rows]
    return ExportedStream(strategy, state.epochs, tuple(witnessed), state.history)


async def _tables(
    reader: PublicReader, strategy: Strategy, state: PublicState
) -> dict[tuple[int, str], Int64Array]:
    return {
        (record.epoch, table): await reader.tile_rows(
            strategy.stream,
            record.epoch,
            table,
            0,
            visible_rows(strategy.with_found(record), record, state.visible_seq, table),
            width,
        )
        for record in state.epochs
        for table, width in strategy.with_found(record).kind.tables.items()
    }


def _values(
    strategy: Strategy,
    epochs: Sequence[EpochRecord],
    row: bytes,
    tables: dict[tuple[int, str], Int64Array],
) -> bytes:
    epoch, bin = place_of(epochs, row)
    released = rows_of_bin(strategy.with_found(epoch).kind, bin)
    return packed([tables[epoch.epoch, one.table][one.first : one.stop] for one in released], _LARGEST_VALUES)


async def measurements(reader: PublicReader, sources: Sequence[str]) -> tuple[LedgerEntry, ...]:
    """Return every measurement of these sources, under all their names."""
    entries: dict[bytes, LedgerEntry] = {}
    for source in dict.fromkeys(sources):
        for ledger in await ledgers_of_all_names(reader, source):
            entries |= {entry_to_json(entry): entry for entry in ledger}
    return tuple(entries.values())


@asynccontextmanager
async def reading(
    settings: Settings, names: Sequence[str]
) -> AsyncIterator[tuple[PublicReader, Sequence[str]]]:
    """Yield a reader of the store's public keys, and the streams that are named.

    Args, raises: as ``export``.
    """
    async with _reading(settings) as url, reader_of(url) as reader:
        known = await reader.streams()
        wanted = [one for name in names for one in named_segments(name, known)] if names else known
        yield reader, list(dict.fromkeys(wanted))


@asynccontextmanager
async def reader_of(url: str) -> AsyncIterator[RedisReader]:
    """Yield a reader of the public keys of the store at a URL."""
    reader = RedisReader(url)
    try:
        yield reader
    finally:
        await reader.close()


@asynccontextmanager
async def _reading(settings: Settings) -> AsyncIterator[str]:
    """Yield a URL at which the store's public keys can be read, best as a user who may read nothing else."""
    if settings.redis.embedded is not None or settings.redis.api_url is None:
        async with looked_at(settings) as url:
            yield url
        return
    await check_reading("redis.api_url", settings.redis.api_url)
    yield settings.redis.api_url
