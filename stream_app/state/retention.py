"""Removes the oldest epochs of a stream from Redis: rows, tiles and records, an epoch in each step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from stream_app.core.records import EpochRecord, Reply
from stream_app.core.segments.history import read_strategy
from stream_app.core.segments.retention import anchor, last_seq_of, removable, tiles_of
from stream_app.core.segments.strategies import read_strategies
from stream_app.state import codec
from stream_app.state.connection import batch, script, transaction
from stream_app.state.keys import StreamKeys
from stream_app.state.round_trips import RoundTrips
from stream_app.stored_format import TRIMMED


async def oldest_epoch(redis: RoundTrips, stream: str) -> EpochRecord | None:
    """Return the oldest epoch that Redis keeps, as ``Store.oldest_epoch`` says."""
    keys = StreamKeys(stream)
    [fields] = await batch(redis, [("HKEYS", keys.epochs)])
    if not (numbers := [int(name) for name in fields if name.isdigit()]):
        return None
    names = codec.fields_of_epochs([min(numbers)])
    [texts] = await batch(redis, [("HMGET", keys.epochs, *names)])
    found = codec.present(names, texts)
    return codec.decode_epoch(found, min(numbers)) if b"%d" % min(numbers) in found else None


async def trim(
    redis: RoundTrips, stream: str, before_us: int, need_format: Callable[[int], Awaitable[None]]
) -> int:
    """Remove the epochs that ended before an instant, as ``Store.trim`` says; return how many.

    Args: need_format, raises the store's format before the first epoch leaves.
    """
    keys = StreamKeys(stream)
    strategy, fields, visible = await transaction(
        redis, [("GET", keys.strategy), ("HGETALL", keys.epochs), ("GET", keys.visible)]
    )
    text, history = (b"", None) if strategy is None else read_strategy(strategy)
    if not text or history is not None:
        return 0
    texts, removed = read_strategies(text), 0
    for epoch in removable(texts, codec.decode_epochs(fields), int(visible or 0), before_us):
        if not removed:
            await need_format(TRIMMED)
        last_seq = last_seq_of(epoch)
        # The epoch's last row, or an earlier one if the store had lost this one.
        [newest] = await batch(redis, [("XREVRANGE", keys.chain, f"{last_seq}-0", "-", "COUNT", 1)])
        left = [codec.encode_trimmed(anchor(epoch, *row)) for row in codec.decode_rows(newest)]
        reply = await script("trim")(
            redis,
            [keys.epochs, keys.visible, keys.chain, *map(keys.tile, tiles_of(texts, epoch))],
            [epoch.epoch, last_seq, left[0] if left else b"", TRIMMED],
        )
        if codec.decode_reply(reply) is not Reply.DONE:
            break
        removed += 1
    return removed
