"""Weighted deltas in every store: exact beyond the whole numbers of doubles, and refused by record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_app.core.records import Cut, Reply
from tests.contracts.conftest import Stores
from tests.contracts.examples import FIRST_BIN, HASH, apply, setting_aside
from tests.contracts.test_ahead import counts
from tests.contracts.test_store import opened

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
