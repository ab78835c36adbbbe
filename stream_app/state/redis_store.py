"""The store in Redis: every write that decides something is one script of ``lua/``.

``tests/models/memory.py`` does the same in Python. Contract tests check that both stores behave alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import repeat

import msgspec

from stream_app.core.ledger import entry_to_json
from stream_app.core.records import LateEvents, LedgerEntry, Reply, StreamState, WitnessRow
from stream_app.core.releases.restored import Restored
from stream_app.core.releases.row_values import epoch_of, place_of, rows_of_bin, settings_beside, witness_row
from stream_app.core.segments.history import HISTORY_HASH
from stream_app.core.store_writes import Apply, Release
from stream_app.core.strategy import Strategy
from stream_app.ports import Store
from stream_app.state import arguments, checks, codec
from stream_app.state.connection import batch, connect, script, transaction
from stream_app.state.epochs import EpochsInRedis
from stream_app.state.exact_counts import ExactCountsInRedis
from stream_app.state.greeting import Expected
from stream_app.state.keys import CLOCK_MARK, NOISE_KEY, STORED_FORMAT, StreamKeys, ledger_key, workers_key
from stream_app.state.last_read import SeenLedgers, sources
from stream_app.state.round_trips import Argument, RoundTrips
from stream_app.state.servers import AppendOnlyFiles, check_clocks
from stream_app.state.taking_cuts import CutsInRedis
from stream_app.stored_format import ENDS, NEWEST, check_format


class RedisStore(EpochsInRedis, CutsInRedis, ExactCountsInRedis, Store):
    """``Store`` over one Redis, secrets included; the protocol describes each method.

    Args:
        url: of a user that may write public and secret keys.
        replicas: how many replicas must have the rows for the witness, and each entry of the ledger.
        rewrites: whether the server can rewrite its append-only file; else ``forget`` does nothing.
    Raises (every method): OSError if Redis does not answer or refuses, or if a different server process
        answers. Then the call may have taken effect, and data loaded before may be gone. Only the first
        caller gets the error about a different process, so a loop that keeps loaded data needs a separate
        store.
    """

    def __init__(self, url: str, replicas: int = 0, rewrites: bool = True) -> None:
        self.url = url  # it may hold a password
        self._replicas = replicas
        self._rewrites = rewrites
        self._redis = connect(url, expected=Expected(writes=True, same_server=True))
        # By stream: partitions and epoch of its last load.
        self._looked: dict[str, tuple[list[bytes], int]] = {}
        self._files = AppendOnlyFiles(self._redis)
        self._changes = arguments.PackedChanges()
        self._ledgers = SeenLedgers(self._redis)

    @property
    def connection(self) -> RoundTrips:
        """The connection, for adapters beside this one."""
        return self._redis

    @property
    def servers_met(self) -> int:
        return self._redis.servers_met

    async def close(self) -> None:
        await self._redis.aclose()

    async def now_us(self, latest_us: int = 0) -> tuple[int, int]:
        reply = await script("now")(self._redis, [CLOCK_MARK], [latest_us])
        now_us, mark_us = map(int, (reply or b"0 0").split())
        await check_clocks(self._redis, now_us)
        return now_us, mark_us

    async def need_format(self, needed: int) -> None:
        """Raise the store's format to the needed one. Raises: OperatorError for a newer one."""
        await self._reply("need_format", [STORED_FORMAT], [needed, NEWEST])
        await self.check_format()

    async def check_format(self) -> None:
        """Check that this build knows the store's format. Raises: OperatorError."""
        [found] = await batch(self._redis, [("GET", STORED_FORMAT)])
        check_format(f"redis.url: {self._redis.place}", found)

    async def reserve(self, entry: LedgerEntry, after: int | None = None) -> Reply:
        place, length = f"{entry.stream}:{entry.epoch}", "" if after is None else after
        reply = await script("reserve")(
            self._redis, [ledger_key(entry.source)], [place, entry_to_json(entry), length], self._replicas
        )
        return codec.decode_reply(reply)

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        return await self._ledgers.read(source)

    async def sources(self) -> dict[str, str]:
        return await sources(self._redis)

    async def load(self, stream: str) -> StreamState | None:
        keys = StreamKeys(stream)
        while True:
            names, epoch = self._looked.get(stream, ([], 0))
            state, strategy, known, positions, base_bins, *cuts = await transaction(
                self._redis,
                [
                    ("HGETALL", keys.state),
                    ("GET", keys.strategy),
                    ("HMGET", keys.epochs, *codec.fields_of_epochs([epoch])),
                    ("HGETALL", keys.positions),
                    ("HGETALL", keys.base_bins),
                    *(("LRANGE", keys.cuts(name.decode()), 0, -1) for name in names),
                ],
            )
            if not state:
                return None
            epochs = codec.present(codec.fields_of_epochs([epoch]), known)
            codec.check_stream_format(stream, epochs)
            codec.check_strategy(stream, state, strategy)
            held = sorted(positions), int(state[b"epoch"])
            if held == (names, epoch):
                break
            # Partitions and epoch are known only after the first read: read again, with cuts and record.
            self._looked[stream] = held
        partitions = {
            name.decode(): codec.decode_partition(name, state, positions, base_bins, own)
            for name, own in zip(names, cuts, strict=True)
        }
        return codec.decode_state(state, strategy, epochs, partitions)

    async def noise_key(self, stream: str) -> bytes:
        [mark] = await batch(self._redis, [("HGET", StreamKeys(stream).noise, NOISE_KEY)])
        return bytes(mark or b"")

    async def write_noise(self, stream: str, nonce: str, page: int, data: bytes, key: bytes = b"") -> bool:
        checks.check_noise_page(nonce, page, data)
        given: list[Argument] = [f"{nonce}:{page}", data, key]
        return await self._reply("write_noise", [StreamKeys(stream).noise], given) is Reply.DONE

    async def read_noise(self, stream: str, nonce: str, page: int) -> bytes | None:
        [data] = await batch(self._redis, [("HGET", StreamKeys(stream).noise, f"{nonce}:{page}")])
        return None if data is None else bytes(data)

    async def discard_noise(self, stream: str, kept: Sequence[str], nonce: str = "", spent: int = 0) -> None:
        keys = StreamKeys(stream)
        await script("discard_noise")(self._redis, [keys.state, keys.noise], [nonce, spent, *kept])

    async def end_at(self, stream: str, until_bin: int, late_to_next: bool = False) -> Reply:
        checks.check_integers(until_bin=until_bin)
        await self.need_format(ENDS)
        keys, reply = StreamKeys(stream), Reply.CUTS_CHANGED
        while reply is Reply.CUTS_CHANGED:
            [known] = await batch(self._redis, [("HKEYS", keys.base_bins)])
            names = [name.decode() for name in known]
            reply = await self._reply(
                "end_at",
                [keys.state, keys.epochs, keys.base_bins, *(keys.cuts(name) for name in names)],
                [until_bin, ENDS, "1" if late_to_next else "", *names],
            )
        return reply

    async def mark_halted(self, stream: str, halted: bool) -> Reply:
        keys = StreamKeys(stream)
        return await self._reply("mark_halted", [keys.state, keys.epochs], [int(halted), HISTORY_HASH])

    async def apply(self, stream: str, change: Apply) -> Reply:
        [reply] = await self.apply_together(stream, change.strategy_hash, change.epoch, [change])
        return reply

    async def apply_together(
        self, stream: str, strategy_hash: str, epoch: int, changes: Sequence[Apply]
    ) -> Sequence[Reply]:
        keys = StreamKeys(stream)
        targets, packed = self._changes.of(keys, changes)
        reply = await script("apply")(
            self._redis,
            [
                *(keys.state, keys.positions, keys.base_bins, keys.open_bins, keys.untallied),
                *(keys.open_windows, keys.operator_counts, *targets),
            ],
            [strategy_hash, epoch, *packed],
        )
        return codec.decode_replies(reply)

    async def start_partition(
        self,
        stream: str,
        strategy_hash: str,
        partition: str,
        position: int,
        late_before: LateEvents | None = None,
    ) -> Reply:
        checks.check_integers(position=position)
        keys = StreamKeys(stream)
        taken = "" if late_before is None else f"{late_before.position} {late_before.since_bin}"
        return await self._reply(
            "start_partition",
            [keys.state, keys.positions, keys.starts, keys.base_bins],
            [strategy_hash, partition, position, taken],
        )

    async def seal(self, stream: str, strategy_hash: str, partitions: Sequence[str], up_to_bin: int) -> int:
        checks.check_integers(up_to_bin=up_to_bin)
        keys = StreamKeys(stream)
        given: list[Argument] = [strategy_hash, up_to_bin, *partitions]
        sealed_bin = await script("seal")(self._redis, [keys.state, keys.base_bins], given)
        return codec.decode_sealed_bin(stream, sealed_bin)

    async def release(self, stream: str, release: Release) -> Reply:
        checks.check_release(release)
        keys = StreamKeys(stream)
        bins = range(release.first_bin, release.last_bin + 1)
        return await self._reply(
            "release",
            [
                *(keys.state, keys.epochs, keys.chain, keys.open_bins, keys.open_windows, keys.untallied),
                *(keys.cells(bin) for bin in bins),
                *(keys.users(bin) for bin in bins),  # of the windows that end with these bins
                *(keys.tile(append.key) for append in release.tiles),
                *map(keys.cells, release.past_bins),
            ],
            [
                *(release.strategy_hash, release.epoch, release.expected_seq, release.expected_head),
                *(release.first_bin, release.last_bin, release.head, release.counter),
                *arguments.of_found(release),
                *release.rows,
                *arguments.tile_arguments(release.tiles),
            ],
        )

    async def put_back(self, stream: str, lost: Restored) -> Reply:
        keys, epoch = StreamKeys(stream), lost.epoch
        record = codec.encode_epoch(epoch.as_begun())
        return await self._reply(
            "put_back",
            [keys.state, keys.epochs, keys.chain, *(keys.tile(append.key) for append in lost.tiles)],
            [
                *(lost.strategy_hash, lost.after_seq, epoch.epoch, record),
                *(str(epoch.last_bin), str(epoch.end_reason), codec.encode_found(epoch.found)),
                len(lost.rows),
                *(part for numbered in lost.rows for part in numbered),
                *arguments.tile_arguments(lost.tiles),
            ],
        )

    async def publish(self, stream: str, seq: int) -> None:
        checks.check_integers(seq=seq)
        keys = StreamKeys(stream)
        await self._reply("publish", [keys.state, keys.visible], [seq])

    async def visible_seq(self, stream: str) -> int:
        [visible] = await batch(self._redis, [("GET", StreamKeys(stream).visible)])
        return int(visible or 0)

    async def forget(self) -> None:
        if self._rewrites:
            await self._files.forget()

    async def hold(
        self, streams: Sequence[str], owner: str, for_ms: int, lost: Sequence[int] = ()
    ) -> list[Reply]:
        calls: list[tuple[list[str], list[Argument]]] = [
            ([StreamKeys(stream).lease], [owner, for_ms, seq])
            for stream, seq in zip(streams, lost or repeat(0), strict=False)
        ]
        return [codec.decode_reply(reply) for reply in await script("hold").each(self._redis, calls)]

    async def attend(self, source: str, alike: str, worker: str, for_ms: int) -> list[str]:
        packed = await script("attend")(self._redis, [workers_key(source, alike)], [worker, for_ms])
        return sorted(msgspec.msgpack.decode(packed or b"\x90", type=list[str]))

    async def operator_counts(self, stream: str) -> dict[str, int]:
        [counts] = await batch(self._redis, [("HGETALL", StreamKeys(stream).operator_counts)])
        return {name.decode(): int(count) for name, count in counts.items()}

    async def rows(self, stream: str, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        asked = ("XRANGE", StreamKeys(stream).chain, f"{after_seq + 1}-0", "+", "COUNT", limit)
        [entries] = await batch(self._redis, [asked])
        return codec.decode_rows(entries)

    async def confirm(self, stream: str) -> None:
        """Return when the configured number of replicas has all earlier writes of a stream."""
        await script("confirm")(self._redis, [StreamKeys(stream).state], [], self._replicas)

    async def witness_rows(
        self, stream: str, strategy: Strategy, after_seq: int, limit: int
    ) -> list[WitnessRow]:
        rows = await self.rows(stream, after_seq, limit)
        if rows and self._replicas:
            # The witness must not know rows that the next primary lacks.
            await self.confirm(stream)
        if strategy.kind.rows_hold_values or not rows:
            return [WitnessRow(seq, row, settings_beside(strategy, row)) for seq, row in rows]
        return await _rows_with_values(self._redis, stream, strategy, rows)

    async def _reply(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply:
        return codec.decode_reply(await script(name)(self._redis, keys, arguments))


async def _rows_with_values(
    redis: RoundTrips, stream: str, strategy: Strategy, rows: Sequence[tuple[int, bytes]]
) -> list[WitnessRow]:
    """Return released rows of a stream together with their values.

    Raises: ConnectionError if the rows changed meanwhile.
    """
    keys = StreamKeys(stream)
    names = codec.fields_of_epochs(sorted({epoch_of(row) for _, row in rows}))
    [fields] = await batch(redis, [("HMGET", keys.epochs, *names)])
    epochs = codec.decode_epochs(codec.present(names, fields))
    try:
        commands = [
            keys.reading(piece)
            for epoch, bin in [place_of(epochs, row) for _, row in rows]
            for table_rows in rows_of_bin(strategy.with_found(epoch).kind, bin)
            for piece in table_rows.slices(epoch.epoch)
        ]
        read = iter(await batch(redis, commands))

        def packed() -> list[WitnessRow]:
            return [witness_row(strategy, epochs, seq, row, lambda piece: next(read)) for seq, row in rows]

        return await asyncio.to_thread(packed)  # wide rows take long to compress; cuts do not wait
    except (LookupError, ValueError):
        # Another worker discarded rows that were released but never visible.
        raise ConnectionError(f"stream {stream}: its last rows changed while they were read") from None
