"""Every store decides which of a user's records count by that user's records alone."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dphist.caps import Caps
from dphist.users import BUCKETS
from stream_app.core.counting.bounding import Bounds, user_fields
from stream_app.core.records import Reply, StreamState
from stream_app.core.store_writes import Users
from stream_app.state import checks
from stream_app.state.connection import execute
from stream_app.state.redis_store import RedisStore
from stream_app.state.round_trips import RoundTrips
from tests.contracts.conftest import Stores
from tests.contracts.examples import (
    BINS,
    FIRST_BIN,
    HASH,
    NEXT_EPOCH,
    TEXT,
    WIDTH,
    WINDOWS,
    apply,
    of_users,
    release_of,
)
from tests.contracts.test_store import cut_and_seal, loaded, opened
from tests.models import memory_stream
from tests.models.choosing import by_key, chosen, ids_of
from tests.models.memory import MemoryStore

pytestmark = pytest.mark.anyio
LAST = FIRST_BIN + BINS - 1
MARK = bytes(16)
BOUNDS = Bounds(Caps(2))
Records = Sequence[tuple[int, int, str]]  # (bin, cell, user)


async def tallied(stores: Stores, last_bin: int, max_events: int = 2) -> int:
    """Choose the users' records that count, up to a bin; return how many calls of ``tally`` it took."""
    for call in range(1000):
        reply = await stores.store.tally(stores.stream, HASH, Bounds(Caps(max_events)), last_bin)
        if reply is not Reply.DONE:
            assert reply is Reply.ALREADY
            return call
    raise AssertionError("tallying does not end")


async def counts(stores: Stores, last_bin: int, max_events: int = 2) -> list[list[int]]:
    """Seal up to a bin, tally, and return the exact counts of all bins up to it."""
    await cut_and_seal(stores, last_bin)
    await tallied(stores, last_bin, max_events)
    counts = await stores.store.read_cells(stores.stream, FIRST_BIN, last_bin, WIDTH)
    rows: list[list[int]] = counts.tolist()
    return rows


async def release(stores: Stores, bins: int) -> StreamState:
    """Cut, seal, tally and release the next bins."""
    last_bin = (await loaded(stores)).released_bin + bins
    await cut_and_seal(stores, last_bin)
    await tallied(stores, last_bin)
    return await released(stores, bins)


async def released(stores: Stores, bins: int) -> StreamState:
    """Release the next bins."""
    change = release_of(await loaded(stores), bins)
    assert await stores.store.release(stores.stream, change) == Reply.DONE
    return await loaded(stores)


async def untallied(stores: Stores) -> list[str]:
    """Return the names of the shards that the store has not tallied yet. Only tests read them."""
    if isinstance(stores.store, MemoryStore):
        return sorted(shard.name for shard in stores.store.streams[stores.stream].untallied)
    client, prefix = stores.store.connection, f"dp:{{{stores.stream}}}:sec"
    names = sorted(
        key.removeprefix(f"{prefix}:entries:") for key in await names_of(client, f"{prefix}:entries:*")
    )
    members = await execute(client, "ZRANGE", f"{prefix}:untallied", 0, -1)
    assert sorted(f"{name}.entries" for name in names) == sorted(member.decode() for member in members)
    assert not await names_of(client, f"{prefix}:untallied:*")
    return names


async def as_older_build(stores: Stores) -> None:
    """Keep all users' records that wait as builds of format 2 do: in hashes."""
    if not isinstance(stores.store, RedisStore):
        return
    client, prefix = stores.store.connection, f"dp:{{{stores.stream}}}:sec"
    for shard in await untallied(stores):
        held = (await execute(client, "GET", f"{prefix}:entries:{shard}"))[4:]
        older = f"{prefix}:untallied:{shard}"
        await execute(client, "HSET", older, "", "." * 65)
        for entry in (held[at : at + 24] for at in range(0, len(held), 24)):
            await execute(client, "HINCRBY", older, entry[:20], int.from_bytes(entry[20:], "big"))
        await execute(client, "UNLINK", f"{prefix}:entries:{shard}")
        await execute(client, "ZREM", f"{prefix}:untallied", f"{shard}.entries")
        await execute(client, "ZADD", f"{prefix}:untallied", shard.partition(":")[0], shard)


async def names_of(client: RoundTrips, pattern: str) -> list[str]:
    """Return the names of all keys in Redis that match a pattern."""
    _, keys = await execute(client, "SCAN", 0, "MATCH", pattern, "COUNT", 10**6)
    return [key.decode() for key in keys]


def by_rule(records: Records, bounds: Bounds, width: int = WIDTH) -> list[list[int]]:
    """Return the counts per bin and column by ``chosen``, one user and bin after the other."""
    numbers, before = Counter(records), defaultdict[tuple[int, str], dict[int, int]](dict)
    last_bin = max(bin for bin, _, _ in records)
    rows = np.zeros((last_bin - FIRST_BIN + 1, width), dtype=np.int64)
    for bin in range(FIRST_BIN, last_bin + 1):
        window = int(WINDOWS.of(np.array([bin]))[0])
        for user in sorted({user for _, _, user in records}):
            own = [place for place in range(width) if numbers[bin, place, user]]
            ids, of_id = ids_of([user] * len(own), np.full(len(own), window))
            fields = user_fields(ids[of_id], np.array(own, dtype=np.int64))
            held = {field: numbers[bin, place, user] for field, place in zip(fields, own, strict=True)}
            taken = chosen(held, bounds, before[window, user])
            before[window, user] = by_key(taken.items(), bounds, before[window, user])
            for place, number in taken.items():
                rows[bin - FIRST_BIN, place] += number
    return rows.tolist()


async def kept_users(stores: Stores) -> int:
    """Return how many users the store still keeps in all windows of the cap."""
    if isinstance(stores.store, MemoryStore):
        return sum(len(users) for users in stores.store.streams[stores.stream].users.values())
    client = stores.store.connection
    keys = await names_of(client, f"dp:{{{stores.stream}}}:sec:users:*")
    return sum([await execute(client, "HLEN", key) - 1 for key in keys])  # one field is the key's mark


async def test_events_of_a_user_count_up_to_the_cap_in_a_window(stores: Stores) -> None:
    await opened(stores)
    slices = [
        [(FIRST_BIN + 1, 0, "ann"), (FIRST_BIN, 1, "bob"), (FIRST_BIN, 2, "ann")],
        [(FIRST_BIN + 1, 0, "ann"), (FIRST_BIN, 1, "bob"), (FIRST_BIN + 1, 1, "bob")],
    ]
    await stores.store.apply(stores.stream, of_users(0, 3, slices[0]))
    await stores.store.apply(stores.stream, of_users(3, 6, slices[1]))
    assert await counts(stores, FIRST_BIN + 1) == [[0, 2, 1], [1, 0, 0]]
    assert (await stores.store.operator_counts(stores.stream))["over_cap"] == 2


async def test_earlier_bins_count_first_in_whatever_order_records_are_applied(stores: Stores) -> None:
    await opened(stores)
    records = [(FIRST_BIN + 1, 0, "ann"), (FIRST_BIN, 0, "ann")]
    await stores.store.apply(stores.stream, of_users(0, 1, records[:1]))
    await stores.store.apply(stores.stream, of_users(1, 2, records[1:]))
    assert await counts(stores, FIRST_BIN + 1, max_events=1) == [[1, 0, 0], [0, 0, 0]]


async def test_a_repeated_call_uses_nothing_up(stores: Stores) -> None:
    await opened(stores)
    for _ in range(3):
        await stores.store.apply(stores.stream, of_users(0, 1, [(FIRST_BIN, 0, "ann")]))
    await stores.store.apply(stores.stream, of_users(1, 2, [(FIRST_BIN, 0, "ann")]))
    assert await counts(stores, FIRST_BIN) == [[2, 0, 0]]
    assert await tallied(stores, FIRST_BIN) == 0
    assert (await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN, WIDTH)).tolist() == [[2, 0, 0]]


async def test_rows_that_name_a_users_cell_twice_add_up(stores: Stores) -> None:
    await opened(stores)
    change = of_users(0, 4, [(FIRST_BIN, 1, "ann")] * 4)
    assert change.users is not None
    rows = [0, 0]
    users = replace(change.users, ids=change.users.ids[rows], windows=change.users.windows[rows])
    twice = replace(
        change,
        bins=change.bins[rows],
        cells=change.cells[rows],
        deltas=np.array([1, 3]),
        users=users,
    )
    await stores.store.apply(stores.stream, twice)
    assert await counts(stores, FIRST_BIN, max_events=9) == [[0, 4, 0]]


async def test_each_window_counts_anew(stores: Stores) -> None:
    await opened(stores)
    records = [(bin, 0, "ann") for bin in (LAST, LAST, LAST + 1, LAST, LAST + 1, LAST + 1)]
    await stores.store.apply(stores.stream, of_users(0, 6, records))
    assert await counts(stores, LAST + 1) == [[0, 0, 0]] * 3 + [[2, 0, 0]] * 2
    assert await kept_users(stores) == 2


async def test_a_sealed_bin_is_neither_read_nor_released_before_it_is_tallied(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(
        stores.stream, of_users(0, 2, [(FIRST_BIN, 0, "ann"), (FIRST_BIN + 1, 1, "ann")])
    )
    assert await stores.store.tally(stores.stream, HASH, BOUNDS, FIRST_BIN) == Reply.NOT_SEALED
    await cut_and_seal(stores, FIRST_BIN + 1)
    state = await loaded(stores)
    for last_bin in (FIRST_BIN, FIRST_BIN + 1):
        with pytest.raises(ValueError, match=f"bin {last_bin}, or one before it, is not tallied"):
            await stores.store.read_cells(stores.stream, FIRST_BIN, last_bin, WIDTH)
        bins = last_bin - FIRST_BIN + 1
        assert await stores.store.release(stores.stream, release_of(state, bins)) == Reply.NOT_TALLIED
        await tallied(stores, last_bin)
    assert await stores.store.load(stores.stream) == state
    assert await stores.store.release(stores.stream, release_of(state, 2)) == Reply.DONE


async def test_under_another_strategy_nothing_is_tallied(stores: Stores) -> None:
    assert await stores.store.tally(stores.stream, HASH, BOUNDS, FIRST_BIN) == Reply.CONFLICT
    await opened(stores)
    await stores.store.apply(stores.stream, of_users(0, 1, [(FIRST_BIN, 0, "ann")]))
    await cut_and_seal(stores, FIRST_BIN)
    assert await stores.store.tally(stores.stream, "0" * 64, BOUNDS, FIRST_BIN) == Reply.STRATEGY
    assert len(await untallied(stores)) == 1


@pytest.mark.parametrize("older", [60, 120])
async def test_records_of_an_older_build_are_read(stores: Stores, older: int) -> None:
    """A build of format 2 counted the first records of two bins; this one counts the rest, and chooses."""
    rng = random.Random(older)
    records = [
        (FIRST_BIN + rng.randrange(2), rng.randrange(WIDTH), f"user {rng.randrange(9)}") for _ in range(120)
    ]
    await opened(stores)
    await stores.store.apply(stores.stream, of_users(0, older, records[:older]))
    await as_older_build(stores)
    if older < 120:
        await stores.store.apply(stores.stream, of_users(older, 120, records[older:]))
    await cut_and_seal(stores, FIRST_BIN + 1)
    await tallied(stores, FIRST_BIN + 1)
    assert await untallied(stores) == []
    counts = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 1, WIDTH)
    assert counts.tolist() == by_rule(records, BOUNDS)


@pytest.mark.parametrize(("fields", "shards"), [(1, 64), (10, 64), (10_000, 3), (10_000, 64)])
async def test_tallying_in_steps_gives_the_same_as_at_once(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, fields: int, shards: int
) -> None:
    """Each step tallies whole shards in the order of bins, within the limits of a step."""
    for module in (checks, memory_stream):
        monkeypatch.setattr(module, "LARGEST_TALLY_FIELDS", fields)
        monkeypatch.setattr(module, "LARGEST_TALLY_SHARDS", shards)
    await opened(stores)
    rng = random.Random(7)
    records = [
        (FIRST_BIN + rng.randrange(2), rng.randrange(WIDTH), f"user {rng.randrange(30)}") for _ in range(120)
    ]
    await stores.store.apply(stores.stream, of_users(0, 120, records))
    await cut_and_seal(stores, FIRST_BIN + 1)
    left, steps = await untallied(stores), 0
    least = len(left) / shards if fields > 1 else len(left)  # one shard per step if two are too many
    while await stores.store.tally(stores.stream, HASH, BOUNDS, FIRST_BIN + 1) == Reply.DONE:
        before, left, steps = left, await untallied(stores), steps + 1
        gone = sorted(set(before) - set(left), key=in_order)
        assert 1 <= len(gone) <= shards
        assert max(map(in_order, gone)) < min(map(in_order, left), default=in_order(f"{LAST + 1}:0:0"))
    assert not left
    assert steps >= max(least, len(set(records)) / max(fields, 5))
    cells = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 1, WIDTH)
    assert cells.tolist() == by_rule(records, BOUNDS)


def in_order(name: str) -> tuple[int, str]:
    """Return the sort key of a shard's name: bins in the order of their numbers."""
    return int(name.split(":")[0]), name


async def test_users_are_forgotten_with_the_last_bin_of_their_window(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(stores.stream, of_users(0, 2, [(LAST, 0, "ann"), (LAST + 1, 0, "bob")]))
    await release(stores, BINS - 1)
    await cut_and_seal(stores, LAST + 1)
    await tallied(stores, LAST + 1)
    assert await kept_users(stores) == 2
    await released(stores, 1)
    assert await kept_users(stores) == 1
    assert await kept_windows(stores) == [LAST + BINS]


async def kept_windows(stores: Stores) -> list[int]:
    """Return the windows of the cap that still have users in the store."""
    if isinstance(stores.store, MemoryStore):
        state = stores.store.streams[stores.stream]
        assert state.users.keys() == state.user_keys.keys()
        return sorted(state.users)
    client, prefix = stores.store.connection, f"dp:{{{stores.stream}}}:sec:"
    keys = await names_of(client, f"{prefix}users:*")
    windows = sorted(int(key.removeprefix(f"{prefix}users:")) for key in keys)
    assert windows == [int(name) for name in await execute(client, "ZRANGE", f"{prefix}open_windows", 0, -1)]
    return windows


@pytest.mark.parametrize(
    ("first_bin", "kept"),
    [
        (LAST, [LAST, LAST + BINS, LAST + 2 * BINS]),
        (LAST + 1, [LAST + BINS, LAST + 2 * BINS]),
        (LAST + BINS, [LAST + BINS, LAST + 2 * BINS]),
        (LAST + BINS + 1, [LAST + 2 * BINS]),
        (LAST + 9 * BINS, []),
    ],
)
async def test_users_of_windows_that_are_jumped_over_are_forgotten(
    stores: Stores, first_bin: int, kept: list[int]
) -> None:
    await opened(stores)
    people = [(LAST - 1, 0, "ann"), (LAST, 0, "ann"), (LAST + BINS, 0, "ann"), (LAST + 2 * BINS, 0, "bob")]
    await stores.store.apply(stores.stream, of_users(0, 4, people))
    assert await kept_windows(stores) == [LAST, LAST + BINS, LAST + 2 * BINS]
    assert len(await untallied(stores)) == 4
    # The store was set back, so the witness has rows that the store lacks.
    record = replace(NEXT_EPOCH, epoch=4, first_bin=first_bin, first_seq=30)
    assert await stores.store.open_epoch(stores.stream, TEXT, record, "f" * 64) == Reply.DONE
    assert await kept_windows(stores) == kept
    bins = [bin for bin, _, _ in people if bin >= first_bin]
    assert sorted(int(name.split(":")[0]) for name in await untallied(stores)) == bins


async def test_a_users_number_in_a_window_stays_if_its_epoch_ends_early(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(stores.stream, of_users(0, 2, [(FIRST_BIN, 0, "ann"), (LAST, 0, "ann")]))
    state = await release(stores, 1)
    record = replace(NEXT_EPOCH, first_bin=LAST, bins=1, first_seq=state.seq + 1)
    assert await stores.store.open_epoch(stores.stream, TEXT, record, state.head) == Reply.DONE
    change = of_users(2, 4, [(LAST, 0, "ann"), (LAST, 0, "bob")], last_cut_bin=FIRST_BIN)
    assert await stores.store.apply(stores.stream, replace(change, epoch=1)) == Reply.DONE
    await cut_and_seal(stores, LAST)
    await tallied(stores, LAST)
    # One of ann's two events was counted in the epoch before.
    assert (await stores.store.read_cells(stores.stream, LAST, LAST, WIDTH)).tolist() == [[2, 0, 0]]
    assert await kept_windows(stores) == [LAST]


async def test_users_that_do_not_fit_are_refused(stores: Stores) -> None:
    await opened(stores)
    change = apply(0, 5, [(FIRST_BIN, 0, 1), (FIRST_BIN, 1, 1)])
    ids, windows = np.zeros((2, 16), np.uint8), np.array([LAST, LAST])
    for users in (
        Users(ids[:1], windows, {LAST: MARK}),
        Users(ids[:, :8], windows, {LAST: MARK}),
        Users(ids, windows[:1], {LAST: MARK}),
    ):
        with pytest.raises(ValueError, match="each row needs a user of 16 bytes and a window"):
            await stores.store.apply(stores.stream, replace(change, users=users))
    wide = replace(change, cells=np.array([0, 2**32]), users=Users(ids, windows, {LAST: MARK}))
    with pytest.raises(ValueError, match="users' cells must be below"):
        await stores.store.apply(stores.stream, wide)
    with pytest.raises(ValueError, match="at least 1"):
        await stores.store.tally(stores.stream, HASH, Bounds(Caps(2), key_places=0), FIRST_BIN)
    with pytest.raises(ValueError, match="at most 1000"):
        await stores.store.tally(stores.stream, HASH, Bounds(Caps(None, 1001, 1)), FIRST_BIN)


async def test_under_another_key_nothing_counts(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(stores.stream, of_users(0, 1, [(FIRST_BIN, 0, "ann")]))
    people = [(LAST + 1, 0, "bob"), (LAST, 0, "bob")]
    other = of_users(1, 2, people, key_mark=b"\1" * 16)
    assert await stores.store.apply(stores.stream, other) == Reply.USER_KEY
    assert await stores.store.apply(stores.stream, of_users(1, 2, people)) == Reply.DONE
    assert await counts(stores, FIRST_BIN) == [[1, 0, 0]]


@pytest.mark.parametrize("step", [1, 64])
async def test_users_are_counted_by_all_of_their_records(
    stores: Stores, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann has 1, then 4, then 5 records, bob 1, then 3, cid 2: each is in one bucket, beyond the cap, too."""
    monkeypatch.setattr(checks, "LARGEST_TALLY_SHARDS", step)
    monkeypatch.setattr(memory_stream, "LARGEST_TALLY_SHARDS", step)
    await opened(stores)
    bins = (
        [(0, "ann"), (1, "bob")],
        [(0, "ann")] * 3 + [(2, "bob")] * 2,
        [(1, "ann"), (1, "cid"), (2, "cid")],
    )
    records = [(FIRST_BIN + bin, *one) for bin, some in enumerate(bins) for one in some]
    await stores.store.apply(stores.stream, of_users(0, len(records), records))
    await cut_and_seal(stores, FIRST_BIN + 2)
    bounds, width = Bounds(Caps(2), users_at=WIDTH), WIDTH + BUCKETS
    while await stores.store.tally(stores.stream, HASH, bounds, FIRST_BIN + 2) is Reply.DONE:
        pass
    found = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN + 2, width)
    assert found[:, :WIDTH].tolist() == by_rule(records, BOUNDS)
    in_buckets = found[:, WIDTH:].cumsum(axis=0)
    assert in_buckets[:, :4].tolist() == [[2, 0, 0, 0], [0, 1, 1, 0], [0, 2, 1, 0]]
    assert not in_buckets[:, 4:].any()


async def test_the_last_bucket_has_no_end(stores: Stores) -> None:
    await opened(stores)
    change = of_users(0, 1, [(FIRST_BIN, 0, "ann")])
    await stores.store.apply(stores.stream, replace(change, deltas=change.deltas * 2**31))
    await cut_and_seal(stores, FIRST_BIN)
    assert (
        await stores.store.tally(stores.stream, HASH, Bounds(Caps(2), users_at=WIDTH), FIRST_BIN)
        is Reply.DONE
    )
    [found] = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN, WIDTH + BUCKETS)
    assert found.tolist() == [2, *[0] * (WIDTH - 1), *[0] * (BUCKETS - 1), 1]
