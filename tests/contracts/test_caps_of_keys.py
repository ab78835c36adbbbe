"""Every store keeps caps on a user's keys, by that user's records alone, and as the rule of choosing says."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import pytest

from dphist.caps import Caps
from stream_app.core.counting.bounding import Bounds
from stream_app.core.records import Cut, Reply
from stream_app.state.connection import execute
from tests.contracts.conftest import Stores
from tests.contracts.examples import FIRST_BIN, HASH, WINDOWS, of_users
from tests.contracts.test_cap import LAST, Records, by_rule, names_of
from tests.contracts.test_store import cut_and_seal, opened
from tests.models.memory import MemoryStore

pytestmark = pytest.mark.anyio
COLUMNS = 30
CAPS = [Caps(3), Caps(None, 2, 1), Caps(None, 1, 3), Caps(4, 3, 2), Caps(5, 9, 9), Caps(None, 14, 2)]


@dataclass(frozen=True)
class Outcome:
    """The counts per bin and column of a log, and how many of its records do not count."""

    counts: list[list[int]]
    over_cap: int


async def tallied(stores: Stores, bounds: Bounds, last_bin: int) -> None:
    """Choose the users' records that count, up to a bin."""
    reply = Reply.DONE
    while reply is Reply.DONE:
        reply = await stores.store.tally(stores.stream, HASH, bounds, last_bin)
    assert reply is Reply.ALREADY


async def counts(stores: Stores, bounds: Bounds, last_bin: int) -> Outcome:
    """Seal up to a bin, tally, and return the outcome of all bins up to it."""
    await cut_and_seal(stores, last_bin)
    await tallied(stores, bounds, last_bin)
    rows = await stores.store.read_cells(stores.stream, FIRST_BIN, last_bin, COLUMNS)
    return Outcome(rows.tolist(), (await stores.store.operator_counts(stores.stream)).get("over_cap", 0))


def log_of(seed: int, bins: int = 4, records: int = 200) -> Records:
    """Return contacts: users with heavy-tailed numbers of records, each with favourite columns."""
    rng = random.Random(seed)
    people = [f"user {int(rng.paretovariate(0.8)) % 40}" for _ in range(records)]
    return [
        (FIRST_BIN + rng.randrange(bins), int(rng.paretovariate(0.6) - 1) % COLUMNS, user) for user in people
    ]


def check_caps(records: Records, caps: Caps, counted: Counter[tuple[int, int, str]]) -> None:
    """Check one by one that no user counts more than the caps in a window, and nothing that is not there."""
    assert not counted - Counter(records)
    of_keys: dict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    for (bin, place, user), number in counted.items():
        of_keys[int(WINDOWS.of(np.array([bin]))[0]), user][place] += number
    for keys in of_keys.values():
        assert caps.max_events is None or keys.total() <= caps.max_events
        assert caps.max_keys is None or len(keys) <= caps.max_keys
        assert caps.max_per_key is None or max(keys.values()) <= caps.max_per_key


async def applied(stores: Stores, records: Records, rng: random.Random | None = None) -> None:
    """Open the stream and apply the records, in slices; with ``rng`` shuffled and over two partitions."""
    await opened(stores)
    await stores.store.start_partition(stores.stream, HASH, "1", 0)
    rows, ends = list(records), {"0": 0, "1": 0}
    if rng is not None:
        rng.shuffle(rows)
    for first in range(0, len(rows), 20):
        partition = "0" if rng is None else rng.choice("01")
        part = rows[first : first + 20]
        change = of_users(ends[partition], ends[partition] + len(part), part, partition=partition)
        assert await stores.store.apply(stores.stream, change) == Reply.DONE
        ends[partition] += len(part)
    cuts = [Cut(FIRST_BIN + 3, ends["1"])]
    await stores.store.take_cuts(stores.stream, HASH, "1", FIRST_BIN - 1, cuts)


@pytest.mark.parametrize("caps", CAPS, ids=str)
async def test_counts_are_those_of_the_rule(stores: Stores, caps: Caps) -> None:
    records, bounds = log_of(1), Bounds(caps)
    await applied(stores, records)
    outcome = await counts(stores, bounds, LAST)
    assert outcome.counts == by_rule(records, bounds, COLUMNS)
    assert outcome.over_cap + sum(map(sum, outcome.counts)) == len(records)
    assert outcome.over_cap > 0


@pytest.mark.parametrize("seed", range(4))
async def test_neither_order_nor_partitions_nor_other_users_choose(stores: Stores, seed: int) -> None:
    """Each user's own log, counted alone, adds up to the counts of all."""
    records, bounds, rng = log_of(seed + 5), Bounds(CAPS[seed]), random.Random(seed)
    await applied(stores, records, rng)
    outcome = await counts(stores, bounds, LAST)
    alone = np.zeros((4, COLUMNS), dtype=np.int64)
    for user in sorted({user for _, _, user in records}):
        own = Stores(stores.store, stores.reader, f"{stores.stream} of {user}")
        of_user = [record for record in records if record[2] == user]
        await applied(own, of_user)
        rows = (await counts(own, bounds, LAST)).counts
        alone += np.array(rows)
        counted = Counter(
            {
                (FIRST_BIN + row, place, user): number
                for row, row_counts in enumerate(rows)
                for place, number in enumerate(row_counts)
                if number
            }
        )
        check_caps(of_user, bounds.caps, counted)
    assert outcome.counts == alone.tolist()


async def test_a_new_window_counts_new_keys(stores: Stores) -> None:
    await opened(stores)
    records = [(LAST, 0, "ann"), (LAST, 0, "ann"), (LAST + 1, 1, "ann"), (LAST + 2, 2, "ann")]
    await stores.store.apply(stores.stream, of_users(0, 4, records))
    outcome = await counts(stores, Bounds(Caps(None, 1, 1)), LAST + 2)
    assert [(sum(row), row.index(1)) for row in outcome.counts[-3:-1]] == [(1, 0), (1, 1)]
    assert sum(outcome.counts[-1]) == 0


async def test_a_key_that_counts_already_comes_before_new_ones(stores: Stores) -> None:
    await opened(stores)
    records = [(FIRST_BIN, 7, "ann"), *((FIRST_BIN + 1, place, "ann") for place in range(COLUMNS))]
    await stores.store.apply(stores.stream, of_users(0, len(records), records))
    rows = (await counts(stores, Bounds(Caps(2, 2, 2)), FIRST_BIN + 1)).counts
    assert rows[0][7] == rows[1][7] == 1
    assert sum(rows[1]) == 1


async def test_a_user_with_a_record_a_bin_uses_the_caps_up(stores: Stores) -> None:
    await opened(stores)
    records = [(FIRST_BIN + bin, place, "ann") for bin, place in enumerate([4, 5, 6, 4])]
    await stores.store.apply(stores.stream, of_users(0, 4, records))
    rows = (await counts(stores, Bounds(Caps(3, 4, 2)), LAST)).counts
    assert [sum(row) for row in rows] == [1, 1, 1, 0]


@pytest.mark.parametrize("places", [2, 5])
async def test_buckets_of_a_key_share_its_caps(stores: Stores, places: int) -> None:
    await opened(stores)
    records = [(FIRST_BIN + bin, place, "ann") for bin in range(2) for place in range(COLUMNS)]
    await stores.store.apply(stores.stream, of_users(0, len(records), records))
    rows = (await counts(stores, Bounds(Caps(None, 3, 2), key_places=places), FIRST_BIN + 1)).counts
    totals = np.array(rows).sum(axis=0).reshape(-1, places).sum(axis=1)
    assert sorted(totals[totals > 0].tolist()) == [2, 2, 2]
    assert rows == by_rule(records, Bounds(Caps(None, 3, 2), key_places=places), COLUMNS)


@pytest.mark.parametrize("caps", [Caps(1), Caps(None, 1, 1)])
async def test_no_key_is_favoured(stores: Stores, caps: Caps) -> None:
    """If each user has one record in each of three keys, about a third of the records counts in each."""
    await opened(stores)
    records = [(FIRST_BIN, place, f"user {number}") for number in range(600) for place in range(3)]
    await stores.store.apply(stores.stream, of_users(0, len(records), records))
    [row] = (await counts(stores, Bounds(caps), FIRST_BIN)).counts
    assert sum(row) == 600
    assert min(row[:3]) > 140  # five standard deviations below 200 are 142


async def test_many_keys_of_a_user_are_kept_over_bins(stores: Stores) -> None:
    """A user's keys fill several pages; each of them is known again in a later bin."""
    await opened(stores)
    first = [(FIRST_BIN, place, "ann") for place in range(20)]
    again = [(FIRST_BIN + 1, place, "ann") for place in range(COLUMNS)]
    await stores.store.apply(stores.stream, of_users(0, 50, [*first, *again]))
    rows = (await counts(stores, Bounds(Caps(None, 20, 2)), FIRST_BIN + 1)).counts
    assert rows == [[1] * 20 + [0] * 10] * 2


async def test_what_is_kept_of_a_user_is_small(stores: Stores) -> None:
    if isinstance(stores.store, MemoryStore):
        return
    await opened(stores)
    records = [(FIRST_BIN, place, f"user {n}") for place in range(10) for n in range(100)]
    await stores.store.apply(stores.stream, of_users(0, 1000, records))
    await counts(stores, Bounds(Caps(None, 10, 1)), FIRST_BIN)
    client = stores.store.connection
    [key] = await names_of(client, f"dp:{{{stores.stream}}}:sec:users:*")
    held = await execute(client, "HGETALL", key)
    pages = {name: value for name, value in held.items() if name != b"key mark"}
    assert len(pages) == 200
    assert sum(len(name) + len(value) for name, value in pages.items()) == 100 * (16 + 13 + 17 + 9)
