"""The reader of the memory store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from dphist.arrays import Int64Array
from stream_app.core.answers.answered import Missing
from stream_app.core.answers.visible import check_kept, public_state, visible_rows, width_of
from stream_app.core.records import LedgerEntry, PublicState
from stream_app.core.releases.tiles import TileGeometry, join_slices
from stream_app.core.segments.strategies import read_strategies, strategy_of
from stream_app.ports.reader import News, PublicReader
from tests.models.memory_stream import MemoryStream


class MemoryReader(PublicReader):
    """``PublicReader`` over a ``MemoryStore``: visible releases only."""

    def __init__(
        self, streams: Mapping[str, MemoryStream], ledgers: Mapping[str, Sequence[LedgerEntry]]
    ) -> None:
        self._streams = streams
        self.ledgers = ledgers

    async def streams(self) -> tuple[str, ...]:
        return tuple(sorted(self._streams))

    async def public_state(self, stream: str) -> PublicState | None:
        state = self._streams.get(stream)
        if state is None:
            return None
        of_epochs = state.strategy, state.epochs, state.visible_seq, state.history, state.trimmed
        return public_state(*of_epochs, state.halted)

    async def visible_seqs(self, streams: Sequence[str]) -> list[int]:
        known = (self._streams.get(stream) for stream in streams)
        return [state.visible_seq if state else 0 for state in known]

    async def rows(self, stream: str, after_seq: int, limit: int) -> list[tuple[int, bytes]]:
        state = self._streams.get(stream)
        if state is None:
            return []
        visible = (item for item in state.chain.items() if after_seq < item[0] <= state.visible_seq)
        return list(islice(visible, limit))

    async def tile_rows(
        self, stream: str, epoch: int, table: str, first: int, count: int, width: int
    ) -> Int64Array:
        state = self._streams.get(stream)
        if state is None:
            raise LookupError(f"stream {stream!r} was never opened")
        record = next((e for e in state.epochs if e.epoch == epoch), None)
        public = public_state(state.strategy, state.epochs, state.visible_seq, state.history, state.trimmed)
        check_kept(public, Missing(epoch, table, first, count))
        texts = read_strategies(state.strategy)
        visible = visible_rows(strategy_of(texts, record), record, state.visible_seq, table) if record else 0
        if first + count > visible:
            raise ValueError(f"rows {first} to {first + count} of table {table}: {visible} are visible")
        pieces = TileGeometry(width).slices(epoch, table, first, count)
        return join_slices(
            count,
            width,
            (
                (p, bytes(state.tiles[p.key][p.offset_bytes : p.offset_bytes + p.length_bytes]))
                for p in pieces
            ),
        )

    async def news(
        self, stream: str, state: PublicState, after_seq: int, wanted: Sequence[Missing]
    ) -> News | None:
        now = self._streams.get(stream)
        if now is None or now.visible_seq < state.visible_seq:
            return None
        if public_state(now.strategy, now.epochs, state.visible_seq, None, now.trimmed) != state:
            return None
        for one in wanted:
            record = next((epoch for epoch in state.epochs if epoch.epoch == one.epoch), None)
            strategy = strategy_of(state.texts, record) if record else None
            visible = (
                visible_rows(strategy, record, state.visible_seq, one.table) if strategy and record else 0
            )
            if (end := one.first + one.rows) > visible:
                raise ValueError(f"rows {one.first} to {end} of table {one.table}: {visible} are visible")
        tables = [await self.tile_rows(stream, *one, width_of(state, one)) for one in wanted]
        rows = await self.rows(stream, after_seq, state.visible_seq - after_seq)
        return News([row for row in rows if row[0] <= state.visible_seq], tables)

    async def ledger(self, source: str) -> tuple[LedgerEntry, ...]:
        return tuple(self.ledgers.get(source, ()))

    async def alerts(self) -> tuple[dict[str, bytes], dict[str, list[str]]]:
        """Return nothing: ``MemoryAlertStore`` keeps the states of rules."""
        return {}, {}

    async def transitions(self, stream: str) -> list[bytes]:
        """Return nothing: ``MemoryAlertStore`` keeps the transitions."""
        return []

    async def ping(self) -> None:
        """Never fail: memory is there."""
