"""Mutants that show rows before their public instant. The simulator must catch each of them."""

from __future__ import annotations

from stream_app.loops.publishing import Publisher
from tests.simulator.pipeline import Pipeline


async def _until_none_is_left(publisher: Publisher, last_seq: int) -> None:
    written = -1
    while written < publisher._witnessed_seq:
        written = publisher._witnessed_seq
        await _write(publisher, publisher._released_seq)


class RowsReleasedMeanwhile(Pipeline):
    """A publication goes on for as long as the closer releases rows."""

    wrong = ((Publisher, "_write", _until_none_is_left),)


async def _all_released(publisher: Publisher, last_seq: int) -> None:
    await _write(publisher, publisher._released_seq)


class RowsReleasedSinceTheInstant(Pipeline):
    """A publication chooses its rows when it has renewed the lease, not at its instant."""

    wrong = ((Publisher, "_write", _all_released),)


_write = Publisher._write
