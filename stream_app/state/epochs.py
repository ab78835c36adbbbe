"""The epochs of streams in Redis: opened, ended, stopped, and removed when they are old."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict

from stream_app.core.answers.visible import invisible_slices
from stream_app.core.kinds.pages import StoredNoise
from stream_app.core.records import EpochRecord, Reply
from stream_app.core.releases.tiles import TileSlice
from stream_app.core.segments.history import read_strategy
from stream_app.core.segments.retention import anchor, removable, tiles_of
from stream_app.core.segments.strategies import read_strategies
from stream_app.core.strategy import canonical_json
from stream_app.state import checks, codec
from stream_app.state.connection import batch, script, transaction
from stream_app.state.keys import STREAM_NAMES, StreamKeys
from stream_app.state.round_trips import RoundTrips
from stream_app.stored_format import CHANGES, TRIMMED


class EpochsInRedis:
    """The part of ``RedisStore`` about epochs; the protocol describes each method."""

    _redis: RoundTrips

    @abstractmethod
    async def need_format(self, needed: int) -> None:
        """Raise the store's format to the needed one. Raises: OperatorError for a newer one."""

    async def open_epoch(
        self,
        stream: str,
        strategy: bytes,
        record: EpochRecord,
        head: str,
        noise: StoredNoise | None = None,
        carried: bytes = b"",
        replaced: bytes = b"",
    ) -> Reply:
        checks.check_epoch(record)
        checks.check_noise(noise)
        is_changed = len(read_strategies(strategy)) > 1
        if is_changed:
            await self.need_format(CHANGES)
        keys = StreamKeys(stream)
        # The name is in another slot than the stream, so it is written first; readers skip it until then.
        await batch(self._redis, [("SADD", STREAM_NAMES, stream)])
        before = ("-inf", f"({record.first_bin}")
        while True:
            bins, windows, shards, (seq, seen_head), visible = await transaction(
                self._redis,
                [
                    ("ZRANGEBYSCORE", keys.open_bins, *before),
                    ("ZRANGEBYSCORE", keys.open_windows, *before),
                    ("ZRANGEBYSCORE", keys.untallied, *before),
                    ("HMGET", keys.state, "seq", "head"),
                    ("GET", keys.visible),
                ],
            )
            goes_on = (seq, seen_head) == (b"%d" % (record.first_seq - 1), head.encode())
            # Only a chain that goes on elsewhere loses rows; all epochs are read then, which is rare.
            invisible = [] if goes_on else await _invisible(self._redis, keys)
            reply = await script("open_epoch")(
                self._redis,
                [
                    *(keys.state, keys.strategy, keys.epochs, keys.visible, keys.chain, keys.open_bins),
                    *(keys.noise, keys.open_windows, keys.untallied),
                    *(keys.cells(int(bin)) for bin in bins),
                    *(keys.users(int(window)) for window in windows),
                    *(keys.untallied_shard(name.decode()) for name in shards),
                    *(keys.tile(piece.key) for piece in invisible),
                ],
                [
                    *(strategy, record.strategy_hash, record.epoch, codec.encode_epoch(record)),
                    *(record.first_bin, record.first_bin + record.bins - 1, record.first_seq, head),
                    *((noise.nonce, noise.pages) if noise else ("", 0)),
                    carried,
                    *(seq or "0", seen_head or "", visible or "0", replaced, CHANGES if is_changed else ""),
                    codec.encode_found(record.found),
                    *(len(bins), len(windows), len(shards)),
                    *(*bins, *windows, *shards),
                    *(piece.offset_bytes for piece in invisible),
                ],
            )
            if reply != b"again":
                return codec.decode_reply(reply)

    async def end_epoch(self, stream: str, epoch: int, expected_seq: int, reason: str) -> Reply:
        keys = StreamKeys(stream)
        reply = await script("end_epoch")(
            self._redis, [keys.state, keys.epochs], [epoch, expected_seq, reason]
        )
        return codec.decode_reply(reply)

    async def stop(self, stream: str, epoch: int, expected_seq: int) -> Reply:
        keys, everything = StreamKeys(stream), (0, -1)
        reply: Reply | None = None
        cleared: set[bytes] = set()
        while True:
            bins, windows, shards, partitions = await transaction(
                self._redis,
                [
                    ("ZRANGE", keys.open_bins, *everything),
                    ("ZRANGE", keys.open_windows, *everything),
                    ("ZRANGE", keys.untallied, *everything),
                    ("HKEYS", keys.positions),
                ],
            )
            # Records that were counted between the reading and the first call are deleted by the second.
            # A partition that appeared between the two may hold nothing but records set aside.
            if reply is Reply.DONE and not (bins or windows or shards) and cleared.issuperset(partitions):
                return reply
            cleared.update(partitions)
            answer = await script("stop")(
                self._redis,
                [
                    *(keys.state, keys.epochs, keys.open_bins, keys.open_windows, keys.untallied),
                    *(keys.cells(int(bin)) for bin in bins),
                    *(keys.users(int(window)) for window in windows),
                    *(keys.untallied_shard(name.decode()) for name in shards),
                    *(key for name in partitions for key in keys.ahead(name.decode())[:2]),
                ],
                [epoch, expected_seq, len(bins), len(windows), *bins, *windows, *shards],
            )
            reply = codec.decode_reply(answer)
            if reply is not Reply.DONE:
                return reply

    async def oldest_epoch(self, stream: str) -> EpochRecord | None:
        keys = StreamKeys(stream)
        [fields] = await batch(self._redis, [("HKEYS", keys.epochs)])
        if not (numbers := [int(name) for name in fields if name.isdigit()]):
            return None
        names = codec.fields_of_epochs([min(numbers)])
        [texts] = await batch(self._redis, [("HMGET", keys.epochs, *names)])
        found = codec.present(names, texts)
        return codec.decode_epoch(found, min(numbers)) if b"%d" % min(numbers) in found else None

    async def trim(self, stream: str, before_us: int) -> int:
        keys = StreamKeys(stream)
        strategy, fields, visible = await transaction(
            self._redis, [("GET", keys.strategy), ("HGETALL", keys.epochs), ("GET", keys.visible)]
        )
        text, history = (b"", None) if strategy is None else read_strategy(strategy)
        if not text or history is not None:
            return 0
        texts, removed = read_strategies(text), 0
        for epoch in removable(texts, codec.decode_epochs(fields), int(visible or 0), before_us):
            if not removed:
                await self.need_format(TRIMMED)
            # The epoch's last row, or an earlier one if the store had lost this one.
            back = ("XREVRANGE", keys.chain, f"{epoch.final_seq}-0", "-", "COUNT", 1)
            [newest] = await batch(self._redis, [back])
            left = [canonical_json(asdict(anchor(epoch, *row))) for row in codec.decode_rows(newest)]
            reply = await script("trim")(
                self._redis,
                [keys.epochs, keys.visible, keys.chain, *map(keys.tile, tiles_of(texts, epoch))],
                [epoch.epoch, epoch.final_seq, left[0] if left else b"", TRIMMED],
            )
            if codec.decode_reply(reply) is not Reply.DONE:
                break
            removed += 1
        return removed


async def _invisible(redis: RoundTrips, keys: StreamKeys) -> list[TileSlice]:
    """Return the parts of tiles with rows that are released and not visible."""
    released_bin, visible, fields, held = await transaction(
        redis,
        [
            ("HGET", keys.state, "released_bin"),
            ("GET", keys.visible),
            ("HGETALL", keys.epochs),
            ("GET", keys.strategy),
        ],
    )
    if not held or released_bin is None:  # a rebuilt stream has no state, and all its rows are visible
        return []
    epochs = codec.decode_epochs(fields)
    return invisible_slices(read_strategies(held), epochs, int(released_bin), int(visible or 0))
