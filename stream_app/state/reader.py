"""Reads the public keys of Redis, as a user that can read ``dp:*:pub:*`` only."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

from dphist.arrays import Int64Array
from stream_app.core.answers.answered import Missing
from stream_app.core.answers.visible import check_kept, epoch_of, public_state, visible_rows, width_of
from stream_app.core.records import LedgerEntry, PublicState
from stream_app.core.releases.tiles import TileGeometry, join_slices
from stream_app.core.segments.history import read_strategy
from stream_app.core.segments.strategies import strategy_of
from stream_app.ports.reader import News, PublicReader
from stream_app.state.codec import decode_rows
from stream_app.state.connection import batch, connect
from stream_app.state.greeting import Expected
from stream_app.state.keys import ALERT_REFUSED, ALERT_STATES, STREAM_NAMES, StreamKeys, transitions_key
from stream_app.state.last_read import Epochs, SeenEpochs, SeenLedgers
from stream_app.state.round_trips import Command


class RedisReader(PublicReader):
    """``PublicReader`` over Redis: visible releases only; the protocol describes each method.

    Args: url, of a user that may read the public keys.
    Raises (every method): OSError if Redis does not answer or refuses.
    """

    def __init__(self, url: str) -> None:
        self._redis = connect(url, expected=Expected())
        self._epochs = SeenEpochs(self._redis)
        self._ledgers = SeenLedgers(self._redis)

    async def close(self) -> None:
        await self._redis.aclose()

    async def streams(self) -> tuple[str, ...]:
        [members] = await batch(self._redis, [("SMEMBERS", STREAM_NAMES)])
        names = sorted(member.decode() for member in members)
        if not names:
            return ()
        opened = await batch(self._redis, [("EXISTS", StreamKeys(name).strategy) for name in names])
        return tuple(name for name, exists in zip(names, opened, strict=True) if exists)

    async def public_state(self, stream: str) -> PublicState | None:
        epochs, (strategy, visible) = await self._epochs.read(stream, _state_of(StreamKeys(stream)))
        return None if strategy is None else _decoded(strategy, epochs, visible)

    async def visible_seqs(self, streams: Sequence[str]) -> list[int]:
        if not streams:
            return []
        seqs = await batch(self._redis, [("GET", StreamKeys(stream).visible) for stream in streams])
        return [int(seq or 0) for seq in seqs]

    async def rows(self, stream: str, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        keys = StreamKeys(stream)
        [visible] = await batch(self._redis, [("GET", keys.visible)])
        visible_seq = int(visible or 0)
        if after_seq >= visible_seq:
            return []
        bounds = (f"{after_seq + 1}-0", f"{visible_seq}-0", "COUNT", limit)
        [entries] = await batch(self._redis, [("XRANGE", keys.chain, *bounds)])
        return decode_rows(entries)

    async def tile_rows(
        self, stream: str, epoch: int, table: str, first: int, count: int, width: int
    ) -> Int64Array:
        keys, pieces = StreamKeys(stream), list(TileGeometry(width).slices(epoch, table, first, count))
        # In one step, because retention may remove the epoch between two.
        epochs, (strategy, visible, *held) = await self._epochs.read(
            stream, [*_state_of(keys), *map(keys.reading, pieces)]
        )
        if strategy is None:
            raise LookupError(f"stream {stream!r} was never opened")
        _check_visible(_decoded(strategy, epochs, visible), Missing(epoch, table, first, count))
        return join_slices(count, width, zip(pieces, held, strict=True))

    async def news(
        self, stream: str, state: PublicState, after_seq: int, wanted: Sequence[Missing]
    ) -> News | None:
        keys = StreamKeys(stream)
        for want in wanted:
            _check_visible(state, want)
        widths = [width_of(state, one) for one in wanted]
        pieces = [list(TileGeometry(width).slices(*one)) for width, one in zip(widths, wanted, strict=True)]
        epochs, (strategy, visible, entries, *held) = await self._epochs.read(
            stream,
            [
                *_state_of(keys),
                ("XRANGE", keys.chain, f"{after_seq + 1}-0", f"{state.visible_seq}-0"),
                *map(keys.reading, chain.from_iterable(pieces)),
            ],
        )
        # The text of a stream that has become history differs, too.
        if strategy is None or (text := read_strategy(strategy))[1] != state.history:
            return None
        shown = public_state(text[0], epochs.all, state.visible_seq, state.history, epochs.trimmed)
        if shown != state or int(visible or 0) < state.visible_seq:
            return None
        data = iter(held)
        tables = [
            join_slices(one.rows, width, ((piece, next(data)) for piece in of_table))
            for one, width, of_table in zip(wanted, widths, pieces, strict=True)
        ]
        return News(decode_rows(entries), tables)

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        return await self._ledgers.read(source)

    async def alerts(self) -> tuple[dict[str, bytes], dict[str, list[str]]]:
        [states, refusals] = await batch(self._redis, [("HGETALL", ALERT_STATES), ("HGETALL", ALERT_REFUSED)])
        refused = defaultdict[str, list[str]](list)
        for field, refusal in sorted(refusals.items(), key=lambda item: item[1]):
            if refusal:  # otherwise the target has accepted a notification since
                refused[json.loads(field)[1]].append(refusal.decode())
        return {name.decode(): text for name, text in states.items()}, dict(refused)

    async def transitions(self, stream: str) -> list[bytes]:
        [entries] = await batch(self._redis, [("XRANGE", transitions_key(stream), "-", "+")])
        return [fields[b"transition"] for _, fields in entries]

    async def ping(self) -> None:
        await batch(self._redis, [("PING",)])


def _decoded(strategy: bytes, epochs: Epochs, visible: bytes | None) -> PublicState:
    text, history = read_strategy(strategy)
    seen = int(visible or 0)
    return public_state(text, epochs.all, seen, history, epochs.trimmed, epochs.halted)


def _check_visible(state: PublicState, want: Missing) -> None:
    check_kept(state, want)
    record = epoch_of(state, want.epoch)
    strategy = strategy_of(state.texts, record) if record else None
    visible = visible_rows(strategy, record, state.visible_seq, want.table) if strategy and record else 0
    end = want.first + want.rows
    if end > visible:
        raise ValueError(f"rows {want.first} to {end} of table {want.table}: {visible} are visible")


def _state_of(keys: StreamKeys) -> list[Command]:
    return [("GET", keys.strategy), ("GET", keys.visible)]
