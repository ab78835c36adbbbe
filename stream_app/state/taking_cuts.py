"""Takes cuts in Redis, and decides with them about the records that were set aside."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec

from stream_app.core.records import Cut, Reply
from stream_app.core.store_writes import ALL_WAIT, PartitionCuts, Waiting
from stream_app.state import arguments, checks, codec
from stream_app.state.connection import batch, script
from stream_app.state.keys import StreamKeys
from stream_app.state.round_trips import RoundTrips

NAMES_PER_SCAN = 5_000


class CutsInRedis:
    """The part of ``RedisStore`` about cuts; the protocol describes each method."""

    _redis: RoundTrips

    async def take_cuts(
        self,
        stream: str,
        strategy_hash: str,
        partition: str,
        expected_last_cut_bin: int,
        cuts: Sequence[Cut],
        max_ahead_bins: int = 0,
        waiting: Waiting = ALL_WAIT,
    ) -> Reply:
        checks.check_cuts(expected_last_cut_bin, cuts)
        taken = PartitionCuts(partition, expected_last_cut_bin, cuts, max_ahead_bins)
        keys, newest_bin = StreamKeys(stream), taken.open_bin + max_ahead_bins
        while True:
            # Only a late cut accepts records that were set aside.
            late = taken.open_bin > expected_last_cut_bin + 2
            ahead = keys.ahead(partition)[0]
            seen, names = await _set_aside(self._redis, ahead, newest_bin) if late else (0, [])
            [reply] = await _taken(self._redis, keys, strategy_hash, [taken], waiting, seen, names)
            if reply is not Reply.SET_ASIDE:
                return reply

    async def take_cuts_together(
        self, stream: str, strategy_hash: str, taken: Sequence[PartitionCuts]
    ) -> list[Reply]:
        for one in taken:
            checks.check_cuts(one.expected_last_cut_bin, one.cuts)
        return await _taken(self._redis, StreamKeys(stream), strategy_hash, taken, ALL_WAIT)

    async def refused_ahead(self, stream: str, partition: str, limit: int) -> list[int]:
        key = StreamKeys(stream).ahead(partition)[2]
        [positions] = await batch(self._redis, [("LRANGE", key, 0, limit - 1)])
        return [int(position) for position in positions]

    async def forget_refused(self, stream: str, partition: str, positions: Sequence[int]) -> None:
        await script("forget_refused")(self._redis, [StreamKeys(stream).ahead(partition)[2]], positions)


async def _taken(
    redis: RoundTrips,
    keys: StreamKeys,
    strategy_hash: str,
    taken: Sequence[PartitionCuts],
    waiting: Waiting,
    seen: int = 0,
    names: Sequence[str] = (),
) -> list[Reply]:
    """Take cuts in one call. Args: seen, how many records are set aside; names, of those that may count."""
    targets = arguments.targets_ahead(keys, names)
    packed_names = msgspec.msgpack.encode(names)
    reply = await script("take_cuts")(
        redis,
        [
            *(keys.state, keys.positions, keys.starts, keys.base_bins, keys.cut_calls),
            *(keys.operator_counts, keys.open_bins, keys.untallied, keys.open_windows),
            *chain.from_iterable((keys.cuts(one.partition), *keys.ahead(one.partition)) for one in taken),
            *chain.from_iterable(targets.values()),
        ],
        [
            *(strategy_hash, waiting.most, waiting.of_key, int(waiting.keyed), len(taken)),
            *chain.from_iterable((*arguments.packed_cuts(one), seen, packed_names) for one in taken),
            *targets,
        ],
    )
    return codec.decode_replies(reply)


async def _set_aside(redis: RoundTrips, ahead: str, newest_bin: int) -> tuple[int, list[str]]:
    """Return how many records are set aside, and the names of records dated up to ``newest_bin``."""
    [records] = await batch(redis, [("HGET", ahead, "records")])
    names: set[str] = set()  # a scan may return a name twice
    cursor = "0"
    while True:
        part = await script("scan_ahead")(redis, [ahead], [cursor, newest_bin, NAMES_PER_SCAN])
        cursor, found = msgspec.msgpack.decode(part or b"", type=tuple[str, list[str] | dict[str, str]])
        names.update(found)
        if cursor == "0":
            return int(records or 0), sorted(names)
