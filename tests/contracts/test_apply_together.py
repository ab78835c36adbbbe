"""What every store promises about changes of several partitions in one call: each is decided by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from stream_app.core.counting.bins import LARGEST_APPLY_CELLS
from stream_app.core.records import Cut, Origin, PartitionState, Reply
from stream_app.core.store_writes import Apply
from tests.contracts.conftest import Stores
from tests.contracts.examples import FIRST_BIN, HASH, apply, setting_aside
from tests.contracts.test_store import loaded, opened

pytestmark = pytest.mark.anyio
LAST = FIRST_BIN - 1
PARTITIONS = ("0", "1", "2")


async def together(stores: Stores, *changes: Apply, strategy_hash: str = HASH) -> list[Reply]:
    return list(await stores.store.apply_together(stores.stream, strategy_hash, 0, changes))


async def counts(stores: Stores) -> list[list[int]]:
    """Return the counts of the first two bins, once both are sealed."""
    last = FIRST_BIN + 1
    for name, state in (await loaded(stores)).partitions.items():
        cut = Cut(last, state.position)
        assert (
            await stores.store.take_cuts(stores.stream, HASH, name, state.last_cut_bin, [cut]) == Reply.DONE
        )
    assert await stores.store.seal(stores.stream, HASH, PARTITIONS, last) == last
    cells = await stores.store.read_cells(stores.stream, FIRST_BIN, last, 2)
    return cast("list[list[int]]", cells.tolist())


async def started(stores: Stores) -> None:
    await opened(stores)
    for name in PARTITIONS:
        await stores.store.start_partition(stores.stream, HASH, name, 0)


async def test_each_change_gets_its_own_answer_and_a_repeated_call_counts_once(stores: Stores) -> None:
    await started(stores)
    changes = [
        apply(0, 5, [(FIRST_BIN, 0, 3), (FIRST_BIN + 1, 1, 1)]),
        apply(2, 4, [(FIRST_BIN, 1, 7)], partition="1"),  # away from the position
        apply(0, 4, [(FIRST_BIN, 1, 7)], partition="1", last_cut_bin=LAST - 1),  # outdated cuts
        apply(0, 9, [(FIRST_BIN, 1, 2)], partition="2"),
        apply(9, 12, [(FIRST_BIN, 1, 4)], partition="2"),  # the next records of the same partition
        apply(0, 1, partition="unknown"),
    ]
    wanted = [Reply.DONE, Reply.CONFLICT, Reply.CUTS_CHANGED, Reply.DONE, Reply.DONE, Reply.CONFLICT]
    assert await together(stores, *changes) == wanted
    again = await together(stores, *changes)
    assert again == [
        Reply.ALREADY,
        Reply.CONFLICT,
        Reply.CUTS_CHANGED,
        Reply.CONFLICT,
        Reply.ALREADY,
        wanted[-1],
    ]
    known = (await loaded(stores)).partitions
    assert known == {name: PartitionState(at, LAST) for name, at in zip(PARTITIONS, (5, 0, 12), strict=True)}
    assert await counts(stores) == [[3, 6], [0, 1]]


async def test_a_change_that_is_refused_refuses_the_next_one_of_its_partition(stores: Stores) -> None:
    await started(stores)
    refused = apply(0, 5, [(FIRST_BIN, 0, 3)], last_cut_bin=LAST - 1)
    follows = apply(5, 6, [(FIRST_BIN, 0, 1)])
    assert await together(stores, refused, follows) == [Reply.CUTS_CHANGED, Reply.CONFLICT]
    assert (await loaded(stores)).partitions["0"].position == 0


async def test_rows_of_an_engine_close_bins_in_the_step_that_counts_them(stores: Stores) -> None:
    await started(stores)
    origins = Origin(0, 1, 2, None), Origin(2, 0, 2**62, 77)
    closes = replace(apply(0, 5, [(FIRST_BIN, 0, 3)]), origins=origins[:1], closes_bin=FIRST_BIN)
    follows = replace(apply(5, 6, [(FIRST_BIN + 1, 1, 2)], last_cut_bin=FIRST_BIN), origins=origins)
    assert await together(stores, closes, follows) == [Reply.DONE] * 2
    assert await together(stores, closes, follows) == [Reply.CONFLICT, Reply.ALREADY]
    assert (await loaded(stores)).partitions["0"] == PartitionState(6, FIRST_BIN, origins=origins)
    outdated = replace(apply(6, 9, [(FIRST_BIN, 0, 1)]), origins=origins)
    assert await together(stores, outdated) == [Reply.CUTS_CHANGED]
    assert await stores.store.seal(stores.stream, HASH, PARTITIONS[:1], FIRST_BIN) == LAST, "others wait"
    for name in PARTITIONS[1:]:
        change = replace(apply(0, 1, partition=name), origins=origins, closes_bin=FIRST_BIN + 1)
        assert await together(stores, change) == [Reply.DONE]
    assert await stores.store.seal(stores.stream, HASH, PARTITIONS, FIRST_BIN + 1) == FIRST_BIN


async def test_streams_apply_the_same_changes_under_their_own_strategy(stores: Stores) -> None:
    await started(stores)
    shared = [replace(apply(0, 5), strategy_hash=""), replace(apply(0, 5, partition="1"), strategy_hash="")]
    assert await together(stores, *shared, strategy_hash="0" * 64) == [Reply.STRATEGY] * 2
    assert await stores.store.apply_together(f"{stores.stream}-new", HASH, 0, shared) == [Reply.CONFLICT] * 2
    assert await stores.store.apply_together(stores.stream, HASH, 1, shared) == [Reply.CONFLICT] * 2
    assert await together(stores, *shared) == [Reply.DONE] * 2


async def test_records_are_set_aside_beside_changes_that_count(stores: Stores) -> None:
    await started(stores)
    far = setting_aside(0, 4, [(FIRST_BIN + 9, 0, 2)], [(FIRST_BIN + 9, 1)])
    assert await together(stores, far, apply(0, 5, [(FIRST_BIN, 1, 2)], partition="1")) == [Reply.DONE] * 2
    assert await counts(stores) == [[0, 2], [0, 0]]


async def test_cells_of_all_changes_together_are_limited(stores: Stores) -> None:
    await started(stores)
    half = [(FIRST_BIN + place, 0, 1) for place in range(LARGEST_APPLY_CELLS // 2 + 1)]
    with pytest.raises(ValueError, match="divide it"):
        await together(stores, apply(0, 5, half), apply(0, 5, half, partition="1"))
