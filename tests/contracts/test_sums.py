"""Sums in every store: large deltas exactly, records refused by record, users' records by amount."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dphist.caps import Caps
from stream_app.core.counting.bounding import Bounds, user_fields
from stream_app.core.records import Cut, Reply
from tests.contracts.conftest import Stores
from tests.contracts.examples import FIRST_BIN, HASH, WINDOWS, apply, of_users, setting_aside
from tests.contracts.test_ahead import counts
from tests.contracts.test_store import cut_and_seal, opened
from tests.models.choosing import counted, ids_of

pytestmark = pytest.mark.anyio
LARGEST = 2**53 - 1  # the largest delta that Lua's numbers hold with all smaller ones


async def test_large_deltas_are_added_without_rounding(stores: Stores) -> None:
    await opened(stores)
    for position in range(5):
        change = apply(position, position + 1, [(FIRST_BIN, 0, LARGEST), (FIRST_BIN, 1, LARGEST - position)])
        assert await stores.store.apply(stores.stream, change) == Reply.DONE
    cuts = [Cut(FIRST_BIN, 5)]
    assert await stores.store.take_cuts(stores.stream, HASH, "0", FIRST_BIN - 1, cuts) == Reply.DONE
    assert await counts(stores, FIRST_BIN) == {FIRST_BIN: [5 * LARGEST, 5 * LARGEST - 10, 0]}


async def test_refused_records_are_counted_by_record_and_not_by_weight(stores: Stores) -> None:
    """Three records of weight 10 are set aside; the cut counts one and refuses two."""
    await opened(stores)
    near, far, farther = FIRST_BIN + 3, FIRST_BIN + 40, FIRST_BIN + 50
    rows = [(near, 0, 7), (near, 1, 3), (far, 0, 10), (farther, 0, 4), (farther, 1, 6)]
    change = setting_aside(0, 3, rows)
    assert change.ahead is not None
    change = replace(change, ahead=replace(change.ahead, weight=10))
    assert await stores.store.apply(stores.stream, change) == Reply.DONE
    cuts = [Cut(FIRST_BIN, 3, 2)]
    assert await stores.store.take_cuts(stores.stream, HASH, "0", FIRST_BIN - 1, cuts, 1) == Reply.DONE
    assert (await stores.store.operator_counts(stores.stream))["future"] == 2
    assert await counts(stores, FIRST_BIN + 9) == {near: [7, 3, 0]}


@pytest.mark.parametrize("seed", range(3))
async def test_a_users_records_count_by_amount_up_to_the_cap(stores: Stores, seed: int) -> None:
    """Records of one user in a bin with different amounts are chosen one by one, by the hash of the store."""
    weight, most, rng = 40, 2, random.Random(seed)
    records = [
        (FIRST_BIN + rng.randrange(2), rng.randrange(weight + 1), rng.choice("abcd")) for _ in range(30)
    ]
    await opened(stores)
    await stores.store.apply(stores.stream, of_users(0, 30, records))
    await cut_and_seal(stores, FIRST_BIN + 1)
    bounds = Bounds(Caps(most), weight + 1, weight)
    while await stores.store.tally(stores.stream, HASH, bounds, FIRST_BIN + 1) == Reply.DONE:
        pass
    rows = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 1, 3)
    assert rows.tolist() == by_hand(records, weight, most)
    assert (await stores.store.operator_counts(stores.stream))["over_cap"] == 30 - rows.sum() // weight


def by_hand(records: list[tuple[int, int, str]], weight: int, most: int) -> list[list[int]]:
    """Return the two ends' counts per bin of one key, counted record by record."""
    numbers, room = Counter(records), Counter({user: most for _, _, user in records})
    rows = [[0, 0, 0], [0, 0, 0]]
    for row in (0, 1):
        bin = FIRST_BIN + row
        window = WINDOWS.of(np.array([bin]))
        for user in sorted(room):
            amounts = sorted({amount for at, amount, name in records if (at, name) == (bin, user)})
            ids, places = ids_of([user] * len(amounts), window.repeat(len(amounts)))
            fields = user_fields(ids[places], np.array(amounts, dtype=np.int64))
            own = {name: numbers[bin, amount, user] for name, amount in zip(fields, amounts, strict=True)}
            for amount, number in counted(own, room[user]).items():
                rows[row][0] += number * (weight - amount)
                rows[row][1] += number * amount
                room[user] -= number
    return rows
