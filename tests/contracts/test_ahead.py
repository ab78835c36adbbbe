"""What every store promises about records that are set aside because they are dated far ahead.

In these tests a record may be dated one bin ahead (``max_ahead``). The records are dated further ahead than
that, so a cut that is taken on time refuses them. A cut that is taken late accepts some of them. They may
have arrived after later bins had closed, and then they were not too far ahead.
"""

from __future__ import annotations

import pytest

from stream_app.core.records import Cut, Reply
from tests.contracts.conftest import Stores
from tests.contracts.examples import FIRST_BIN, HASH, WIDTH, setting_aside
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
