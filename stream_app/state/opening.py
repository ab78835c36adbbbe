"""Opens an epoch in Redis: deletes what the epochs before it left, and repeats if that changed meanwhile."""

from __future__ import annotations

from stream_app.core.records import EpochRecord, Reply, StoredNoise
from stream_app.core.strategy import Strategy
from stream_app.core.visible import invisible_slices
from stream_app.state.checks import check_epoch, check_noise
from stream_app.state.codec import decode_epochs, decode_reply, decode_shard, encode_epoch
from stream_app.state.connection import batch, script, transaction
from stream_app.state.keys import STREAM_NAMES, StreamKeys
from stream_app.state.round_trips import RoundTrips


async def open_epoch(
    redis: RoundTrips,
    stream: str,
    strategy: bytes,
    record: EpochRecord,
    head: str,
    noise: StoredNoise | None,
    carried: bytes,
) -> Reply:
    """Open an epoch after the stream's last one, which ends at its released bin; see ``ports.Store``."""
    check_epoch(record)
    check_noise(noise)
    keys = StreamKeys(stream)
    # Written first, because it is in another slot than the stream: readers skip names without a strategy.
    await batch(redis, [("SADD", STREAM_NAMES, stream)])
    fixed = (
        *(keys.state, keys.strategy, keys.epochs, keys.visible, keys.chain, keys.open_bins),
        *(keys.noise, keys.open_windows, keys.untallied),
    )
    arguments = (
        *(strategy, record.strategy_hash, record.epoch, encode_epoch(record)),
        *(record.first_bin, record.first_bin + record.bins - 1, record.first_seq, head),
        *((noise.nonce, noise.pages) if noise else ("", 0)),
        carried,
    )
    while True:
        bins, windows, shards, state, visible, epochs, held = await transaction(
            redis,
            [
                ("ZRANGEBYSCORE", keys.open_bins, "-inf", f"({record.first_bin}"),
                ("ZRANGEBYSCORE", keys.open_windows, "-inf", f"({record.first_bin}"),
                ("ZRANGEBYSCORE", keys.untallied, "-inf", f"({record.first_bin}"),
                ("HMGET", keys.state, "seq", "released_bin"),
                ("GET", keys.visible),
                ("HGETALL", keys.epochs),
                ("GET", keys.strategy),
            ],
        )
        seq, released_bin = state
        invisible = (
            invisible_slices(
                Strategy.from_json(held), decode_epochs(epochs), int(released_bin), int(visible or 0)
            )
            if held
            else []
        )
        reply = await script("open_epoch")(
            redis,
            [
                *fixed,
                *(keys.cells(int(bin)) for bin in bins),
                *(keys.users(int(window)) for window in windows),
                *(keys.untallied_shard(decode_shard(name)) for name in shards),
                *(keys.tile(piece.key) for piece in invisible),
            ],
            [
                *arguments,
                *(seq or "0", visible or "0", len(bins), len(windows), len(shards)),
                *(*bins, *windows, *shards),
                *(piece.offset_bytes for piece in invisible),
            ],
        )
        if reply != b"again":
            return decode_reply(reply)
