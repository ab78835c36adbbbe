"""The store in Redis: every write is one script of ``lua/``, an atomic compare-and-set.

``tests/models/memory.py`` does the same in Python; a contract test checks that both behave alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from dphist.arrays import Int64Array
from stream_app.core.bounding import ID_BYTES, UserShard
from stream_app.core.ledger import entry_to_json
from stream_app.core.records import (
    Apply,
    Cut,
    EpochRecord,
    LedgerEntry,
    PartitionState,
    Release,
    Reply,
    StoredNoise,
    StreamState,
    TileAppend,
    WitnessRow,
)
from stream_app.core.restored import Restored
from stream_app.core.strategy import Strategy
from stream_app.core.visible import invisible_slices
from stream_app.ports import OperatorError
from stream_app.state.arguments import packed_ahead, packed_cells, packed_cuts, packed_users, targets_ahead
from stream_app.state.checks import (
    LARGEST_INTEGER,
    LARGEST_TALLY_FIELDS,
    LARGEST_TALLY_SHARDS,
    check_apply,
    check_cuts,
    check_epoch,
    check_integers,
    check_noise,
    check_noise_page,
    check_read,
    check_release,
    check_tally,
)
from stream_app.state.codec import decode_epoch, decode_epochs, decode_ledger, encode_epoch
from stream_app.state.connection import SameServer, batch, connect, script, transaction
from stream_app.state.keys import CLOCK_MARK, STREAM_NAMES, StreamKeys, ledger_key
from stream_app.state.round_trips import Argument
from stream_app.state.row_values import with_values

_BINS_PER_READ = 1_000
_NAMES_PER_SCAN = 5_000
_REWRITE_POLL_S = 0.1


class RedisStore:
    """``Store`` over one Redis, secrets included.

    Args: url, as redis-py takes it, of a user that may write public and secret keys.
    Raises (every method): OSError if Redis does not answer or refuses, or if a different server process
        answers. Then the call may have taken effect, and data loaded before may be gone. Only the first
        caller gets the error about a different process, so a loop that keeps loaded data needs a separate
        store.
    """

    def __init__(self, url: str) -> None:
        self._redis = connect(url, same_server=SameServer())
        self._partitions: dict[str, list[bytes]] = {}  # by stream, as of its last load
        self._rewriting = asyncio.Lock()
        self._rewritings_begun = self._rewritten = 0  # how often begun, and the last that ended well

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()

    async def now_us(self, latest_us: int | None = None) -> tuple[int, int]:
        """Return the store's clock, and the latest time it has noted before."""
        latest = LARGEST_INTEGER if latest_us is None else latest_us
        reply = await script("now")(self._redis, [CLOCK_MARK], [latest])
        now_us, mark_us = (reply or b"0 0").split()
        return int(now_us), int(mark_us)

    async def reserve(self, entry: LedgerEntry) -> Reply:
        """Write a ledger entry once."""
        place = f"{entry.stream}:{entry.epoch}"
        return await self._reply("reserve", [ledger_key(entry.source)], [place, entry_to_json(entry)])

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        """Return every measurement of a source, oldest first."""
        [fields] = await batch(self._redis, [("HGETALL", ledger_key(source))])
        return decode_ledger(fields)

    async def load(self, stream: str) -> StreamState | None:
        """Return the stream's state, read in one step; None for a stream that was never opened."""
        keys = StreamKeys(stream)
        while True:
            names = self._partitions.get(stream, [])
            state, strategy, epochs, positions, base_bins, *cuts = await transaction(
                self._redis,
                [
                    ("HGETALL", keys.state),
                    ("GET", keys.strategy),
                    ("HGETALL", keys.epochs),
                    ("HGETALL", keys.positions),
                    ("HGETALL", keys.base_bins),
                    *(("LRANGE", keys.cuts(name.decode()), 0, -1) for name in names),
                ],
            )
            if not state:
                return None
            if sorted(positions) == names:
                break
            # The partitions are known only after the first read: read again, with their cuts.
            self._partitions[stream] = sorted(positions)
        return StreamState(
            strategy=strategy,
            epoch=decode_epoch(epochs, int(state[b"epoch"])),
            seq=int(state[b"seq"]),
            head=state[b"head"].decode(),
            released_bin=int(state[b"released_bin"]),
            sealed_bin=int(state[b"sealed_bin"]),
            counter=state[b"counter"],
            partitions={
                name.decode(): PartitionState(int(positions[name]), int(base_bins[name]), _read_cuts(own))
                for name, own in zip(names, cuts, strict=True)
            },
            noise=state.get(b"noise", b"").decode(),
        )

    async def open_epoch(
        self,
        stream: str,
        strategy: bytes,
        record: EpochRecord,
        head: str,
        noise: StoredNoise | None = None,
        carried: bytes = b"",
    ) -> Reply:
        """Open an epoch after the stream's last one, which ends at its released bin."""
        check_epoch(record)
        check_noise(noise)
        keys = StreamKeys(stream)
        # Written first, because it is in another slot than the stream: readers skip names without a strategy.
        await batch(self._redis, [("SADD", STREAM_NAMES, stream)])
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
                self._redis,
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
                self._redis,
                [
                    *fixed,
                    *(keys.cells(int(bin)) for bin in bins),
                    *(keys.users(int(window)) for window in windows),
                    *(keys.untallied_shard(_read_shard(name)) for name in shards),
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
                return _as_reply(reply)

    async def write_noise(self, stream: str, nonce: str, page: int, data: bytes) -> None:
        """Store an encrypted page once."""
        check_noise_page(nonce, page, data)
        await batch(self._redis, [("HSETNX", StreamKeys(stream).noise, f"{nonce}:{page}", data)])

    async def read_noise(self, stream: str, nonce: str, page: int) -> bytes | None:
        """Return an encrypted page, or None. SECRET."""
        [data] = await batch(self._redis, [("HGET", StreamKeys(stream).noise, f"{nonce}:{page}")])
        return None if data is None else bytes(data)

    async def discard_noise(self, stream: str, kept: Sequence[str], nonce: str = "", spent: int = 0) -> None:
        """Delete all noise except the kept nonces' and the running epoch's; its spent pages go too."""
        keys = StreamKeys(stream)
        await script("discard_noise")(self._redis, [keys.state, keys.noise], [nonce, spent, *kept])

    async def end_epoch(self, stream: str, epoch: int, expected_seq: int, reason: str) -> Reply:
        """End the running epoch at its released bin."""
        keys = StreamKeys(stream)
        return await self._reply("end_epoch", [keys.state, keys.epochs], [epoch, expected_seq, reason])

    async def apply(self, stream: str, change: Apply) -> Reply:
        """Add the deltas and move the position, or change nothing."""
        check_apply(change)
        keys = StreamKeys(stream)
        targets, packed = packed_users(keys, change) if change.users else packed_cells(keys, change)
        due_us = "" if change.due_us is None else change.due_us
        return await self._reply(
            "apply",
            [
                *(keys.state, keys.positions, keys.base_bins, keys.cuts(change.partition), keys.open_bins),
                *(keys.untallied, keys.open_windows, *keys.ahead(change.partition)[:2], *targets),
            ],
            [
                *(change.strategy_hash, change.partition, change.expected, change.new, change.last_cut_bin),
                *(due_us, *packed_ahead(change.ahead), *packed),
            ],
        )

    async def take_cuts(
        self,
        stream: str,
        strategy_hash: str,
        partition: str,
        expected_last_cut_bin: int,
        cuts: Sequence[Cut],
        max_ahead_bins: int = 0,
    ) -> Reply:
        """Append cuts to a partition, and decide about its records that were set aside."""
        check_cuts(expected_last_cut_bin, cuts)
        keys = StreamKeys(stream)
        packed, digest = packed_cuts(expected_last_cut_bin, cuts)
        open_bin = cuts[0].open_bin
        while True:
            # Only a late cut accepts records that were set aside.
            late = open_bin > expected_last_cut_bin + 2
            newest_bin = open_bin + max_ahead_bins
            seen, names = await self._set_aside(keys.ahead(partition)[0], newest_bin) if late else (0, [])
            targets = targets_ahead(keys, names)
            given = [key for pair in targets.values() for key in pair]
            reply = await script("take_cuts")(
                self._redis,
                [
                    *(keys.state, keys.positions, keys.starts, keys.base_bins, keys.cuts(partition)),
                    *(keys.cut_calls, *keys.ahead(partition)),
                    *(keys.operator_counts, keys.open_bins, keys.untallied, keys.open_windows),
                    *given,
                ],
                [
                    *(strategy_hash, partition, expected_last_cut_bin, digest, packed),
                    *(open_bin, max_ahead_bins, seen, msgspec.msgpack.encode(names)),
                    *targets,
                ],
            )
            if reply != b"again":
                return _as_reply(reply)

    async def _set_aside(self, ahead: str, newest_bin: int) -> tuple[int, list[str]]:
        """Return how many records are set aside, and the names of those dated up to ``newest_bin``."""
        [records] = await batch(self._redis, [("HGET", ahead, "records")])
        names: set[str] = set()  # a scan may return a name twice
        cursor = "0"
        while True:
            part = await script("scan_ahead")(self._redis, [ahead], [cursor, newest_bin, _NAMES_PER_SCAN])
            cursor, found = msgspec.msgpack.decode(part or b"", type=tuple[str, list[str] | dict[str, str]])
            names.update(found)
            if cursor == "0":
                return int(records or 0), sorted(names)

    async def refused_ahead(self, stream: str, partition: str) -> list[int]:
        """Return the positions of records that were set aside and then refused. SECRET."""
        [positions] = await batch(self._redis, [("LRANGE", StreamKeys(stream).ahead(partition)[2], 0, -1)])
        return [int(position) for position in positions]

    async def forget_refused(self, stream: str, partition: str, positions: int) -> None:
        """Forget the first of these positions."""
        await batch(self._redis, [("LTRIM", StreamKeys(stream).ahead(partition)[2], positions, -1)])

    async def start_partition(self, stream: str, strategy_hash: str, partition: str, position: int) -> Reply:
        """Create a partition's state at a start position, once."""
        check_integers(position=position)
        keys = StreamKeys(stream)
        return await self._reply(
            "start_partition",
            [keys.state, keys.positions, keys.starts, keys.base_bins],
            [strategy_hash, partition, position],
        )

    async def seal(self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int) -> int:
        """Seal the bins that all known and listed partitions allow; return the last sealed bin."""
        check_integers(up_to_bin=up_to_bin)
        keys = StreamKeys(stream)
        arguments: list[Argument] = [strategy_hash, up_to_bin, *partitions]
        return _opened(stream, await script("seal")(self._redis, [keys.state, keys.base_bins], arguments))

    async def tally(self, stream: str, strategy_hash: str, max_events: int, up_to_bin: int) -> Reply:
        """Add some users' records that count to the cells of sealed bins."""
        check_tally(max_events, up_to_bin)
        keys = StreamKeys(stream)
        limits = ("LIMIT", 0, LARGEST_TALLY_SHARDS)
        [names] = await batch(self._redis, [("ZRANGEBYSCORE", keys.untallied, "-inf", up_to_bin, *limits)])
        shards = [_read_shard(name) for name in names]
        return await self._reply(
            "tally",
            [
                *(keys.state, keys.untallied, keys.operator_counts),
                *(
                    key
                    for shard in shards
                    for key in (keys.untallied_shard(shard), keys.users(shard.window), keys.cells(shard.bin))
                ),
            ],
            [strategy_hash, up_to_bin, max_events, LARGEST_TALLY_FIELDS, ID_BYTES, *names],
        )

    async def read_cells(self, stream: str, first_bin: int, last_bin: int, width: int) -> Int64Array:
        """Return exact counts of sealed and tallied bins, shape (bins, width). SECRET."""
        keys = StreamKeys(stream)
        sealed_bin, untallied = await batch(
            self._redis,
            [("HGET", keys.state, "sealed_bin"), ("ZCOUNT", keys.untallied, "-inf", last_bin)],
        )
        check_read(last_bin, _opened(stream, sealed_bin), untallied)
        counts = np.zeros((max(last_bin - first_bin + 1, 0), width), dtype=np.int64)
        for start in range(0, len(counts), _BINS_PER_READ):
            rows = range(start, min(start + _BINS_PER_READ, len(counts)))
            bins = await batch(self._redis, [("HGETALL", keys.cells(first_bin + row)) for row in rows])
            for row, cells in zip(rows, bins, strict=True):
                _fill(counts[row], cells)
        return counts

    async def release(self, stream: str, release: Release) -> Reply:
        """Append rows and tiles, set head, seq and counter, delete the released cells; all or nothing."""
        check_release(release)
        keys = StreamKeys(stream)
        bins = range(release.first_bin, release.last_bin + 1)
        return await self._reply(
            "release",
            [
                *(keys.state, keys.epochs, keys.chain, keys.open_bins, keys.open_windows, keys.untallied),
                *(keys.cells(bin) for bin in bins),
                keys.users(release.last_bin),  # of the window that ends with this bin, if any
                *(keys.tile(append.key) for append in release.tiles),
            ],
            [
                *(release.strategy_hash, release.epoch, release.expected_seq, release.expected_head),
                *(release.first_bin, release.last_bin, release.head, release.counter),
                *release.rows,
                *_tile_arguments(release.tiles),
            ],
        )

    async def put_back(self, stream: str, lost: Restored) -> Reply:
        """Put back rows of earlier epochs from the witness; all or nothing."""
        keys, epoch = StreamKeys(stream), lost.epoch
        record = encode_epoch(replace(epoch, last_bin=None, end_reason=None))
        return await self._reply(
            "put_back",
            [keys.state, keys.epochs, keys.chain, *(keys.tile(append.key) for append in lost.tiles)],
            [
                *(lost.strategy_hash, lost.after_seq, epoch.epoch, record),
                *(str(epoch.last_bin), str(epoch.end_reason), len(lost.rows)),
                *(part for numbered in lost.rows for part in numbered),
                *_tile_arguments(lost.tiles),
            ],
        )

    async def publish(self, stream: str, seq: int) -> None:
        """Make released rows up to ``seq`` visible; a seq that is not released changes nothing."""
        check_integers(seq=seq)
        keys = StreamKeys(stream)
        await self._reply("publish", [keys.state, keys.visible], [seq])

    async def forget(self) -> None:
        """Rewrite the append-only file without the values deleted before this call; return when it is done.

        Calls that wait together share one rewriting. Raises: OperatorError if this user may not start it;
        OSError if the server could not write it.
        """
        begun_before = self._rewritings_begun
        async with self._rewriting:
            if self._rewritten <= begun_before:
                await self._rewrite()

    async def _rewrite(self) -> None:
        while not await self._start_rewriting():  # the one under way may have begun before the deletions
            await self._rewritten_once()
        begun = self._rewritings_begun
        if await self._rewritten_once() != "ok":
            raise OSError("redis: rewriting the append-only file failed, so it still holds deleted counts")
        self._rewritten = begun

    async def _rewritten_once(self) -> str:
        """Return the status of the last rewriting once none is under way or scheduled."""
        while True:
            [told] = await batch(self._redis, [("INFO", "persistence")])
            if not (told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"]):
                return str(told["aof_last_bgrewrite_status"])
            await asyncio.sleep(_REWRITE_POLL_S)

    async def _start_rewriting(self) -> bool:
        """Start rewriting the append-only file; return False if the server is writing it already."""
        self._rewritings_begun += 1
        try:
            await batch(self._redis, [("BGREWRITEAOF",)])
        except OSError as failure:
            said = str(failure)
            if "permission" in said or "unknown command" in said:
                raise OperatorError(
                    "redis.url: this user may not run BGREWRITEAOF, so exact counts of released bins would "
                    "stay on disk; grant +bgrewriteaof"
                ) from None
            if "in progress" in said:
                return False
            raise
        return True

    async def hold(self, stream: str, owner: str, for_ms: int) -> bool:
        """Take or keep the stream's lease for ``for_ms``; return whether ``owner`` holds it."""
        return await self._reply("hold", [StreamKeys(stream).lease], [owner, for_ms]) is Reply.DONE

    async def count_for_operator(self, stream: str, name: str, by: int) -> None:
        """Add to a secret operator counter. A retry may count twice; no decision depends on it."""
        await batch(self._redis, [("HINCRBY", StreamKeys(stream).operator_counts, name, by)])

    async def operator_counts(self, stream: str) -> dict[str, int]:
        """Return the operator counters. SECRET."""
        [fields] = await batch(self._redis, [("HGETALL", StreamKeys(stream).operator_counts)])
        return {name.decode(): int(count) for name, count in fields.items()}

    async def rows(self, stream: str, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return released rows with seq > after_seq in order, visible or not."""
        chain = StreamKeys(stream).chain
        [entries] = await batch(self._redis, [("XRANGE", chain, f"{after_seq + 1}-0", "+", "COUNT", limit)])
        return read_rows(entries)

    async def witness_rows(
        self, stream: str, strategy: Strategy, after_seq: int, limit: int
    ) -> list[WitnessRow]:
        """Return released rows, with their values if the rows do not hold them."""
        rows = await self.rows(stream, after_seq, limit)
        if strategy.kind.rows_hold_values or not rows:
            return [WitnessRow(seq, row) for seq, row in rows]
        return await with_values(self._redis, stream, strategy, rows)

    async def _reply(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply:
        return _as_reply(await script(name)(self._redis, keys, arguments))


def _tile_arguments(tiles: Sequence[TileAppend]) -> Iterator[Argument]:
    """Yield for each tile its length before, the bytes to append, and whether it is then full."""
    for append in tiles:
        yield from (append.offset_bytes, append.data, int(append.fills))


def read_rows(entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> list[tuple[int, bytes]]:
    """Return (seq, row) of entries of the chain, whose id is ``seq-0``."""
    return [(int(id.split(b"-")[0]), fields[b"row"]) for id, fields in entries]


def _as_reply(reply: bytes | None) -> Reply:
    return Reply((reply or b"").decode())


def _opened(stream: str, value: bytes | None) -> int:
    if value is None:
        raise LookupError(f"stream {stream!r} was never opened; open its first epoch")
    return int(value)


def _read_shard(name: bytes) -> UserShard:
    return UserShard(*map(int, name.split(b":")))


def _read_cuts(entries: Sequence[bytes]) -> tuple[Cut, ...]:
    return tuple(Cut(*map(int, entry.split())) for entry in entries)


def _fill(row: Int64Array, cells: dict[bytes, Any]) -> None:
    if cells:
        indices = np.array([int(cell) for cell in cells])
        if int(indices.max()) >= len(row):
            raise ValueError(f"read_cells: cell {int(indices.max())} is outside a width of {len(row)}")
        row[indices] = [int(count) for count in cells.values()]
