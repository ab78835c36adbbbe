"""The exact counts in Redis: users' records, and the keys that no list names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import TypeVar

import msgspec
import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.counting.bounding import ID_BYTES, Bounds, UserShard
from stream_app.core.counting.unlisted import Slots
from stream_app.core.epochs import SealedKey
from stream_app.core.records import Reply, StreamState
from stream_app.ports.exact_counts import ExactCounts
from stream_app.state import arguments, checks, codec
from stream_app.state.connection import batch, script
from stream_app.state.keys import StreamKeys
from stream_app.state.round_trips import Argument, Command, RoundTrips

T = TypeVar("T")

_BINS_PER_READ = 1_000
_CELLS_PER_READ = 5_000  # of all bins of a round trip: the event loop packs and parses them in between
_WHOLE_BINS_PER_READ = 20  # with the cells of all keys: a round trip must be answered within seconds
_NAMES_PER_SCRIPT = 1_000
_NAMES_PER_READ = 10_000  # Redis drops a connection that asks for a million
_KEYS_PER_THINNING, _BINS_PER_THINNING = 500, 100
_WORDS = {reply.value.encode() for reply in Reply}


class ExactCountsInRedis(ExactCounts):
    """The part of ``RedisStore`` about exact counts; the protocol describes each method."""

    _redis: RoundTrips

    async def tally(
        self, stream: str, strategy_hash: str, bounds: Bounds, up_to_bin: int, slots: Slots | None = None
    ) -> Reply:
        checks.check_tally(bounds, up_to_bin)
        keys = StreamKeys(stream)
        limits = ("LIMIT", 0, checks.LARGEST_TALLY_SHARDS)
        [names] = await batch(self._redis, [("ZRANGEBYSCORE", keys.untallied, "-inf", up_to_bin, *limits)])
        # A shard's member is its name, or its name and ".entries".
        numbers = (map(int, name.partition(b".")[0].split(b":")) for name in names)
        shards = list(dict.fromkeys(UserShard(*one) for one in numbers))
        targets = [
            (keys.entries(one), keys.untallied_shard(one.name), keys.users(one.window), keys.cells(one.bin))
            for one in shards
        ]
        reply = await script("tally")(
            self._redis,
            [*(keys.state, keys.untallied, keys.operator_counts), *chain.from_iterable(targets)],
            [
                *(strategy_hash, up_to_bin, bounds.caps.l1, checks.LARGEST_TALLY_FIELDS),
                *(bounds.weight or 0, bounds.caps.max_keys or 0, bounds.caps.max_per_key or 0),
                *(bounds.key_places, -1 if bounds.users_at is None else bounds.users_at),
                *arguments.of_slots(slots),
                *(shard.name for shard in shards),
            ],
        )
        return codec.decode_reply(reply)

    async def read_cells(self, stream: str, first_bin: int, last_bin: int, width: int) -> Int64Array:
        keys = StreamKeys(stream)
        sealed_bin, untallied = await batch(
            self._redis,
            [("HGET", keys.state, "sealed_bin"), ("ZCOUNT", keys.untallied, "-inf", last_bin)],
        )
        checks.check_read(last_bin, codec.decode_sealed_bin(stream, sealed_bin), untallied)
        counts = np.zeros((max(last_bin - first_bin + 1, 0), width), dtype=np.int64)
        for start in range(0, len(counts), _BINS_PER_READ):
            rows = range(start, min(start + _BINS_PER_READ, len(counts)))
            bins = await batch(self._redis, [("HGETALL", keys.cells(first_bin + row)) for row in rows])
            for row, cells in zip(rows, bins, strict=True):
                places = [int(cell) for cell in cells]
                if max(places, default=0) >= width:
                    raise ValueError(f"read_cells: cell {max(places)} is outside a width of {width}")
                counts[row, places] = [int(count) for count in cells.values()]
        return counts

    async def name_keys(
        self, stream: str, strategy_hash: str, window: int, mark: bytes, names: Sequence[SealedKey]
    ) -> list[int] | Reply:
        keys = StreamKeys(stream)
        targets, numbers = [keys.state, keys.users(window), keys.open_windows], list[int]()
        for some in _parts(names, _NAMES_PER_SCRIPT):
            given: list[Argument] = [strategy_hash, window, mark, *chain.from_iterable(some)]
            reply = await script("name_keys")(self._redis, targets, given)
            if reply is None or reply in _WORDS:
                return codec.decode_reply(reply)
            numbers += msgspec.msgpack.decode(reply, type=list[int])
        return numbers

    async def thin_keys(
        self, stream: str, seen: StreamState, window: int, gone: Mapping[int, Sequence[int]]
    ) -> Reply:
        keys, epoch, numbers = StreamKeys(stream), seen.epoch, list(gone)
        first_bin, bins = epoch.first_bin, seen.released_bin + 1 - epoch.first_bin
        for start, row in product(
            range(0, max(len(numbers), 1), _KEYS_PER_THINNING), range(0, max(bins, 1), _BINS_PER_THINNING)
        ):
            some = numbers[start : start + _KEYS_PER_THINNING]
            of_bins = range(first_bin + row, first_bin + min(row + _BINS_PER_THINNING, bins))
            cells = [*chain.from_iterable(gone[number] for number in some)]
            given: list[Argument] = [epoch.epoch, seen.seq, epoch.thinned, len(cells), *cells, *some]
            targets = [keys.state, keys.users(window), *map(keys.cells, of_bins)]
            reply = codec.decode_reply(await script("thin_keys")(self._redis, targets, given))
            if reply is not Reply.DONE:
                return reply
        return Reply.DONE

    async def named_keys(self, stream: str, window: int, numbers: Sequence[int]) -> list[SealedKey]:
        found, users = list[SealedKey](), StreamKeys(stream).users(window)
        for some in _parts(numbers, _NAMES_PER_READ):
            fields = [b"key:%d" % number for number in some]
            [held] = await batch(self._redis, [("HMGET", users, *fields)])
            if None in held:
                raise LookupError(f"stream {stream}: it has counts of keys whose names it does not have")
            found += [SealedKey(bytes(one[:ID_BYTES]), bytes(one[ID_BYTES:])) for one in held]
        return found

    async def read_kept(self, stream: str, bins: Sequence[int], cells: Sequence[int]) -> list[dict[int, int]]:
        keys, found = StreamKeys(stream), [dict[int, int]() for _ in bins]
        some = [*_parts(cells, _CELLS_PER_READ)] or [cells]
        asked = [(at, part) for at in range(len(bins)) for part in some]
        at_once = max(1, _CELLS_PER_READ // len(cells)) if cells else _WHOLE_BINS_PER_READ
        for together in _parts(asked, at_once):
            commands: list[Command] = [
                ("HMGET", keys.cells(bins[at]), *part) if part else ("HGETALL", keys.cells(bins[at]))
                for at, part in together
            ]
            for (at, part), row in zip(together, await batch(self._redis, commands), strict=True):
                pairs = zip(part, row, strict=True) if part else row.items()
                found[at] |= {int(cell): int(count) for cell, count in pairs if count}
        return found

    async def forget_kept(self, stream: str, epoch: int, finished: bool = False) -> Reply:
        keys = StreamKeys(stream)
        bins, windows = await batch(
            self._redis, [("ZRANGE", one, 0, -1) for one in (keys.open_bins, keys.open_windows)]
        )
        targets = [*map(keys.cells, map(int, bins)), *map(keys.users, map(int, windows))]
        given: list[Argument] = [epoch, int(finished), len(bins), *bins, *windows]
        sets = [keys.state, keys.epochs, keys.open_bins, keys.open_windows]
        return codec.decode_reply(await script("forget_cells")(self._redis, [*sets, *targets], given))


def _parts(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (items[start : start + most] for start in range(0, len(items), most))
