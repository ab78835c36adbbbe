"""Takes cuts in Redis, and decides with them about the records that were set aside."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec

from stream_app.core.arrival import ArrivalChange
from stream_app.core.records import Cut, Reply
from stream_app.state import arguments, codec
from stream_app.state.connection import batch, script
from stream_app.state.keys import StreamKeys
from stream_app.state.round_trips import RoundTrips

NAMES_PER_SCAN = 5_000


async def take_cuts(
    redis: RoundTrips,
    stream: str,
    strategy_hash: str,
    partition: str,
    expected_last_cut_bin: int,
    cuts: Sequence[Cut],
    max_ahead_bins: int,
    most_places: int,
    change: ArrivalChange | None,
) -> Reply:
    """Take cuts of one partition, as ``Store.take_cuts`` says."""
    keys = StreamKeys(stream)
    packed, digest = arguments.packed_cuts(expected_last_cut_bin, cuts)
    open_bin = cuts[0].open_bin
    while True:
        # Only a late cut accepts records that were set aside.
        late = open_bin > expected_last_cut_bin + 2
        newest_bin = open_bin + max_ahead_bins
        seen, names = await _set_aside(redis, keys.ahead(partition)[0], newest_bin) if late else (0, [])
        targets = arguments.targets_ahead(keys, names)
        reply = await script("take_cuts")(
            redis,
            [
                *(keys.state, keys.positions, keys.starts, keys.base_bins, keys.cuts(partition)),
                *(keys.cut_calls, *keys.ahead(partition)),
                *(keys.operator_counts, keys.open_bins, keys.untallied, keys.open_windows),
                *chain.from_iterable(targets.values()),
            ],
            [
                *(strategy_hash, partition, expected_last_cut_bin, digest, packed),
                *(open_bin, max_ahead_bins, seen, msgspec.msgpack.encode(names)),
                most_places,
                "" if change is None else change.text(),
                *targets,
            ],
        )
        if reply != b"again":
            return codec.decode_reply(reply)


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
