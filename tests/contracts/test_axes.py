"""Wide rows of an anticipating stream over keys and values, from sealed cells to readers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dphist import SeededNoise, plan_product
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.kind import values_hash
from stream_app.core.kinds.pages import StoredNoise, part_of_page, read_page
from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.records import GENESIS, Cut, EpochRecord, Reply
from stream_app.core.releases.release import make_release
from stream_app.core.releases.row_values import parted, settings_beside, strategies_in, unpacked
from stream_app.core.store_writes import Apply
from stream_app.core.strategy import Strategy
from tests.contracts.conftest import Stores
from tests.stream_app.declared import FIRST_BIN, strategy_of

pytestmark = pytest.mark.anyio
BINS = 4
# There are more columns than fit beside each other in a tile, so each row lies in three tiles.
PRODUCT = plan_product(BINS, 1, keys=600, buckets=4, release="anticipating", branching=(2, 2))
PLAIN = strategy_of(PRODUCT.time)
STRATEGY = Strategy(PLAIN.stream, PLAIN.declared, kind_of(PRODUCT))
EPOCH = EpochRecord(0, FIRST_BIN, BINS, 1, STRATEGY.hash)


async def test_rows_of_all_columns_are_released_read_back_and_discarded(stores: Stores) -> None:
    store, stream, width = stores.store, stores.stream, STRATEGY.kind.tables[PUBLISHED]
    assert 2 * 1024 < width == PRODUCT.columns
    geometry = STRATEGY.kind.page_geometry()
    pages = list(STRATEGY.kind.draw_pages(SeededNoise(3)))
    for number, page in enumerate(pages):
        await store.write_noise(stream, "drawn", number, page)
    noise = StoredNoise("drawn", len(pages))
    assert await store.open_epoch(stream, STRATEGY.to_json(), EPOCH, GENESIS, noise) == Reply.DONE
    await store.start_partition(stream, STRATEGY.hash, "0", 0)
    cells = np.arange(0, STRATEGY.width, 7)
    bins = FIRST_BIN + cells % BINS
    change = Apply(STRATEGY.hash, "0", 0, 9, FIRST_BIN - 1, None, bins, cells, cells + 1)
    assert await store.apply(stream, change) == Reply.DONE
    await store.take_cuts(stream, STRATEGY.hash, "0", FIRST_BIN - 1, [Cut(FIRST_BIN + BINS - 1, 9)])
    await store.seal(stream, STRATEGY.hash, ["0"], FIRST_BIN + BINS - 1)
    for first, last in ((0, 0), (1, 2)):
        state = await store.load(stream)
        assert state is not None
        counts = await store.read_cells(stream, FIRST_BIN + first, FIRST_BIN + last, STRATEGY.width)
        stored = await store.read_noise(stream, state.noise, 0)
        assert stored is not None
        own = part_of_page(geometry, read_page(geometry, 0, stored), range(first, last + 1))
        release = make_release(state, STRATEGY, counts, SeededNoise(4), "a", own)
        assert await store.release(stream, release) == Reply.DONE
    await store.publish(stream, 2)

    table = np.zeros((BINS, STRATEGY.width), np.int64)
    table[cells % BINS, cells] = cells + 1
    errors = np.vstack([read_page(geometry, number, page).errors for number, page in enumerate(pages)])
    expected = (PRODUCT.columns_of(table.cumsum(axis=0)) << 16) + errors
    held = await stores.reader.tile_rows(stream, 0, PUBLISHED, 0, 2, width)
    assert np.array_equal(held, expected[:2])
    rows = [json.loads(row) for _, row in await stores.reader.rows(stream, 0, 9)]
    assert [row["columns_hash"] for row in rows] == [values_hash(row) for row in expected[:2]]
    kept = await store.witness_rows(stream, STRATEGY, 1, 9)
    assert [row.seq for row in kept] == [2, 3]
    for row, values in zip(kept, expected[1:3], strict=True):
        [block] = unpacked(STRATEGY, EPOCH, row.row, row.values)
        assert (block.table, block.first, block.values.tolist()) == (
            PUBLISHED,
            row.seq - 1,
            [values.tolist()],
        )
    for table_name in (PUBLISHED, "1", "2"):
        with pytest.raises(ValueError, match="are visible"):
            await stores.reader.tile_rows(stream, 0, table_name, 0, 3, width)
    # The third row was never visible. When the chain continues from another head, the row's tiles are
    # deleted.
    record = replace(EPOCH, epoch=1, first_bin=FIRST_BIN + 40, first_seq=9)
    await store.write_noise(stream, "again", 0, b"page")
    again = StoredNoise("again", 1)
    assert await store.open_epoch(stream, STRATEGY.to_json(), record, "f" * 64, again) == Reply.DONE
    held = await stores.reader.tile_rows(stream, 0, PUBLISHED, 0, 2, width)
    assert np.array_equal(held, expected[:2])


async def test_settings_that_are_too_long_for_a_row_are_kept_beside_its_values(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of keys may be long. Builds that know no settings read the values as before."""
    monkeypatch.setattr("stream_app.core.releases.row_values.LARGEST_IN_ROW_BYTES", 100)
    store, stream, pages = stores.store, stores.stream, list(STRATEGY.kind.draw_pages(SeededNoise(3)))
    for number, page in enumerate(pages):
        await store.write_noise(stream, "drawn", number, page)
    noise = StoredNoise("drawn", len(pages))
    assert await store.open_epoch(stream, STRATEGY.to_json(), EPOCH, GENESIS, noise) == Reply.DONE
    await store.start_partition(stream, STRATEGY.hash, "0", 0)
    await store.take_cuts(stream, STRATEGY.hash, "0", FIRST_BIN - 1, [Cut(FIRST_BIN + 1, 0)])
    await store.seal(stream, STRATEGY.hash, ["0"], FIRST_BIN + 1)
    state = await store.load(stream)
    assert state is not None
    geometry = STRATEGY.kind.page_geometry()
    own = part_of_page(geometry, read_page(geometry, 0, pages[0]), range(2))
    counts = np.zeros((2, STRATEGY.width), np.int64)
    release = make_release(state, STRATEGY, counts, SeededNoise(4), "a", own)
    assert await store.release(stream, release) == Reply.DONE
    rows = await store.witness_rows(stream, STRATEGY, 0, 9)
    assert [json.loads(row.row).get("settings", "none") for row in rows] == [None, "none"]
    assert list(strategies_in(rows)) == [STRATEGY]
    assert all(unpacked(STRATEGY, EPOCH, row.row, row.values) for row in rows)
    values, settings = parted(rows[0])
    assert list(strategies_in([rows[0]._replace(values=values)])) == []
    alone = settings_beside(STRATEGY, rows[0].row)  # values that are too large for the witness
    assert parted(rows[0]._replace(values=alone)) == (b"", settings)
    other = rows[0].values.replace(rows[0].values[-9:-4], b"other")
    with pytest.raises(ValueError, match="row 1: its values in the witness are damaged"):
        list(strategies_in([rows[0]._replace(values=other)]))
