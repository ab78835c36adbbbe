"""Streams as history: exported from a store, imported into another one, and retired. No worker runs them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace

from dphist.arrays import Int64Array
from stream_app.config import Settings
from stream_app.config.source import all_ledgers_of
from stream_app.core.answers.visible import visible_rows
from stream_app.core.exports import Export, ExportedStream, read_export
from stream_app.core.ledger import entry_to_json
from stream_app.core.records import EpochRecord, History, LedgerEntry, PublicState, Reply, WitnessRow
from stream_app.core.releases.release import RowLink
from stream_app.core.releases.restored import Restored, WitnessedStream
from stream_app.core.releases.row_values import packed, place_of, rows_of_bin
from stream_app.core.segments.history import read_strategy
from stream_app.core.segments.names import address_of, base_of, number_of
from stream_app.core.segments.strategies import with_strategy
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError, OutsideLedger
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


async def import_history(settings: Settings, lines: Iterable[bytes]) -> list[str]:
    """Store the streams of an export as history; return a line about each.

    Guarantee: no worker ever counts an imported stream. The ledger gets every entry before readers see a row,
        marked as lost, so no worker opens one of these epochs here. The call may be repeated.
    Raises: OperatorError, before anything is written, for a file that cannot be read, a stream that the store
        has or the configuration names, a ledger that holds another measurement in the place of an entry, or
        clocks that disagree.
    """
    try:
        export = read_export(lines)
        steps = {one.strategy.stream: list(_steps(one)) for one in export.streams}
    except (KeyError, TypeError, StopIteration):
        raise OperatorError(
            "the file is no export of this service; write one with stream-app export"
        ) from None
    except ValueError as refusal:
        raise OperatorError(f"the file cannot be imported: {refusal}") from None
    configured = {stream.name for stream in settings.streams}
    for one in export.streams:
        if (name := base_of(one.strategy.stream)) in configured:
            raise OperatorError(f"streams.{name}: the export has a stream of this name; rename the new one")
    outside = outside_ledger(settings)
    async with writing(settings) as store:
        now_us = await time_to_store(settings, store)
        await _check_free(store, export)
        known = await with_known_logs(settings, store, outside, [one.source for one in export.ledger])
        _check_totals(known, export.ledger)
        await _enter(store, outside, export.ledger)
        for one in export.streams:
            name, before = one.strategy.stream, one.history
            history = History(None if before is None else before.retired_us, now_us)
            if not await stored(store, _texts(one), one.epochs, one.last, history, steps[name]):
                raise OperatorError(f"stream {name}: somebody else writes it at this moment; import again")
    return [f"{one.strategy.stream}: {len(one.rows)} bins are history here" for one in export.streams]


def _texts(stream: ExportedStream) -> tuple[bytes, ...]:
    """Return the texts of a stream's strategies; rows after a change of settings tell the old ones."""
    found = WitnessedStream.of(stream.rows, [stream.strategy]).strategies.values()
    return with_strategy([strategy.to_json() for strategy in found], stream.strategy.to_json())


def _steps(stream: ExportedStream) -> list[Restored]:
    """Return the stored data of a stream, step by step.

    Raises: ValueError if values differ from those that their rows have hashes of.
    """
    if not stream.rows:
        raise ValueError(f"stream {stream.strategy.stream}: it has no rows; export it again")
    told = {epoch.epoch: epoch for epoch in stream.epochs}
    witnessed = WitnessedStream.of(stream.rows, [stream.strategy])
    for epoch in witnessed.epochs:
        if epoch.first_bin != told[epoch.epoch].first_bin:
            raise ValueError(f"stream {stream.strategy.stream}: epoch {epoch.epoch} begins at another bin")
    steps = witnessed.restored(0, stream.strategy.hash)
    return [_as_told(step, told[step.epoch.epoch]) for step in steps]


def _as_told(step: Restored, epoch: EpochRecord) -> Restored:
    """Return a step whose epoch has the facts of the export, and ends with the step's last row."""
    reason = epoch.end_reason or "it went on in the store that it was exported from"
    own = replace(epoch, last_bin=step.epoch.last_bin, end_reason=reason, found=step.epoch.found)
    return replace(step, epoch=own)


async def _check_free(store: RedisStore, export: Export) -> None:
    for one in export.streams:
        state = await store.load(one.strategy.stream)
        if state is None:
            continue
        history = read_strategy(state.strategy)[1]
        if history is None or history.imported_us is None or state.head != one.last.hash:
            raise OperatorError(
                f"stream {one.strategy.stream}: the store has another stream of this name; import into "
                "another store"
            )
    for source in dict.fromkeys(entry.source for entry in export.ledger):
        known = {(entry.stream, entry.epoch): entry for entry in await store.ledger(source)}
        for entry in export.ledger:
            other = known.get((entry.stream, entry.epoch)) if entry.source == source else None
            if other is not None and replace(other, lost=False) != replace(entry, lost=False):
                raise OperatorError(
                    f"the ledger of {source} holds another measurement as epoch {entry.epoch} of stream "
                    f"{entry.stream}; import into another store"
                )


def _check_totals(settings: Settings, entries: Iterable[LedgerEntry]) -> None:
    """Refuse history under a total, if a loss of the store would then hide a part of the spent epsilon.

    Otherwise the total's streams would be refused at their next start, or end when their next epoch is due.
    Args: entries, of the history, or of its whole sources.
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


async def _enter(store: RedisStore, outside: OutsideLedger | None, ledger: Sequence[LedgerEntry]) -> None:
    for entry in ledger:
        known = {(one.stream, one.epoch) for one in await store.ledger(entry.source)}
        if (entry.stream, entry.epoch) in known:
            continue
        # Marked as lost: a worker here must not take it for an epoch that it reserved and may open.
        if await store.reserve(replace(entry, lost=True)) is Reply.CONFLICT:
            raise OperatorError(f"the ledger of {entry.source} changes at this moment; import again")
    if outside is not None:
        await outside.append([replace(entry, lost=False) for entry in ledger])


async def stored(
    store: RedisStore,
    texts: Sequence[bytes],
    epochs: Sequence[EpochRecord],
    last: RowLink,
    history: History,
    steps: Iterable[Restored],
    rebuilt: Sequence[bytes] = (),
) -> bool:
    """Store a stream as history and show it; return False if the store has, or gets, other rows of its name.

    Args: as ``Histories.begin_import`` and ``end_import``. Until the last row is there, no worker counts it.
    """
    histories, name = Histories(store), Strategy.from_json(texts[-1]).stream
    reply = await histories.begin_import(texts, epochs, last, history)
    for step in steps:
        if reply is Reply.CONFLICT:
            return False
        reply = await histories.put(name, step)
    return reply is not Reply.CONFLICT and await histories.end_import(name, last, rebuilt) is Reply.DONE


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
    if not all(await store.hold([name], secrets.token_hex(8), _LEASE_MS)):
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
