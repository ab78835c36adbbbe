"""What every store promises about users: of each one so many events of a window, the first, and no more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stream_app.core.records import Cut, Reply, UserCap
from stream_app.state.memory import MemoryStore
from tests.contracts.conftest import Stores
from tests.contracts.examples import BINS, FIRST_BIN, HASH, NEXT_EPOCH, TEXT, WIDTH, apply, capped
from tests.contracts.test_store import cut_and_seal, opened, release

pytestmark = pytest.mark.anyio
LAST = FIRST_BIN + BINS - 1
MARK = bytes(16)


async def counts(stores: Stores, last_bin: int) -> list[list[int]]:
    """Seal up to a bin and return its exact counts and those before it."""
    await cut_and_seal(stores, last_bin)
    return (await stores.store.read_cells(stores.stream, FIRST_BIN, last_bin, WIDTH)).tolist()  # type: ignore[no-any-return]


async def kept_users(stores: Stores) -> int:
    """Return of how many users something is kept. Only a test may look."""
    if isinstance(stores.store, MemoryStore):
        return sum(len(users) for users in stores.store._streams[stores.stream].users.values())
    client = stores.store._redis  # type: ignore[attr-defined]
    keys = [key async for key in client.scan_iter(f"dp:{{{stores.stream}}}:sec:users:*")]
    return sum([await client.hlen(key) - 1 for key in keys])  # one field is the key's mark


async def test_the_first_events_of_a_user_count(stores: Stores) -> None:
    await opened(stores)
    slices = [
        [(FIRST_BIN + 1, 0, "ann"), (FIRST_BIN, 1, "bob"), (FIRST_BIN, 2, "ann")],
        [(FIRST_BIN, 0, "ann"), (FIRST_BIN, 1, "bob"), (FIRST_BIN + 1, 1, "bob")],
    ]
    await stores.store.apply(stores.stream, capped(0, 3, slices[0]))
    await stores.store.apply(stores.stream, capped(3, 6, slices[1]))
    assert await counts(stores, FIRST_BIN + 1) == [[0, 2, 1], [1, 0, 0]]
    assert (await stores.store.operator_counts(stores.stream))["over_cap"] == 2  # type: ignore[attr-defined]


async def test_order_of_position_decides_and_not_order_of_bins(stores: Stores) -> None:
    await opened(stores)
    records = [(FIRST_BIN + 1, 0, "ann"), (FIRST_BIN, 0, "ann")]
    await stores.store.apply(stores.stream, capped(0, 2, records, max_events=1))
    assert await counts(stores, FIRST_BIN + 1) == [[0, 0, 0], [1, 0, 0]]


async def test_the_cap_holds_over_all_partitions(stores: Stores) -> None:
    """Also where a partition was added, or a producer spreads a user's records."""
    await opened(stores)
    await stores.store.start_partition(stores.stream, HASH, "1", 0)
    for partition in ("0", "1"):
        records = [(FIRST_BIN, 0, "ann"), (FIRST_BIN, 1, "bob"), (FIRST_BIN, 0, "ann")]
        change = capped(0, 3, records, max_events=3, partition=partition)
        assert await stores.store.apply(stores.stream, change) == Reply.DONE
    for partition in ("0", "1"):
        await stores.store.take_cuts(stores.stream, HASH, partition, FIRST_BIN - 1, [Cut(FIRST_BIN, 3)])
    await stores.store.seal(stores.stream, HASH, ["0", "1"], FIRST_BIN)
    cells = await stores.store.read_cells(stores.stream, FIRST_BIN, FIRST_BIN, WIDTH)
    assert cells.tolist() == [[3, 2, 0]]


async def test_a_repeated_call_uses_nothing_up(stores: Stores) -> None:
    await opened(stores)
    for _ in range(3):
        await stores.store.apply(stores.stream, capped(0, 1, [(FIRST_BIN, 0, "ann")]))
    await stores.store.apply(stores.stream, capped(1, 2, [(FIRST_BIN, 0, "ann")]))
    assert await counts(stores, FIRST_BIN) == [[2, 0, 0]]


async def test_each_window_counts_anew(stores: Stores) -> None:
    await opened(stores)
    records = [(bin, 0, "ann") for bin in (LAST, LAST, LAST + 1, LAST, LAST + 1, LAST + 1)]
    await stores.store.apply(stores.stream, capped(0, 6, records))
    await release(stores, BINS - 1)
    assert await kept_users(stores) == 2
    await cut_and_seal(stores, LAST + 1)
    exact = await stores.store.read_cells(stores.stream, LAST, LAST + 1, WIDTH)
    assert exact[:, 0].tolist() == [2, 2]


async def test_users_are_forgotten_with_the_last_bin_of_their_window(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(stores.stream, capped(0, 2, [(LAST, 0, "ann"), (LAST + 1, 0, "bob")]))
    await release(stores, BINS - 1)
    assert await kept_users(stores) == 2
    await release(stores, 1)
    assert await kept_users(stores) == 1
    assert await kept_windows(stores) == [LAST + BINS]


async def kept_windows(stores: Stores) -> list[int]:
    """Return the windows of whose users something is kept. Only a test may look."""
    if isinstance(stores.store, MemoryStore):
        state = stores.store._streams[stores.stream]
        assert state.users.keys() == state.user_keys.keys()
        return sorted(state.users)
    client, prefix = stores.store._redis, f"dp:{{{stores.stream}}}:sec:"  # type: ignore[attr-defined]
    keys = [key.decode() async for key in client.scan_iter(f"{prefix}users:*")]
    windows = sorted(int(key.removeprefix(f"{prefix}users:")) for key in keys)
    assert windows == [int(name) for name in await client.zrange(f"{prefix}open_windows", 0, -1)]
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
    await stores.store.apply(stores.stream, capped(0, 4, people))
    assert await kept_windows(stores) == [LAST, LAST + BINS, LAST + 2 * BINS]
    # The witness knows of more than this store does: it was set back.
    record = replace(NEXT_EPOCH, epoch=4, first_bin=first_bin, first_seq=30)
    assert await stores.store.open_epoch(stores.stream, TEXT, record, "f" * 64) == Reply.DONE
    assert await kept_windows(stores) == kept


async def test_what_a_user_used_up_of_a_window_stays_where_its_epoch_ends_early(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(stores.stream, capped(0, 2, [(FIRST_BIN, 0, "ann"), (LAST, 0, "ann")]))
    state = await release(stores, 1)
    record = replace(NEXT_EPOCH, first_bin=LAST, bins=1, first_seq=state.seq + 1)
    assert await stores.store.open_epoch(stores.stream, TEXT, record, state.head) == Reply.DONE
    change = capped(2, 4, [(LAST, 0, "ann"), (LAST, 0, "bob")], last_cut_bin=FIRST_BIN)
    assert await stores.store.apply(stores.stream, change) == Reply.DONE
    await cut_and_seal(stores, LAST)
    assert (await stores.store.read_cells(stores.stream, LAST, LAST, WIDTH)).tolist() == [[2, 0, 0]]
    assert await kept_windows(stores) == [LAST]


async def test_a_cap_that_does_not_fit_is_refused(stores: Stores) -> None:
    await opened(stores)
    change = apply(0, 5, [(FIRST_BIN, 0, 1), (FIRST_BIN, 1, 1)])
    windows = np.array([LAST, LAST])
    for cap in (UserCap(0, [bytes(16)] * 2, windows, MARK), UserCap(1, [bytes(16)], windows, MARK)):
        with pytest.raises(ValueError, match="a cap is at least 1"):
            await stores.store.apply(stores.stream, replace(change, cap=cap))
    twice = apply(0, 5, [(FIRST_BIN, 0, 2)])
    with pytest.raises(ValueError, match="each record stands alone"):
        await stores.store.apply(
            stores.stream, replace(twice, cap=UserCap(1, [bytes(16)], windows[:1], MARK))
        )


async def test_under_another_key_nothing_counts(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(stores.stream, capped(0, 1, [(FIRST_BIN, 0, "ann")]))
    change = capped(1, 2, [(LAST + 1, 0, "bob"), (LAST, 0, "bob")])
    assert change.cap is not None
    other = replace(change, cap=replace(change.cap, key_mark=b"\1" * 16))
    assert await stores.store.apply(stores.stream, other) == Reply.USER_KEY
    assert await stores.store.apply(stores.stream, change) == Reply.DONE
    assert await counts(stores, FIRST_BIN) == [[1, 0, 0]]
