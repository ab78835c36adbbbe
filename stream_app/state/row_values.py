"""Reads from Redis the values of released rows that hold only hashes, for the witness."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stream_app.core.records import WitnessRow
from stream_app.core.releases.row_values import epoch_of, place_of, rows_of_bin, witness_row
from stream_app.core.strategy import Strategy
from stream_app.state import codec
from stream_app.state.connection import batch
from stream_app.state.keys import StreamKeys
from stream_app.state.round_trips import RoundTrips


async def rows_with_values(
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
