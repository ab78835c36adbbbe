"""Every store keeps keys that no list names until they are found, and lets each user bring only so many."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.caps import Caps
from stream_app.core.counting.bounding import STEPS, Bounds, KeyedPlaces
from stream_app.core.counting.unlisted import BROUGHT, Slots
from stream_app.core.epochs import FoundKeys, SealedKey
from stream_app.core.records import Reply
from stream_app.core.store_writes import Apply, Waiting
from stream_app.state import checks, exact_counts
from stream_app.state.connection import batch, execute
from stream_app.state.redis_store import RedisStore
from stream_app.state.round_trips import Command, RoundTrips
from tests.contracts.conftest import Stores
from tests.contracts.examples import BINS, FIRST_BIN, HASH, NEXT_EPOCH, TEXT, apply, of_users, release_of
from tests.contracts.test_cap import names_of
from tests.contracts.test_store import cut_and_seal, loaded, opened, shown
from tests.stream_app.found_keys import DISCOVER, Recount, check_recount, drawn_visits, replay, write_visits

pytestmark = pytest.mark.anyio
LAST = FIRST_BIN + BINS - 1  # of the window
MARK = bytes(16)
EVERY_EVENT = Caps(10**4)
IN_TWO_KEYS = Caps(max_keys=2, max_per_key=1)
LISTED = 3  # cells of listed keys and of all other events
KEYED = Waiting(keyed=True)
KEYS = [SealedKey(bytes([1 + place] * 16), b"sealed %d" % place) for place in range(40)]


async def named(stores: Stores, keys: list[SealedKey], window: int = LAST) -> list[int] | Reply:
    return await stores.store.name_keys(stores.stream, HASH, window, MARK, keys)


def visited(expected: int, visits: Sequence[tuple[int, int, str]], waiting: Waiting = KEYED) -> Apply:
    """Return a change with visits of users. Args: visits, (bin, key, user); listed keys are below 0."""
    rows = [(bin, key + LISTED, user) for bin, key, user in visits]
    change = of_users(expected, expected + len(visits), rows)
    return replace(change, cells=keyed(1, change.cells), waiting=waiting)


def keyed(key_places: int, places: Int64Array) -> NDArray[np.void]:
    """Return places of listed and hidden keys as the store keeps them."""
    return KeyedPlaces(key_places, LISTED, [key.hash for key in KEYS]).of(places)


def slots(per_user: int, shown: tuple[int, ...] = (), seq: int = 0) -> Slots:
    return Slots(per_user, LISTED, shown, 0, seq)


def bounds_of(caps: Caps, weight: int | None = None) -> Bounds:
    return Bounds(caps, STEPS, weight, keyed=True)


async def tallied(stores: Stores, own: Slots, caps: Caps | Bounds = EVERY_EVENT) -> Reply:
    bounds = caps if isinstance(caps, Bounds) else bounds_of(caps)
    asked = stores.stream, HASH, bounds, FIRST_BIN, own
    while (reply := await stores.store.tally(*asked)) is Reply.DONE:
        pass
    return reply


async def test_a_key_has_one_number_in_a_window(stores: Stores) -> None:
    await opened(stores)
    assert await named(stores, [KEYS[4], KEYS[2]]) == [0, 1]
    assert await named(stores, [KEYS[2], KEYS[7], KEYS[4]]) == [1, 2, 0]
    assert await named(stores, [KEYS[7], KEYS[4]], LAST + BINS) == [0, 1]
    again = [KEYS[4], SealedKey(KEYS[2].hash, b"sealed anew")]
    assert await named(stores, again) == [0, 1]
    assert await stores.store.named_keys(stores.stream, LAST, [1, 2]) == [KEYS[2], KEYS[7]]


async def test_keys_of_another_strategy_or_key_or_of_a_sealed_window_have_none(stores: Stores) -> None:
    await opened(stores)
    await named(stores, [KEYS[1]])
    store, name = stores.store, stores.stream
    assert await store.name_keys(name, "0" * 64, LAST, MARK, [KEYS[1]]) == Reply.STRATEGY
    assert await store.name_keys(name, HASH, LAST, b"x" * 16, [KEYS[1]]) == Reply.USER_KEY
    assert await store.name_keys("never opened", HASH, LAST, MARK, [KEYS[1]]) == Reply.CONFLICT
    assert await named(stores, [KEYS[1]], FIRST_BIN - 1) == Reply.SEALED


async def test_other_workers_decisions_are_known_before_users_bring_keys(stores: Stores) -> None:
    await opened(stores)
    await cut_and_seal(stores, FIRST_BIN)
    assert await tallied(stores, slots(1, seq=1)) == Reply.CONFLICT
    assert await tallied(stores, replace(slots(1), epoch=1)) == Reply.CONFLICT
    assert await tallied(stores, slots(1)) == Reply.ALREADY


async def test_an_epoch_that_ends_early_gives_users_no_more_keys_in_its_window(stores: Stores) -> None:
    """The next epoch may release a bin whose users were chosen before: what they brought there counts."""
    await opened(stores)
    await named(stores, KEYS[:2])
    store, name = stores.store, stores.stream
    visits = [(FIRST_BIN, 0, "ann"), (FIRST_BIN + 1, 1, "ann"), (FIRST_BIN + 1, 1, "bob")]
    await store.apply(name, visited(0, visits))
    await cut_and_seal(stores, FIRST_BIN + 1)
    assert await tallied(stores, slots(1)) is Reply.ALREADY
    assert await store.end_epoch(name, 0, 0, "noise") is Reply.DONE
    state = await loaded(stores)
    again = replace(state.epoch, epoch=1, last_bin=None, end_reason=None)
    assert await store.open_epoch(name, TEXT, again, state.head) is Reply.DONE
    own, up_to = Slots(1, LISTED, (), 1, 0), FIRST_BIN + 1
    while await store.tally(name, HASH, bounds_of(EVERY_EVENT), up_to, own) is Reply.DONE:
        pass
    kept = await store.read_kept(name, [FIRST_BIN, FIRST_BIN + 1], [])
    brought = [{cell - BROUGHT: n for cell, n in of_bin.items() if cell >= BROUGHT} for of_bin in kept]
    assert brought == [{LISTED: 1}, {LISTED + 1: 1}]


@pytest.mark.parametrize(
    ("per_user", "caps"), [(1, EVERY_EVENT), (3, EVERY_EVENT), (2, Caps(2)), (3, IN_TWO_KEYS)]
)
async def test_a_user_brings_so_many_keys_whatever_their_numbers(
    stores: Stores, per_user: int, caps: Caps
) -> None:
    """The keys' numbers are drawn. Users bring the same keys, none that is public or listed."""
    rng, public = random.Random(per_user), {5, 6}
    visits = [(f"user {rng.randrange(9)}", rng.randrange(-LISTED, 30)) for _ in range(120)]
    brought = []
    for attempt in range(2):
        own = replace(stores, stream=f"{stores.stream}-{attempt}")
        await opened(own)
        in_order = rng.sample(range(30), 30)
        await named(own, [KEYS[key] for key in in_order])
        cell = {key: LISTED + number for number, key in enumerate(in_order)} | {-3: 0, -2: 1, -1: 2}
        await own.store.apply(own.stream, visited(0, [(FIRST_BIN, key, user) for user, key in visits]))
        await cut_and_seal(own, FIRST_BIN)
        shown = tuple(cell[key] - LISTED for key in public)
        assert await tallied(own, slots(per_user, shown), caps) is Reply.ALREADY
        [kept] = await own.store.read_kept(own.stream, [FIRST_BIN], [])
        key_of = {number: key for key, number in cell.items()}
        brought.append({key_of[one - BROUGHT]: n for one, n in kept.items() if one >= BROUGHT})
        counted = {key_of[one]: n for one, n in kept.items() if one < BROUGHT}
        assert not public & brought[-1].keys()
        assert brought[-1].keys() <= {key for key in counted if key >= 0}
    assert brought[0] == brought[1]
    keys_of = defaultdict[str, set[int]](set)
    for user, key in visits:
        if key >= 0 and key not in public:
            keys_of[user].add(key)
    if caps is EVERY_EVENT:
        assert sum(brought[0].values()) == sum(min(len(keys), per_user) for keys in keys_of.values())
    assert 0 < sum(brought[0].values()) <= per_user * 9


async def test_a_user_counts_in_the_same_keys_however_they_are_numbered_and_merged(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that cannot count are left out when a shard is merged; the cap is used up all the same."""
    visits = [(FIRST_BIN, key, "eve") for key in (0, 1)]
    visits += [(FIRST_BIN + 1, position % 9, "eve") for position in range(27)]
    for caps in (Caps(5), Caps(max_keys=4, max_per_key=2), Caps(6, max_keys=3, max_per_key=2)):
        counted = list[list[dict[int, int]]]()
        for earlier, least_merged in product((0, 1, 7), (1, checks.LEAST_MERGED)):
            monkeypatch.setattr(checks, "LEAST_MERGED", least_merged)
            own = replace(stores, stream=f"{stores.stream}-{caps.l1}-{earlier}-{least_merged}")
            await opened(own)
            await named(own, KEYS[20 : 20 + earlier])  # of other users
            await named(own, KEYS[:9])
            for position, visit in enumerate(visits):
                change = visited(position, [visit], bounds_of(caps).waiting)
                assert await own.store.apply(own.stream, change) is Reply.DONE
            await cut_and_seal(own, FIRST_BIN + 1)
            for bin in (FIRST_BIN, FIRST_BIN + 1):
                asked = own.stream, HASH, bounds_of(caps), bin, slots(1)
                while await own.store.tally(*asked) is Reply.DONE:
                    pass
            kept = await own.store.read_kept(own.stream, [FIRST_BIN, FIRST_BIN + 1], [])
            numbers = sum(n for one in kept for cell, n in one.items() if cell < BROUGHT)
            assert 2 < numbers <= caps.l1
            assert (await own.store.operator_counts(own.stream))["over_cap"] == len(visits) - numbers
            counted.append([{cell - LISTED - earlier: n for cell, n in one.items()} for one in kept])
        assert counted == [counted[0]] * len(counted)


async def test_records_that_wait_in_another_format_are_refused(stores: Stores) -> None:
    """Builds before the first release of this feature named keys by their numbers."""
    if not isinstance(stores.store, RedisStore):
        return  # the model has one format
    await opened(stores)
    await stores.store.apply(stores.stream, of_users(0, 5, [(FIRST_BIN, LISTED, "ann")]))
    await cut_and_seal(stores, FIRST_BIN)
    with pytest.raises(OSError, match="records wait in another format"):
        await tallied(stores, slots(1))
    assert await stores.store.read_kept(stores.stream, [FIRST_BIN], []) == [{}]


async def test_what_one_user_has_in_many_known_keys_stays_short(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many keys others have brought: one script reads all that waits of a user in a bin."""
    if not isinstance(stores.store, RedisStore):
        return  # the model merges nothing
    monkeypatch.setattr(checks, "LEAST_MERGED", 8)
    for caps, most in ((Caps(2), 2), (Caps(max_keys=3, max_per_key=1), 3)):
        own = replace(stores, stream=f"{stores.stream}-{most}")
        await opened(own)
        await named(own, KEYS)
        for key in range(40):
            change = visited(key, [(FIRST_BIN, key, "eve")], bounds_of(caps).waiting)
            assert await own.store.apply(own.stream, change) is Reply.DONE
        left_out = (await own.store.operator_counts(own.stream)).get("over_cap", 0)
        assert 40 - left_out <= 4 * most + 1


@pytest.mark.parametrize("caps", [Caps(1), Caps(2), Caps(3), IN_TWO_KEYS])
async def test_keys_that_do_not_stay_count_as_other_and_keep_their_turn(stores: Stores, caps: Caps) -> None:
    """The choice among a user's keys is the same, whichever of them stay."""
    rng, found = random.Random(caps.l1), list[dict[int, int]]()
    visits = sorted({(f"user {rng.randrange(9)}", rng.randrange(20)) for _ in range(120)})
    for thinned in (0, 1, 5):  # the first 2^(8 - thinned) - 1 stay
        own = replace(stores, stream=f"{stores.stream}-{thinned}")
        await opened(own)
        await named(own, KEYS)
        await own.store.apply(own.stream, visited(0, [(FIRST_BIN, key, user) for user, key in visits]))
        await cut_and_seal(own, FIRST_BIN)
        assert await tallied(own, replace(slots(2, shown=(19,)), thinned=thinned), caps) is Reply.ALREADY
        [kept] = await own.store.read_kept(own.stream, [FIRST_BIN], [])
        found.append({cell: n for cell, n in kept.items() if cell < BROUGHT})
    assert found[0] == found[1]
    stay = {LISTED + key for key in (*range(7), 19)}
    assert {cell: n for cell, n in found[2].items() if cell >= LISTED} == {
        cell: n for cell, n in found[0].items() if cell in stay
    }
    assert sum(found[2].values()) == sum(found[0].values())


@pytest.mark.parametrize("caps", [Caps(2), Caps(max_keys=2, max_per_key=2)])
async def test_sums_of_a_users_found_keys_are_those_of_the_records_that_count(
    stores: Stores, caps: Caps
) -> None:
    """A record adds the weight to two cells of its key, and a user one to the cell of the key she brings."""
    weight, own = 10, slots(1)
    await opened(stores)
    await named(stores, KEYS[:3])
    change = visited(0, [(FIRST_BIN, key, "ann") for key in (-1, 0, 1, 2)])
    amounts = keyed(11, 11 * np.arange(LISTED - 1, LISTED + 3) + np.array([7, 3, 10, 0]))
    await stores.store.apply(stores.stream, replace(change, cells=amounts))
    await cut_and_seal(stores, FIRST_BIN)
    assert await tallied(stores, own, bounds_of(caps, weight)) is Reply.ALREADY
    [kept] = await stores.store.read_kept(stores.stream, [FIRST_BIN], [])
    amount_of = {LISTED - 1: 7, LISTED: 3, LISTED + 1: 10, LISTED + 2: 0}
    counted = {cell // 2 for cell in kept if cell < BROUGHT}
    assert len(counted) == 2
    for key in counted:
        ends = weight - amount_of[key], amount_of[key]
        assert (kept.get(2 * key, 0), kept.get(2 * key + 1, 0)) == ends
    [brought] = [cell - BROUGHT for cell in kept if cell >= BROUGHT]
    assert brought in counted - {LISTED - 1}


async def test_keys_that_do_not_stay_are_deleted(stores: Stores) -> None:
    await opened(stores)
    store, name = stores.store, stores.stream
    hashed = [SealedKey(bytes([255 * (n % 2)] * 16)[:15] + bytes([n]), b"sealed") for n in range(6)]
    await named(stores, hashed)
    await store.apply(
        name, apply(0, 6, [(FIRST_BIN + bin, LISTED + n, 1) for bin in (0, 1) for n in range(6)])
    )
    await cut_and_seal(stores, FIRST_BIN)
    first = replace(release_of(await loaded(stores), 1), found=FoundKeys(FIRST_BIN, (), 1), shown_cells=[0])
    before = await loaded(stores)
    assert await store.release(name, first) is Reply.DONE
    assert await store.thin_keys(name, before, LAST, {1: [LISTED + 1]}) is Reply.CONFLICT
    seen = await loaded(stores)
    assert seen.epoch.thinned == 1
    gone = {number: [LISTED + number] for number in (1, 3, 5)}
    assert await store.thin_keys(name, seen, LAST, gone) is Reply.DONE
    assert await store.thin_keys(name, seen, LAST, gone) is Reply.DONE
    kept = await store.read_kept(name, [FIRST_BIN, FIRST_BIN + 1], [])
    assert kept == [{LISTED + n: 1 for n in (0, 2, 4)}, {LISTED + n: 1 for n in range(6)}]
    assert await store.named_keys(name, LAST, [1, 2]) == [SealedKey(hashed[1].hash, b""), hashed[2]]
    more = SealedKey(b"\xfe" * 16, b"sealed")
    assert await named(stores, [hashed[2], hashed[3], more]) == [2, -1, -1]


async def test_an_epoch_lists_the_keys_that_earlier_ones_found(stores: Stores) -> None:
    await opened(stores)
    store, name = stores.store, stores.stream
    await cut_and_seal(stores, LAST)
    last = release_of(await loaded(stores), BINS)
    assert await store.release(name, last) is Reply.DONE
    listed = (FoundKeys(FIRST_BIN, ("/a", "ü")), FoundKeys(FIRST_BIN + 2, ("/b",)))
    opening = replace(NEXT_EPOCH, strategy_hash=HASH, found=listed)
    for reply in (Reply.DONE, Reply.ALREADY):
        assert await store.open_epoch(name, TEXT, opening, last.head) is reply
    assert (await loaded(stores)).epoch.found == listed
    await store.publish(name, last.expected_seq + len(last.rows))
    seen = await shown(stores)
    assert seen.epochs[-1].found == listed


async def test_names_are_given_numbers_and_read_in_parts(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis drops a connection that asks for a million keys in one call."""
    sizes = list[int]()

    async def noted(redis: RoundTrips, commands: Sequence[Command]) -> list[Any]:
        sizes.extend(len(command) - 2 for command in commands)
        return await batch(redis, commands)

    monkeypatch.setattr(exact_counts, "_NAMES_PER_SCRIPT", 2)
    monkeypatch.setattr(exact_counts, "_NAMES_PER_READ", 3)
    monkeypatch.setattr(exact_counts, "batch", noted)
    await opened(stores)
    assert await named(stores, KEYS[:7]) == [*range(7)]
    assert await stores.store.named_keys(stores.stream, LAST, range(7)) == KEYS[:7]
    if isinstance(stores.store, RedisStore):
        assert sizes == [3, 3, 1]


async def test_a_user_brings_a_key_once_over_all_bins(stores: Stores) -> None:
    await opened(stores)
    await named(stores, KEYS[:4])
    records = [(FIRST_BIN, 0, "ann"), (FIRST_BIN + 1, 0, "ann"), (FIRST_BIN + 1, 1, "ann")]
    await stores.store.apply(stores.stream, visited(0, records))
    await cut_and_seal(stores, FIRST_BIN + 1)
    asked = stores.stream, HASH, bounds_of(Caps(9)), FIRST_BIN + 1, slots(3)
    while await stores.store.tally(*asked) is Reply.DONE:
        pass
    kept = await stores.store.read_kept(stores.stream, [FIRST_BIN, FIRST_BIN + 1], [])
    brought = [{cell - BROUGHT: n for cell, n in one.items() if cell >= BROUGHT} for one in kept]
    assert brought == [{LISTED: 1}, {LISTED + 1: 1}]


async def test_counts_of_keys_stay_until_the_epoch_ends(stores: Stores) -> None:
    await opened(stores)
    store, name = stores.store, stores.stream
    await named(stores, KEYS[:2])
    cells = [(bin, cell, 1 + cell) for bin in (FIRST_BIN, LAST) for cell in (0, 3, 4)]
    await store.apply(name, apply(0, 6, cells))
    await cut_and_seal(stores, LAST)
    first = replace(
        release_of(await loaded(stores), 1), found=FoundKeys(FIRST_BIN, ("/a", "ü")), shown_cells=[0, 3]
    )
    assert await store.release(name, first) is Reply.DONE
    assert await store.release(name, first) is Reply.ALREADY
    assert await store.read_kept(name, [FIRST_BIN], []) == [{4: 5}]
    assert (await loaded(stores)).epoch.found == (FoundKeys(FIRST_BIN, ("/a", "ü")),)
    seen = await shown(stores)
    assert seen.epochs[-1].found == ()
    await store.publish(name, 1)
    seen = await shown(stores)
    assert seen.epochs[-1].found == (FoundKeys(FIRST_BIN, ("/a", "ü")),)
    assert await store.forget_kept(name, 0) is Reply.CONFLICT
    rest = replace(release_of(await loaded(stores), BINS - 1), shown_cells=[0, 3])
    assert await store.release(name, rest) is Reply.DONE
    many = [*range(12_000)]  # more than one question asks for
    assert await store.read_kept(name, [FIRST_BIN, LAST], many) == [{4: 5}, {4: 5}]
    assert await store.forget_kept(name, 0) is Reply.DONE
    assert await store.read_kept(name, [FIRST_BIN, LAST], []) == [{}, {}]
    assert await store.forget_kept(name, 0) is Reply.ALREADY
    opening = replace(NEXT_EPOCH, strategy_hash=HASH)
    assert await store.open_epoch(name, TEXT, opening, rest.head) is Reply.DONE
    assert (await loaded(stores)).epoch.found == ()


async def test_the_past_of_a_key_leaves_with_the_row_that_names_it(stores: Stores) -> None:
    await opened(stores)
    store, name = stores.store, stores.stream
    await named(stores, KEYS[:2])
    cells = [(FIRST_BIN + bin, cell, 1) for bin in range(3) for cell in (0, LISTED, LISTED + 1)]
    await store.apply(name, apply(0, 9, cells))
    await cut_and_seal(stores, FIRST_BIN + 2)
    first = replace(release_of(await loaded(stores), 2), shown_cells=[0])
    assert await store.release(name, first) is Reply.DONE
    bins = range(FIRST_BIN, FIRST_BIN + 3)
    hidden = {LISTED: 1, LISTED + 1: 1}
    assert await store.read_kept(name, bins, []) == [hidden, hidden, {0: 1} | hidden]
    names = replace(release_of(await loaded(stores), 1), found=FoundKeys(FIRST_BIN + 2, ("/a",)))
    names = replace(names, shown_cells=[0, LISTED], past_bins=bins[:2], past_cells=[LISTED])
    conflict = replace(names, expected_seq=names.expected_seq + 1)
    assert await store.release(name, conflict) is Reply.CONFLICT
    assert await store.read_kept(name, bins[:2], []) == [hidden, hidden]
    for reply in (Reply.DONE, Reply.ALREADY):
        assert await store.release(name, names) is reply
        assert await store.read_kept(name, bins, []) == [{LISTED + 1: 1}] * 3


async def test_keys_of_rows_that_nobody_saw_are_forgotten(stores: Stores) -> None:
    await opened(stores)
    store, name = stores.store, stores.stream
    await cut_and_seal(stores, LAST)
    for bin, names in ((FIRST_BIN, ("/a",)), (FIRST_BIN + 1, ("/b",))):
        release = replace(release_of(await loaded(stores), 1), found=FoundKeys(bin, names), shown_cells=[0])
        assert await store.release(name, release) is Reply.DONE
    await store.publish(name, 1)
    elsewhere = replace(NEXT_EPOCH, first_bin=FIRST_BIN + 2, first_seq=4)
    assert await store.open_epoch(name, TEXT, elsewhere, "f" * 64) is Reply.DONE
    seen = await shown(stores)
    assert seen.epochs[0].found == (FoundKeys(FIRST_BIN, ("/a",)),)


@pytest.mark.parametrize("unit", ["event", "user"])
async def test_a_replay_counts_and_names_what_a_recount_does(
    stores: Stores, unit: str, tmp_path: Path
) -> None:
    visits = drawn_visits(4, 300, most=1)
    write_visits(tmp_path, visits)
    own = {"unit": {"user": "user", "max_events": 1_000}} if unit == "user" else {}
    again = {"accept": "measured again"}  # both units are replayed into one server
    keys = {"discover": DISCOVER | ({"per_user": 2} if own else {})}
    given = stores.store, stores.reader
    replayed = await replay(tmp_path, *given, name=stores.stream, keys=keys, privacy=own | again)
    truth = Recount.of_users(visits, 2) if own else Recount.of_events(visits)
    await check_recount(replayed, truth)
    secret = {page for _, _, page in visits} - {one.name for one in truth.named()}
    assert secret
    if isinstance(stores.store, RedisStore):
        held = await everything_in(stores.store, stores.stream)
        assert not [name for name in secret if name.encode() in held]
        assert b"sec:cells" not in held
        assert b"sec:users" not in held


async def everything_in(store: RedisStore, stream: str) -> bytes:
    """Return all names and values that Redis holds of a stream."""
    reads = {b"string": ("GET",), b"hash": ("HGETALL",), b"zset": ("ZRANGE", 0, -1), b"set": ("SMEMBERS",)}
    reads |= {b"list": ("LRANGE", 0, -1), b"stream": ("XRANGE", "-", "+")}
    held = []
    for key in await names_of(store.connection, f"dp:{{{stream}}}:*"):
        command, *more = reads[await execute(store.connection, "TYPE", key)]
        held.append(f"{key} {await execute(store.connection, command, key, *more)}")
    return "\n".join(held).encode()
