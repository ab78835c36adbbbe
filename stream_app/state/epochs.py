"""Opens and stops the epochs of a stream in Redis; both clear counts that are not released."""

from __future__ import annotations

from stream_app.core.answers.visible import invisible_slices
from stream_app.core.kinds.pages import StoredNoise
from stream_app.core.records import EpochRecord, Reply
from stream_app.core.releases.tiles import TileSlice
from stream_app.core.segments.strategies import read_strategies
from stream_app.state import codec
from stream_app.state.connection import batch, script, transaction
from stream_app.state.keys import STREAM_NAMES, StreamKeys
from stream_app.state.round_trips import RoundTrips
from stream_app.stored_format import CHANGES


async def open_epoch(
    redis: RoundTrips,
    stream: str,
    strategy: bytes,
    record: EpochRecord,
    head: str,
    noise: StoredNoise | None,
    carried: bytes,
    replaced: bytes,
) -> Reply:
    """Open an epoch, as ``Store.open_epoch`` says."""
    keys = StreamKeys(stream)
    # The name is in another slot than the stream, so it is written first; readers skip it until then.
    await batch(redis, [("SADD", STREAM_NAMES, stream)])
    needed = CHANGES if len(read_strategies(strategy)) > 1 else ""
    before = ("-inf", f"({record.first_bin}")
    while True:
        bins, windows, shards, (seq, seen_head), visible = await transaction(
            redis,
            [
                ("ZRANGEBYSCORE", keys.open_bins, *before),
                ("ZRANGEBYSCORE", keys.open_windows, *before),
                ("ZRANGEBYSCORE", keys.untallied, *before),
                ("HMGET", keys.state, "seq", "head"),
                ("GET", keys.visible),
            ],
        )
        goes_on = (seq, seen_head) == (b"%d" % (record.first_seq - 1), head.encode())
        # Only a chain that goes on elsewhere loses rows. All epochs are read then, and at no usual opening.
        invisible = [] if goes_on else await _invisible(redis, keys)
        reply = await script("open_epoch")(
            redis,
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
                *(seq or "0", seen_head or "", visible or "0", replaced, needed),
                codec.encode_found(record.found),
                *(len(bins), len(windows), len(shards)),
                *(*bins, *windows, *shards),
                *(piece.offset_bytes for piece in invisible),
            ],
        )
        if reply != b"again":
            return codec.decode_reply(reply)


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


async def stop(redis: RoundTrips, stream: str, epoch: int, expected_seq: int) -> Reply:
    """Stop counting a stream, as ``Store.stop`` says."""
    keys, everything = StreamKeys(stream), (0, -1)
    reply: Reply | None = None
    cleared: set[bytes] = set()
    while True:
        bins, windows, shards, partitions = await transaction(
            redis,
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
        told = await script("stop")(
            redis,
            [
                *(keys.state, keys.epochs, keys.open_bins, keys.open_windows, keys.untallied),
                *(keys.cells(int(bin)) for bin in bins),
                *(keys.users(int(window)) for window in windows),
                *(keys.untallied_shard(name.decode()) for name in shards),
                *(key for name in partitions for key in keys.ahead(name.decode())[:2]),
            ],
            [epoch, expected_seq, len(bins), len(windows), *bins, *windows, *shards],
        )
        reply = codec.decode_reply(told)
        if reply is not Reply.DONE:
            return reply
