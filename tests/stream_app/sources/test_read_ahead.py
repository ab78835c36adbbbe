"""Reading ahead changes when a log is read, and nothing of what is read from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import cast

import numpy as np
import pytest

from stream_app.core.incoming import RecordBatch
from stream_app.ports import OperatorError, Source
from stream_app.sources.read_ahead import LEAST_RECORDS, read_ahead

LENGTH = 10 * LEAST_RECORDS


class Log:
    """A log of two partitions. It fails if two reads overlap."""

    def __init__(self, most: int) -> None:
        self.most, self.began = most, list[Mapping[str, int]]()
        self.failure: Exception | None = None
        self.reads = asyncio.Lock()
        self.is_closed = False

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        assert not self.reads.locked()
        async with self.reads:
            self.began.append(positions)
            await asyncio.sleep(0.001)
            if self.failure is not None:
                raise self.failure
            return [
                RecordBatch(name, at, end, np.arange(at, end), {})
                for name, at in positions.items()
                if (end := min(at + self.most, LENGTH)) > at
            ]

    async def close(self) -> None:
        assert not self.reads.locked()
        self.is_closed = True


def of(log: Log) -> Source:
    return read_ahead(cast("Source", log))


async def test_records_come_once_in_their_order_while_the_caller_counts() -> None:
    log, positions, found = Log(1_500), {"0": 0, "1": 4_000}, list[tuple[str, int, int]]()
    source = of(log)
    while batches := await source.read(positions, 0.1):
        found += [(batch.partition, batch.start, batch.end) for batch in batches]
        positions = {**positions, **{batch.partition: batch.end for batch in batches}}
        began = len(log.began)
        await asyncio.sleep(0.01)
        assert len(log.began) == began + 1  # the next read is under way before it is asked for
    for name, first in (("0", 0), ("1", 4_000)):
        edges = [*range(first, LENGTH, 1_500), LENGTH]
        assert [place for one, *place in found if one == name] == [list(pair) for pair in pairwise(edges)]


async def test_few_records_are_followed_by_no_other_read() -> None:
    log = Log(LEAST_RECORDS - 1)
    await of(log).read({"0": 0}, 0.1)
    await asyncio.sleep(0.01)
    assert log.began == [{"0": 0}]


async def test_other_positions_get_their_own_records() -> None:
    """Another worker may have moved a partition, or taken one away."""
    log = Log(LEAST_RECORDS)
    source = of(log)
    for positions in ({"0": 0, "1": 0}, {"0": 3}, {"0": 1_003}, {"0": 17}):
        batches = await source.read(positions, 0.1)
        assert {batch.partition: batch.start for batch in batches} == positions
    await source.close()


async def test_an_error_comes_with_the_read_whose_records_it_is_about() -> None:
    log = Log(LEAST_RECORDS)
    source = of(log)
    [batch] = await source.read({"0": 0}, 0.1)
    log.failure = OperatorError("access.log: it was truncated")
    await asyncio.sleep(0.01)
    with pytest.raises(OperatorError, match="truncated"):
        await source.read({"0": batch.end}, 0.1)
    log.failure = None
    assert [one.start for one in await source.read({"0": batch.end}, 0.1)] == [batch.end]
    await source.close()
    assert log.is_closed


async def test_a_read_that_never_ends_keeps_no_log_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.sources.read_ahead.CLOSE_S", 0.01)
    ended = asyncio.Event()

    class Stuck(Log):
        async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
            while positions["0"] and not ended.is_set():
                with suppress(asyncio.CancelledError):
                    await ended.wait()
            return await super().read(positions, timeout_s)

    log = Stuck(LEAST_RECORDS)
    source = of(log)
    await source.read({"0": 0}, 0.1)
    await asyncio.sleep(0)
    await source.close()
    assert log.is_closed
    ended.set()
