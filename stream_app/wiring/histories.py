"""Exports what a store has released, and retires streams: they are history then, and no worker runs them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace

from dphist.arrays import Int64Array
from stream_app.config import Settings
from stream_app.config.source import all_ledgers_of
from stream_app.core.answers.visible import visible_rows
from stream_app.core.exports import Export, ExportedStream
from stream_app.core.ledger import entry_to_json
from stream_app.core.records import EpochRecord, History, LedgerEntry, PublicState, Reply, WitnessRow
from stream_app.core.releases.row_values import packed, place_of, rows_of_bin
from stream_app.core.segments.names import address_of, base_of, number_of
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader
from stream_app.sinks.witness_file import witnessed_rows
from stream_app.source_ledger import ledgers_of_all_names
from stream_app.state.embedded import running_url
from stream_app.state.history import Histories
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.state.safety import check_reading
from stream_app.wiring.known_logs import with_known_logs
from stream_app.wiring.redis_server import looked_at, redis_server
from stream_app.wiring.storage import no_worker, noise_keys, outside_ledger, store_of, time_to_store

_ROWS_AT_ONCE = 10_000
_LARGEST_VALUES = 1 << 30  # of a row's packed values: no record of a topic holds them here
_LEASE_MS = 60_000


async def export(settings: Settings, names: Sequence[str]) -> Export:
    """Return the released data of streams, and every measurement of their sources.

    It reads only data that readers may see.
    Args: names, of the streams, each with all its segments, or of one segment; empty: all of the store.
    Raises: OperatorError for a stream that the store does not have, or that has released nothing.
    """
    async with reading(settings, names) as (reader, wanted):
        found = [await _exported(reader, name) for name in wanted]
        streams = tuple(one for one in found if one is not None)
        return Export(streams, await _ledger(reader, [one.strategy.source for one in streams]))


def named_segments(name: str, known: Sequence[str]) -> list[str]:
    """Return the segments that a name means, as the store names them. Raises: OperatorError."""
    own = sorted((one for one in known if base_of(one) == base_of(name)), key=number_of)
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


async def _ledger(reader: PublicReader, sources: Sequence[str]) -> tuple[LedgerEntry, ...]:
    """Return every measurement of these sources, under all their names."""
    entries: dict[bytes, LedgerEntry] = {}
    for source in dict.fromkeys(sources):
        for ledger in await ledgers_of_all_names(reader, source):
            entries |= {entry_to_json(entry): entry for entry in ledger}
    return tuple(entries.values())


def _check_totals(settings: Settings, entries: Iterable[LedgerEntry]) -> None:
    """Refuse history under a total, if a loss of the store would then hide a part of the spent epsilon.

    Otherwise the total's streams would be refused at their next start, or end when their next epoch is due.
    Args: entries, of the history.
    Raises: OperatorError, with the remedy.
    """
    limited = [one for one in settings.streams if one.total is not None and one.total.per == "source"]
    if settings.ledger is not None or not limited:
        return
    configured = {stream.name for stream in settings.streams}
    names = {one.name: all_ledgers_of(one, settings) for one in limited}
    for entry in entries:
        for stream, ledgers in names.items():
            if entry.source in ledgers and entry.stream not in configured:
                raise OperatorError(
                    f"{entry.stream}: streams.{stream}.privacy.total counts what it measured, and as history "
                    "it has no witness here, so a loss of Redis would make the total forget it; first write "
                    "ledger: {file: ...} or {topic: ...}, or per: stream in the total"
                )


async def retire(settings: Settings, name: str) -> str:
    """End a stream for good, keep its releases and its ledger, and delete everything else; return the lines.

    Args: name, as for ``export``.
    Raises: OperatorError if there is no such stream, or a worker runs it.
    """
    with _alone(settings, name):
        async with writing(settings) as store, _reader(store.url) as reader:
            # The newest first: until it is retired, a worker's start would go on with it.
            names = reversed(named_segments(name, await reader.streams()))
            return "\n".join([await _retire(settings, one, store, reader) for one in names])


async def _retire(settings: Settings, name: str, store: RedisStore, reader: RedisReader) -> str:
    state = await reader.public_state(name)
    if state is None:
        raise OperatorError(f"{name}: the store has no such stream")
    if state.history is not None and state.history.imported_us is not None:
        raise OperatorError(f"{name}: it is history that was imported; it has no secrets here")
    if state.history is None:
        others = replace(
            settings, streams=tuple(one for one in settings.streams if one.name != base_of(name))
        )
        measured = await _ledger(reader, [Strategy.from_json(state.strategy).source])
        others = await with_known_logs(others, store, outside_ledger(settings))
        _check_totals(others, [entry for entry in measured if entry.stream == name])
    now_us = await time_to_store(settings, store)
    if await store.hold([name], secrets.token_hex(8), _LEASE_MS) != [Reply.DONE]:
        raise OperatorError(f"{name}: a worker closes it now; stop it, or take the stream out of its file")
    histories = Histories(store)
    if state.history is None:
        seq = await _visible(settings, name, store, reader)
        loaded = await store.load(name)
        assert loaded is not None
        history = History(retired_us=now_us)
        reply = await histories.retire(loaded.texts, (loaded.epoch,), loaded.epoch.epoch, seq, history)
        if reply not in (Reply.DONE, Reply.ALREADY):
            raise OperatorError(f"{name}: a worker writes it at this moment; stop it, and retire it again")
    keys = noise_keys(settings)
    await keys.forget(name)
    deleted = await histories.delete_secrets(name)
    return f"{name}: retired; {deleted} keys with secrets were deleted, releases and ledger stay"


async def _visible(settings: Settings, name: str, store: RedisStore, reader: RedisReader) -> int:
    """Show the last rows that the witness on this machine has; return the last visible seq."""
    rows = witnessed_rows(settings.state_dir / "witness", name)
    if rows:
        await store.publish(name, rows[-1].seq)
    [seq] = await reader.visible_seqs([name])
    return seq


@asynccontextmanager
async def writing(settings: Settings) -> AsyncIterator[RedisStore]:
    """Yield the store, as a worker opens it; an embedded one may be running, or is started for the block.

    Raises: OperatorError if it cannot be used, or has a newer format.
    """
    embedded = settings.redis.embedded
    async with AsyncExitStack() as resources:
        url = None if embedded is None else running_url(embedded)
        if url is None:
            url = (await resources.enter_async_context(redis_server(settings))).redis.url
        if url is None:
            raise OperatorError("redis.url: it is missing; name the store")
        store = store_of(settings, url)
        resources.push_async_callback(store.close)
        await store.check_format()
        yield store


@asynccontextmanager
async def reading(
    settings: Settings, names: Sequence[str]
) -> AsyncIterator[tuple[PublicReader, Sequence[str]]]:
    """Yield a reader of the store's public keys, and the streams that are named.

    Args, raises: as ``export``.
    """
    async with _reading(settings) as url, _reader(url) as reader:
        known = await reader.streams()
        wanted = [one for name in names for one in named_segments(name, known)] if names else known
        yield reader, list(dict.fromkeys(wanted))


@asynccontextmanager
async def _reader(url: str) -> AsyncIterator[RedisReader]:
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


def _alone(settings: Settings, name: str) -> AbstractContextManager[None]:
    """Keep workers from starting during the block if the configuration still names the stream."""
    named = base_of(name) in {stream.name for stream in settings.streams}
    return no_worker(settings.state_dir) if named else nullcontext()
