"""Rows of the witness return to a store that lost them: once, in order, and only where rows are missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.records import GENESIS, Reply
from stream_app.core.releases.restored import Restored
from stream_app.core.releases.tiles import tile_appends
from stream_app.core.store_writes import TileAppend
from tests.contracts.conftest import Stores
from tests.contracts.examples import BINS, EPOCH, FIRST_BIN, HASH, NEXT_EPOCH, TEXT, WIDTH
from tests.contracts.test_store import loaded, shown
from tests.contracts.test_store import release as release_bins

pytestmark = pytest.mark.anyio


def lost(first: int, count: int, **changed: object) -> Restored:
    """Return the rows of the first epoch to put back, numbered from 1."""
    values = np.arange(first, first + count, dtype=np.int64)[:, None] * np.ones(WIDTH, np.int64)
    last_bin = FIRST_BIN + first + count - 2
    step = Restored(
        strategy_hash=HASH,
        after_seq=first - 1,
        rows=[(seq, b"row %d" % seq) for seq in range(first, first + count)],
        tiles=tile_appends(0, PUBLISHED, first - 1, values),
        epoch=replace(EPOCH, last_bin=last_bin, end_reason="complete" if count == BINS else "early"),
    )
    return replace(step, **changed)  # type: ignore[arg-type]


async def emptied(stores: Stores) -> None:
    """Open an epoch later than the first one, as a worker does after the store lost everything."""
    assert await stores.store.open_epoch(stores.stream, TEXT, NEXT_EPOCH, "e" * 64) == Reply.DONE
    assert await stores.store.start_partition(stores.stream, HASH, "0", 0) == Reply.DONE


async def read(stores: Stores) -> tuple[list[tuple[int, bytes]], list[tuple[int, int | None, str | None]]]:
    await stores.store.publish(stores.stream, BINS)
    state = await shown(stores)
    rows = await stores.reader.rows(stores.stream, 0, 100)
    return rows, [(e.epoch, e.last_bin, e.end_reason) for e in state.epochs]


@pytest.mark.parametrize("without_rows", [0, 1])
async def test_rows_tiles_and_the_end_of_their_epoch_are_back(stores: Stores, without_rows: int) -> None:
    """Args: without_rows, epochs between that the worker of a shorter witness had opened."""
    await emptied(stores)
    if without_rows:
        later = replace(NEXT_EPOCH, epoch=2)
        assert await stores.store.open_epoch(stores.stream, TEXT, later, "e" * 64) == Reply.DONE
    for step in (lost(1, 1), lost(2, 3)):
        assert await stores.store.put_back(stores.stream, step) == Reply.DONE
        assert await stores.store.put_back(stores.stream, step) == Reply.ALREADY
        _, [first, *_] = await read(stores)  # a reader that looks between two steps sees the next one, too
        assert first == (0, step.epoch.last_bin, "early")
    rows, epochs = await read(stores)
    assert rows == [(seq, b"row %d" % seq) for seq in range(1, BINS + 1)]
    assert epochs[0] == (0, FIRST_BIN + BINS - 1, "early")
    assert epochs[-1] == (1 + without_rows, None, None)
    values = await stores.reader.tile_rows(stores.stream, 0, PUBLISHED, 0, BINS, WIDTH)
    assert values[:, 0].tolist() == [1, 2, 3, 4]
    await release_bins(stores, 1)
    assert (await loaded(stores)).seq == BINS + 1


@pytest.mark.parametrize(
    ("step", "reply"),
    [
        (lost(2, 1), Reply.CONFLICT),  # the row before is not there
        (lost(1, 4, strategy_hash="0" * 64), Reply.STRATEGY),
        (lost(1, 4, epoch=replace(NEXT_EPOCH, last_bin=20, end_reason="x")), Reply.CONFLICT),  # it runs
        (lost(1, 4, rows=[(seq, b"x") for seq in (1, 2, 3, BINS + 1)]), Reply.CONFLICT),  # it follows them
        (lost(1, 4, tiles=[TileAppend(lost(1, 1).tiles[0].key, 8, b"12345678")]), Reply.CONFLICT),
    ],
)
async def test_refused_rows_change_nothing(stores: Stores, step: Restored, reply: Reply) -> None:
    assert await stores.store.put_back(stores.stream, lost(1, 1)) == Reply.CONFLICT  # it was never opened
    await emptied(stores)
    assert await stores.store.put_back(stores.stream, step) == reply
    assert await stores.store.rows(stores.stream, 0, 100) == []
    assert await stores.store.put_back(stores.stream, lost(1, BINS)) == Reply.DONE


async def test_no_row_is_put_back_once_the_epoch_has_released(stores: Stores) -> None:
    await emptied(stores)
    await release_bins(stores, 1)
    before = await stores.store.rows(stores.stream, 0, 100)
    assert await stores.store.put_back(stores.stream, lost(1, BINS)) == Reply.CONFLICT
    assert await stores.store.rows(stores.stream, 0, 100) == before


async def test_put_back_replaces_rows_that_nobody_saw(stores: Stores) -> None:
    """A restored store has released rows that nobody saw. The witness has other rows with the same seqs."""
    store, stream = stores.store, stores.stream
    assert await store.open_epoch(stream, TEXT, EPOCH, GENESIS) == Reply.DONE
    assert await store.start_partition(stream, HASH, "0", 0) == Reply.DONE
    await release_bins(stores, 3)
    await store.publish(stream, 1)
    assert await store.open_epoch(stream, TEXT, NEXT_EPOCH, "e" * 64) == Reply.DONE
    [(_, seen)] = await store.rows(stream, 0, 100)
    tile = tile_appends(0, PUBLISHED, 1, np.ones((3, WIDTH), np.int64))
    assert await store.put_back(stream, lost(2, 3, tiles=tile)) == Reply.DONE
    others = [(seq, b"row %d" % seq) for seq in range(2, BINS + 1)]
    assert await store.rows(stream, 0, 100) == [(1, seen), *others]
