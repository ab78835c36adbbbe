"""What every store promises about records that are set aside because they are dated far ahead.

In these tests a record may be dated one bin ahead (``max_ahead``). The records are dated further ahead than
that, so a cut that is taken on time refuses them. A cut that is taken late accepts some of them. They may
have arrived after later bins had closed, and then they were not too far ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from stream_app.core.counting.bins import LARGEST_APPLY_CELLS
from stream_app.core.records import Cut, PartitionState, Reply
from stream_app.core.store_writes import PartitionCuts
from stream_app.state.connection import batch
from stream_app.state.redis_store import RedisStore
from stream_app.state.taking_cuts import NAMES_PER_SCAN
from tests.contracts.conftest import SERVERS, Servers, Stores, over
from tests.contracts.examples import FIRST_BIN, HASH, WIDTH, apply, setting_aside
from tests.contracts.test_store import loaded, opened

pytestmark = pytest.mark.anyio
FAR = [(FIRST_BIN + 3, 0, 2), (FIRST_BIN + 4, 1, 1), (FIRST_BIN + 6, 2, 5)]
PLACES = [(FIRST_BIN + 3, 0), (FIRST_BIN + 4, 2), (FIRST_BIN + 6, 3)]


async def counts(stores: Stores, last_bin: int) -> dict[int, list[int]]:
    """Cut at the partition's position, seal, and return the exact counts of the bins that are not empty."""
    state = (await loaded(stores)).partitions["0"]
    if state.last_cut_bin < last_bin:
        cuts = [Cut(last_bin, state.position)]
        await stores.store.take_cuts(stores.stream, HASH, "0", state.last_cut_bin, cuts)
    assert await stores.store.seal(stores.stream, HASH, ["0"], last_bin) == last_bin
    found = await stores.store.read_cells(stores.stream, FIRST_BIN, last_bin, WIDTH)
    return {FIRST_BIN + row: cells for row, cells in enumerate(found.tolist()) if any(cells)}


async def cut(stores: Stores, overdue: int) -> Reply:
    cuts = [Cut(FIRST_BIN, 8, overdue)]
    return await stores.store.take_cuts(stores.stream, HASH, "0", FIRST_BIN - 1, cuts, 1)


async def set_aside(stores: Stores) -> None:
    await opened(stores)
    assert await stores.store.apply(stores.stream, setting_aside(0, 8, FAR, PLACES)) == Reply.DONE


async def refused(stores: Stores) -> tuple[int, list[int]]:
    """Return how many records were refused, and those positions of them that the store kept."""
    number = (await stores.store.operator_counts(stores.stream)).get("future", 0)
    return number, await stores.store.refused_ahead(stores.stream, "0", 100)


async def test_a_record_set_aside_delays_no_position_and_is_in_no_cell_yet(stores: Stores) -> None:
    await set_aside(stores)
    assert (await loaded(stores)).partitions["0"].position == 8
    assert await refused(stores) == (0, [])


async def test_a_cut_at_its_instant_refuses_it(stores: Stores) -> None:
    await set_aside(stores)
    assert await cut(stores, 0) == Reply.DONE
    assert await refused(stores) == (8, [0, 2, 3])
    assert await counts(stores, FIRST_BIN + 9) == {}


async def test_a_late_cut_accepts_what_its_open_bin_allows(stores: Stores) -> None:
    await set_aside(stores)
    assert await cut(stores, 2) == Reply.DONE
    assert await refused(stores) == (5, [3])
    assert await counts(stores, FIRST_BIN + 9) == {FIRST_BIN + 3: [2, 0, 0], FIRST_BIN + 4: [0, 1, 0]}


async def test_a_record_set_aside_is_decided_once(stores: Stores) -> None:
    await set_aside(stores)
    assert [await cut(stores, 2), await cut(stores, 2)] == [Reply.DONE, Reply.ALREADY]
    again = setting_aside(0, 8, FAR, PLACES)
    assert await stores.store.apply(stores.stream, again) == Reply.ALREADY
    later = [Cut(FIRST_BIN + 1, 8, 9)]
    assert await stores.store.take_cuts(stores.stream, HASH, "0", FIRST_BIN, later, 1) == Reply.DONE
    assert await refused(stores) == (5, [3])
    assert await counts(stores, FIRST_BIN + 9) == {FIRST_BIN + 3: [2, 0, 0], FIRST_BIN + 4: [0, 1, 0]}


async def test_a_cut_that_conflicts_decides_nothing(stores: Stores) -> None:
    await set_aside(stores)
    wrong = [Cut(FIRST_BIN + 1, 8, 9)]
    taken = await stores.store.take_cuts(stores.stream, HASH, "0", FIRST_BIN, wrong, 1)
    assert taken == Reply.CONFLICT
    assert await refused(stores) == (0, [])
    assert await cut(stores, 0) == Reply.DONE
    assert await refused(stores) == (8, [0, 2, 3])


async def test_refused_places_stay_until_their_letters_are_written(stores: Stores) -> None:
    await set_aside(stores)
    await cut(stores, 0)
    assert await stores.store.refused_ahead(stores.stream, "0", 2) == [0, 2]
    for _ in range(2):  # a worker that read the positions before may repeat its call
        await stores.store.forget_refused(stores.stream, "0", [0, 2])
        assert await stores.store.refused_ahead(stores.stream, "0", 10) == [3]
    await stores.store.forget_refused(stores.stream, "0", [0, 2, 3])
    assert await stores.store.refused_ahead(stores.stream, "0", 10) == []


# -- cuts of several partitions in one call: each is decided by itself

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


# -- while a script runs, Redis serves nobody: the tests count commands instead of time. Names are scanned a
# few at a time, in separate calls, and the script that decides does not grow with the refused records.

PARTS = 8  # each with as many names as one call may set aside
_WHOLE_HASH = {"hgetall", "hkeys", "hvals"}  # a single such command would read everything that is set aside


@pytest.fixture(params=SERVERS)
async def real_stores(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[Stores]:
    async with over(servers[request.param]) as stores:
        yield stores


async def commands_run(stores: Stores) -> Counter[str]:
    """Return how often each command was run so far, also inside scripts."""
    assert isinstance(stores.store, RedisStore)
    [told] = await batch(stores.store.connection, [("INFO", "commandstats")])
    return Counter({name.removeprefix("cmdstat_"): stat["calls"] for name, stat in told.items()})


async def set_far_aside(stores: Stores, parts: int) -> None:
    """Set aside records at ``FAR``, and then many more that are dated further ahead."""
    await opened(stores)
    assert await stores.store.apply(stores.stream, setting_aside(0, 8, FAR)) == Reply.DONE
    for part in range(parts):
        names = [
            (FIRST_BIN + 1_000 + number // WIDTH, number % WIDTH, 1)
            for number in range(part * LARGEST_APPLY_CELLS, (part + 1) * LARGEST_APPLY_CELLS)
        ]
        change = setting_aside(8 + part, 9 + part, names)
        assert await stores.store.apply(stores.stream, change) == Reply.DONE


async def commands_of_a_late_cut(stores: Stores, parts: int) -> Counter[str]:
    """Set records aside, and return the commands of the cut that decides about them."""
    anew = Stores(stores.store, stores.reader, f"{stores.stream}-{parts}")
    await set_far_aside(anew, parts)
    before = await commands_run(anew)
    cuts = [Cut(FIRST_BIN, 8 + parts, 2)]
    assert await anew.store.take_cuts(anew.stream, HASH, "0", FIRST_BIN - 1, cuts, 1) == Reply.DONE
    after = await commands_run(anew)
    after.subtract(before)
    assert await refused(anew) == (5 + parts * LARGEST_APPLY_CELLS, [])
    assert await counts(anew, FIRST_BIN + 9) == {FIRST_BIN + 3: [2, 0, 0], FIRST_BIN + 4: [0, 1, 0]}
    return +after


async def test_a_late_cut_looks_at_few_names_in_each_script(real_stores: Stores) -> None:
    few, many = [await commands_of_a_late_cut(real_stores, parts) for parts in (0, PARTS)]
    assert not _WHOLE_HASH & many.keys()
    # Each call scans about this many names. Names lie unevenly, so a call may scan twice as many.
    assert many["hscan"] >= PARTS * LARGEST_APPLY_CELLS / (2 * NAMES_PER_SCAN)
    scripts = {name: many[name] - few[name] for name in many if name in ("eval", "evalsha")}
    assert sum(scripts.values()) == many["hscan"] - few["hscan"]
    # All other commands are the same, however much is set aside.
    beside = {"hscan", "eval", "evalsha", "info"}
    assert {name: calls for name, calls in many.items() if name not in beside} == {
        name: calls for name, calls in few.items() if name not in beside
    }
