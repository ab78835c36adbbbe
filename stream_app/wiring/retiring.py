"""Retires streams: they are history then, which readers see and no worker runs."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from stream_app.config import Settings
from stream_app.config.source import all_ledgers_of
from stream_app.core.records import History, LedgerEntry, Reply
from stream_app.core.segments.names import base_of
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from stream_app.sinks.witness_file import witnessed_rows
from stream_app.state.history import Histories
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from stream_app.wiring.exporting import measurements, named_segments, reader_of
from stream_app.wiring.known_logs import with_known_logs
from stream_app.wiring.storage import no_worker, noise_keys, outside_ledger, time_to_store, writing

_LEASE_MS = 60_000


async def retire(settings: Settings, name: str) -> str:
    """End a stream for good, keep its releases and its ledger, and delete everything else; return the lines.

    Args: name, as for ``export``.
    Raises: OperatorError if there is no such stream, or a worker runs it.
    """
    with _alone(settings, name):
        async with writing(settings) as store, reader_of(store.url) as reader:
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
        measured = await measurements(reader, [Strategy.from_json(state.strategy).source])
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


def _alone(settings: Settings, name: str) -> AbstractContextManager[None]:
    """Keep workers from starting during the block if the configuration still names the stream."""
    named = base_of(name) in {stream.name for stream in settings.streams}
    return no_worker(settings.state_dir) if named else nullcontext()
