"""A user with records in very many cells of a bin holds up no other stream, and counts as any other user."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import numpy as np
import pytest
from redis.asyncio import Redis

from dphist.caps import Caps
from stream_app.core.counting.bins import LARGEST_APPLY_CELLS
from stream_app.core.counting.bounding import ID_BYTES, LARGEST_TRIMMED_CAP, MOST_AMOUNTS, Bounds, user_fields
from stream_app.core.records import Cut, Reply
from stream_app.state import checks
from stream_app.state.reader import RedisReader
from stream_app.state.redis_store import RedisStore
from tests.contracts.conftest import Servers, Stores
from tests.contracts.examples import FIRST_BIN, HASH, of_users, setting_users_aside
from tests.contracts.servers import server_paths
from tests.contracts.test_store import cut_and_seal, opened
from tests.models.choosing import chosen
from tests.models.memory import MemoryStore

pytestmark = pytest.mark.anyio

MANY = 40_000
CAP = 50
FAR = FIRST_BIN + 3  # too far ahead for a cut on time
HEADER_BYTES, ENTRY_BYTES = 4, 24  # of a shard (waiting.lua)
FEW_PLACES = Bounds(Caps(CAP))  # as if no user could have many cells: one script reads all of them
MANY_PLACES = Bounds(Caps(CAP), places=MANY)
Records = Sequence[tuple[int, int, str]]  # (bin, cell, user)


@dataclass(frozen=True)
class Tallied:
    """What a tally has counted, and how many calls it took."""

    cells: dict[int, int]
    over_cap: int
    calls: int


async def tallied(stores: Stores, records: Records, bounds: Bounds, width: int) -> Tallied:
    """Count users' records of one bin, seal and tally it."""
    await opened(stores)
    step = LARGEST_APPLY_CELLS
    for start in range(0, len(records), step):
        stop = min(start + step, len(records))
        change = replace(of_users(start, stop, records[start:stop]), waiting=bounds.waiting)
        assert await stores.store.apply(stores.stream, change) == Reply.DONE
    return await sealed_and_tallied(stores, FIRST_BIN, bounds, width)


async def sealed_and_tallied(stores: Stores, bin: int, bounds: Bounds, width: int) -> Tallied:
    await cut_and_seal(stores, bin)
    calls = 0
    while await stores.store.tally(stores.stream, HASH, bounds, bin) == Reply.DONE:
        calls += 1
    [counts] = await stores.store.read_cells(stores.stream, bin, bin, width)
    cells = np.flatnonzero(counts).tolist()
    over = (await stores.store.operator_counts(stores.stream)).get("over_cap", 0)
    return Tallied({cell: int(counts[cell]) for cell in cells}, over, calls)


async def accepted_late(stores: Stores, direct: Records, aside: Records, bounds: Bounds) -> None:
    """Count users' records of bin FAR, set others aside, and take a late cut that accepts these."""
    await opened(stores)
    position, step = 0, LARGEST_APPLY_CELLS
    for records, change_of in ((direct, of_users), (aside, setting_users_aside)):
        for start in range(0, len(records), step):
            part = records[start : start + step]
            change = change_of(position, position + len(part), part)
            change = replace(change, waiting=bounds.waiting)
            assert await stores.store.apply(stores.stream, change) == Reply.DONE
            position += len(part)
    late = [Cut(FIRST_BIN, position, overdue=FAR - FIRST_BIN)]
    call = (stores.stream, HASH, "0", FIRST_BIN - 1, late, 1, bounds.waiting)
    assert await stores.store.take_cuts(*call) == Reply.DONE


def all_chosen(records: Records, bounds: Bounds) -> dict[int, int]:
    """Return how many of the records of a bin count, by cell: what the rule says of each user alone."""
    change, counts, of_user = (
        of_users(0, 1, records),
        Counter[int](),
        defaultdict[bytes, dict[bytes, int]](dict),
    )
    assert change.users is not None
    fields = user_fields(change.users.ids, change.cells)
    for field, number in zip(fields, change.deltas.tolist(), strict=True):
        of_user[field[:ID_BYTES]][field] = number
    for own in of_user.values():
        counts.update(chosen(own, bounds, before={}))
    return dict(counts)


def busy_and_others(seed: int, busy_cells: int, bin: int = FIRST_BIN) -> Records:
    """Return the records of two busy users and of thirty others, in random order."""
    rng = random.Random(seed)
    records = [(bin, cell, user) for user in ("busy", "busier") for cell in range(busy_cells)]
    records += [(bin, rng.randrange(busy_cells), "busy") for _ in range(busy_cells // 2)]
    records += [(bin, rng.randrange(busy_cells), f"user {rng.randrange(30)}") for _ in range(busy_cells)]
    rng.shuffle(records)
    return records


@pytest.mark.parametrize("most", [1, 3, 9])
async def test_what_counts_of_a_busy_user_is_what_one_script_would_choose(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(checks, "LEAST_MERGED", 20)
    for module in (checks.__name__, __name__):
        monkeypatch.setattr(f"{module}.LARGEST_APPLY_CELLS", 40)
    records, many = busy_and_others(most, 150), MOST_AMOUNTS + 1
    memory = MemoryStore()
    model = Stores(memory, memory.reader(), "model")
    expected = await tallied(model, records, Bounds(Caps(most)), 150)
    found = await tallied(stores, records, Bounds(Caps(most), places=many), 150)
    assert (found.cells, found.over_cap) == (expected.cells, expected.over_cap)
    assert sum(found.cells.values()) + found.over_cap == len(records)


@pytest.mark.parametrize("most", [1, 3, 9])
async def test_what_counts_of_records_set_aside_is_what_the_rule_says(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(checks, "LEAST_MERGED", 20)
    for module in (checks.__name__, __name__):
        monkeypatch.setattr(f"{module}.LARGEST_APPLY_CELLS", 40)
    records, bounds = busy_and_others(most, 150, FAR), Bounds(Caps(most), places=MOST_AMOUNTS + 1)
    await accepted_late(stores, records[:250], records[250:], bounds)
    found = await sealed_and_tallied(stores, FAR, bounds, 150)
    assert found.cells == all_chosen(records, bounds)
    assert sum(found.cells.values()) + found.over_cap == len(records)


@pytest.mark.redis
@pytest.mark.parametrize("server", list(server_paths()))
async def test_a_late_cut_keeps_no_more_places_of_a_user_than_can_count(
    servers: Servers, server: str
) -> None:
    """One script tallies a shard, so what a cut adds to it must not grow with a user's records."""
    records = [(FAR, cell, user) for cell in range(2_000) for user in ("busy", "busier")]
    running = servers[server]
    store, reader = RedisStore(running.worker_url), RedisReader(running.api_url)
    operator = Redis.from_url(running.operator_url, protocol=2)
    stores = Stores(store, reader, f"stream-{uuid4().hex}")
    try:
        await accepted_late(stores, [], records, MANY_PLACES)
        shards = await operator.keys(f"dp:{{{stores.stream}}}:sec:entries:*")
        held = [await operator.strlen(shard) for shard in shards]
        found = await sealed_and_tallied(stores, FAR, MANY_PLACES, 2_000)
    finally:
        await operator.aclose()
        await store.close()
        await reader.close()
    assert sum(held) == len(shards) * HEADER_BYTES + 2 * CAP * ENTRY_BYTES
    assert found.cells == all_chosen(records, MANY_PLACES)
    assert found.over_cap == len(records) - 2 * CAP


async def test_only_users_of_many_places_are_trimmed() -> None:
    assert FEW_PLACES.waiting.most == 0
    assert Bounds(Caps(CAP), places=MOST_AMOUNTS).waiting.most == 0
    assert MANY_PLACES.waiting.most == CAP
    assert Bounds(Caps(None, CAP, 1), places=MANY).waiting.most == 0
    assert Bounds(Caps(LARGEST_TRIMMED_CAP + 1), places=MANY).waiting.most == 0


@pytest.mark.redis
@pytest.mark.parametrize("server", list(server_paths()))
async def test_no_script_takes_as_long_as_all_records_of_a_user(servers: Servers, server: str) -> None:
    """The server's own slow log says how long its longest script took, without and with many places."""
    records = [(FIRST_BIN, cell, "busy") for cell in range(MANY)]
    running = servers[server]
    store, reader = RedisStore(running.worker_url), RedisReader(running.api_url)
    operator = Redis.from_url(running.operator_url, protocol=2)
    longest_us, found = [], []
    try:
        await operator.config_set("slowlog-log-slower-than", 0)
        await operator.config_set("slowlog-max-len", 10_000)
        for bounds in (FEW_PLACES, MANY_PLACES):
            stores = Stores(store, reader, f"stream-{uuid4().hex}")
            found.append(await tallied(stores, records, bounds, MANY))
            name = stores.stream.encode()
            slow = await operator.slowlog_get(10_000)
            longest_us.append(max(one["duration"] for one in slow if name in one["command"]))
    finally:
        await operator.config_set("slowlog-log-slower-than", 10_000)
        await operator.aclose()
        await store.close()
        await reader.close()
    assert found[0].cells == found[1].cells
    assert found[0].over_cap == found[1].over_cap == MANY - CAP
    assert longest_us[1] < longest_us[0] / 2, longest_us
