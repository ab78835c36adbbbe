"""Makes streams history in Redis: for good when they are retired, for a while when they are rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stream_app.core.answers.visible import visible_bins
from stream_app.core.records import EpochRecord, History, Reply
from stream_app.core.releases.release import RowLink
from stream_app.core.releases.restored import Restored
from stream_app.core.segments.history import HISTORY_HASH, REBUILDING, history_text
from stream_app.core.segments.strategies import strategies_text
from stream_app.core.strategy import Strategy
from stream_app.state import codec
from stream_app.state.connection import batch, script, transaction
from stream_app.state.keys import STREAM_NAMES, StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import FIRST, HISTORY, format_of


class Histories:
    """The streams of a store that are, or become, history. Args: store, of a user with the worker's rights.

    Raises (every method): OSError if Redis does not answer or refuses; a call may be repeated.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._redis = store.connection

    async def retire(
        self, texts: Sequence[bytes], epochs: Sequence[EpochRecord], epoch: int, seq: int, history: History
    ) -> Reply:
        """End a stream for good with its last visible bin.

        Guarantee: afterwards the store refuses everything that a worker sends for it.
        Args: texts, of the stream's strategies, the running one last; epochs, all of them; epoch, the last
            one's number; seq, the last visible one.
        """
        strategy, needed = Strategy.from_json(texts[-1]), format_of(texts, HISTORY)
        await self._store.need_format(needed)
        keys, last = StreamKeys(strategy.stream), next(one for one in epochs if one.epoch == epoch)
        last_bin = last.first_bin + visible_bins(last, seq) - 1
        reply = await script("retire")(
            self._redis,
            [keys.state, keys.strategy, keys.epochs, keys.visible],
            [
                *(strategy.hash, epoch, seq, last_bin),
                *(HISTORY_HASH, history_text(strategies_text(texts), history), needed),
            ],
        )
        return codec.decode_reply(reply)

    async def delete_secrets(self, stream: str) -> int:
        """Delete all secret keys of a retired stream, except its state, which holds no secret any more.

        Returns: the number of deleted keys.
        """
        keys, everything = StreamKeys(stream), (0, -1)
        deleted: int = 0
        while True:
            bins, windows, shards, *partitions = await transaction(
                self._redis,
                [
                    *(("ZRANGE", one, *everything) for one in (keys.open_bins, keys.open_windows)),
                    ("ZRANGE", keys.untallied, *everything),
                    ("HKEYS", keys.positions),
                    ("HKEYS", keys.starts),
                ],
            )
            names = {name.decode() for found in partitions for name in found}
            secret = [
                *(keys.cells(int(bin)) for bin in bins),
                *(keys.users(int(window)) for window in windows),
                *(keys.untallied_shard(shard.decode()) for shard in shards),
                *(key for name in names for key in (keys.cuts(name), *keys.ahead(name))),
                *(keys.open_bins, keys.open_windows, keys.untallied, keys.noise, keys.lease),
                *(keys.base_bins, keys.cut_calls, keys.operator_counts),
            ]
            # The lists of partitions go last, so that a repetition after a crash finds what is left.
            [gone] = await batch(self._redis, [("UNLINK", *secret)])
            [lists] = await batch(self._redis, [("UNLINK", keys.positions, keys.starts)])
            deleted += int(gone) + int(lists)
            if not (gone or lists):
                await self._store.forget()
                return deleted

    async def begin_rebuild(
        self, texts: Sequence[bytes], epochs: Sequence[EpochRecord], last: RowLink
    ) -> Reply:
        """Begin to put back a stream, unless the store has another one of its name.

        Args: texts, of its strategies, the last row's last; last, its last row.
        """
        strategy, needed = Strategy.from_json(texts[-1]), format_of(texts, HISTORY)
        await self._store.need_format(needed)
        epoch = next(one for one in epochs if one.epoch == last.epoch)
        keys, text = StreamKeys(strategy.stream), history_text(strategies_text(texts), REBUILDING)
        # The name is in another slot than the stream, so it is written first; readers skip it until then.
        await batch(self._redis, [("SADD", STREAM_NAMES, strategy.stream)])
        reply = await script("begin_rebuild")(
            self._redis,
            [keys.state, keys.strategy, keys.epochs, keys.chain],
            [
                *(text, needed, HISTORY_HASH, last.seq, epoch.final_bin, last.hash),
                *(epoch.epoch, codec.encode_epoch(epoch.as_begun())),
            ],
        )
        return codec.decode_reply(reply)

    async def put(self, stream: str, step: Restored) -> Reply:
        """Store some rows of a stream that is put back, with their tiles, unless it has them."""
        seq, row = step.rows[-1]
        if await self._store.rows(stream, seq - 1, 1) == [(seq, row)]:
            return Reply.ALREADY
        return await self._store.put_back(stream, replace(step, strategy_hash=HISTORY_HASH))

    async def end_rebuild(self, stream: str, last: RowLink, texts: Sequence[bytes]) -> Reply:
        """Show a stream to readers, now that all its rows are stored.

        It keeps no state, so that a worker takes it for lost, puts nothing back that is here, and opens its
        next epoch. Args: texts, of its strategies.
        """
        keys = StreamKeys(stream)
        reply = await script("end_rebuild")(
            self._redis,
            [keys.state, keys.chain, keys.visible, keys.strategy, keys.epochs],
            [HISTORY_HASH, last.seq, strategies_text(texts), format_of(texts, FIRST)],
        )
        return codec.decode_reply(reply)
