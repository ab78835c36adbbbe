"""What every store promises about cuts of several partitions in one call: each is decided by itself."""

from __future__ import annotations

import pytest

from stream_app.core.records import Cut, PartitionCuts, PartitionState, Reply
from tests.contracts.conftest import Stores
from tests.contracts.examples import FIRST_BIN, HASH, apply
from tests.contracts.test_ahead import counts, refused, set_aside
from tests.contracts.test_store import loaded, opened

pytestmark = pytest.mark.anyio
LAST = FIRST_BIN - 1


def cuts(partition: str, position: int, last: int = LAST, overdue: int = 0) -> PartitionCuts:
    return PartitionCuts(partition, last, [Cut(FIRST_BIN, position, overdue)], max_ahead_bins=1)


async def together(stores: Stores, *taken: PartitionCuts) -> list[Reply]:
    return await stores.store.take_cuts_together(stores.stream, HASH, taken)


async def test_each_partition_gets_its_own_answer(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(stores.stream, apply(0, 5))
    await stores.store.start_partition(stores.stream, HASH, "1", 3)
    calls = [cuts("0", 4), cuts("1", 7), cuts("2", 9), cuts("3", 1, last=LAST - 1)]
    first = await together(stores, *calls)
    assert first == [Reply.CONFLICT, Reply.DONE, Reply.DONE, Reply.CONFLICT]
    known = (await loaded(stores)).partitions
    assert known.keys() == {"0", "1", "2"}
    assert known["0"] == PartitionState(5, LAST)
    assert known["1"] == PartitionState(3, LAST, (Cut(FIRST_BIN, 7),))
    assert known["2"] == PartitionState(0, LAST, (Cut(FIRST_BIN, 9),))
    again = await together(stores, *calls)
    assert again == [Reply.CONFLICT, Reply.ALREADY, Reply.ALREADY, Reply.CONFLICT]
    assert await together(stores, cuts("1", 8), cuts("0", 6)) == [Reply.CONFLICT, Reply.DONE]
    alone = await stores.store.take_cuts(stores.stream, HASH, "2", LAST, [Cut(FIRST_BIN, 9)])
    assert alone == Reply.ALREADY


async def test_a_late_cut_of_records_set_aside_waits_for_a_call_of_its_own(stores: Stores) -> None:
    await set_aside(stores)
    late, other = cuts("0", 8, overdue=2), cuts("1", 7, overdue=2)
    assert await together(stores, late, other) == [Reply.SET_ASIDE, Reply.DONE]
    assert await refused(stores) == (0, [])
    assert (await loaded(stores)).partitions["0"] == PartitionState(8, LAST)
    call = "0", LAST, late.cuts, late.max_ahead_bins
    assert await stores.store.take_cuts(stores.stream, HASH, *call) == Reply.DONE
    assert await refused(stores) == (5, [3])
    assert await together(stores, late, other) == [Reply.ALREADY] * 2


async def test_a_cut_at_its_instant_refuses_records_set_aside(stores: Stores) -> None:
    await set_aside(stores)
    assert await together(stores, cuts("0", 8), cuts("0", 8)) == [Reply.DONE, Reply.ALREADY]
    assert await refused(stores) == (8, [0, 2, 3])
    assert await counts(stores, FIRST_BIN + 9) == {}


async def test_other_settings_take_no_cut_of_any_partition(stores: Stores) -> None:
    calls = [cuts("0", 4), cuts("1", 7)]
    assert await together(stores, *calls) == [Reply.CONFLICT] * 2  # the stream is not open
    await opened(stores)
    store, stream = stores.store, stores.stream
    assert await store.take_cuts_together(stream, "0" * 64, calls) == [Reply.STRATEGY] * 2
    assert (await loaded(stores)).partitions["0"] == PartitionState(0, LAST)


async def test_one_impossible_cut_is_an_error_before_any_is_taken(stores: Stores) -> None:
    await opened(stores)
    with pytest.raises(ValueError, match="take_cuts: no cut given"):
        await together(stores, cuts("0", 4), PartitionCuts("1", LAST, []))
    assert (await loaded(stores)).partitions["0"] == PartitionState(0, LAST)
