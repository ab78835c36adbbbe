"""While the key of users' hashes is rotated, each cap window has one key, in every store."""

from __future__ import annotations

import pytest

from stream_app.core.records import Cut, Reply
from stream_app.core.user_keys import UserKeys
from stream_app.state.key_notes import StoredUserKeys
from stream_app.state.redis_store import RedisStore
from tests.contracts.conftest import Stores
from tests.contracts.examples import FIRST_BIN, HASH, of_users, setting_users_aside
from tests.contracts.test_cap import LAST, counts
from tests.contracts.test_store import loaded, opened
from tests.models.memory_user_keys import MemoryUserKeys

pytestmark = pytest.mark.anyio
OLD, NEW = bytes(16), b"\n" + bytes(range(15))
AFTER = UserKeys((OLD, NEW), (LAST,))
BOTH = [(LAST, 0, "ann"), (LAST + 1, 0, "ann")]


def notes(stores: Stores) -> MemoryUserKeys | StoredUserKeys:
    store = stores.store
    return StoredUserKeys(store) if isinstance(store, RedisStore) else MemoryUserKeys(store)


async def noted(stores: Stores) -> None:
    """Note the new key for the windows after the first."""
    counted = await notes(stores).counted(stores.stream)
    assert counted is not None
    assert await notes(stores).note(stores.stream, counted, UserKeys(), AFTER) == Reply.DONE


async def applied(stores: Stores, *change: object, **how: bytes) -> Reply:
    return await stores.store.apply(stores.stream, of_users(*change, **how))  # type: ignore[arg-type]


async def test_each_window_counts_under_its_key_alone(stores: Stores) -> None:
    await opened(stores)
    assert await applied(stores, 0, 1, BOTH[:1]) == Reply.DONE
    await noted(stores)
    assert await applied(stores, 1, 2, BOTH) == Reply.USER_KEY  # a worker without the new key
    assert await applied(stores, 1, 2, BOTH, key_mark=NEW) == Reply.USER_KEY  # one that forgot the old key
    assert await applied(stores, 1, 2, BOTH, later_mark=NEW) == Reply.DONE
    assert await applied(stores, 1, 2, BOTH, later_mark=NEW) == Reply.ALREADY
    assert await notes(stores).counted(stores.stream) == {LAST: OLD, LAST + 4: NEW}
    assert (await counts(stores, LAST + 1))[-2:] == [[2, 0, 0], [1, 0, 0]]


async def test_what_is_noted_holds_where_nobody_has_counted(stores: Stores) -> None:
    await opened(stores)
    await noted(stores)
    state = await loaded(stores)
    assert state.user_keys == AFTER
    assert await applied(stores, 0, 1, BOTH[1:]) == Reply.USER_KEY
    assert await applied(stores, 0, 1, BOTH[:1], key_mark=NEW) == Reply.USER_KEY
    assert await applied(stores, 0, 1, BOTH, later_mark=NEW) == Reply.DONE


async def test_a_window_that_counts_meanwhile_keeps_its_key(stores: Stores) -> None:
    await opened(stores)
    before = await notes(stores).counted(stores.stream)
    assert before == {}
    assert await applied(stores, 0, 1, BOTH[1:]) == Reply.DONE
    assert await notes(stores).note(stores.stream, before, UserKeys(), AFTER) == Reply.CONFLICT
    counted = await notes(stores).counted(stores.stream)
    assert counted == {LAST + 4: OLD}
    later = UserKeys((OLD, NEW), (LAST + 4,))
    assert await notes(stores).note(stores.stream, counted, AFTER, later) == Reply.CONFLICT
    assert await notes(stores).note(stores.stream, counted, UserKeys(), later) == Reply.DONE
    assert await notes(stores).note(stores.stream, counted, UserKeys(), later) == Reply.ALREADY
    assert await applied(stores, 1, 2, BOTH) == Reply.DONE
    assert await notes(stores).counted("nobody") is None
    assert await notes(stores).note("nobody", {}, UserKeys(), later) == Reply.CONFLICT


async def set_aside(stores: Stores, position: int, key: bytes) -> Reply:
    """Set three records of ann aside, in two windows."""
    far = [(LAST, 0, "ann"), (LAST + 1, 0, "ann"), (LAST + 1, 1, "ann")]
    change = setting_users_aside(position, position + 1, far, later_mark=key)
    return await stores.store.apply(stores.stream, change)


async def test_records_set_aside_count_under_the_key_of_their_window(stores: Stores) -> None:
    """One user with hashes under both keys would count twice in a window."""
    await opened(stores)
    assert await set_aside(stores, 0, OLD) == Reply.DONE
    await noted(stores)
    assert await set_aside(stores, 1, OLD) == Reply.USER_KEY
    assert await set_aside(stores, 1, NEW) == Reply.DONE
    late = [Cut(FIRST_BIN, 2, LAST - FIRST_BIN)]
    assert await stores.store.take_cuts(stores.stream, HASH, "0", FIRST_BIN - 1, late, 4) == Reply.DONE
    assert await notes(stores).counted(stores.stream) == {LAST: OLD, LAST + 4: NEW}
    assert (await counts(stores, LAST + 1, max_events=3))[-2:] == [[2, 0, 0], [1, 1, 0]]
    assert (await stores.store.operator_counts(stores.stream))["future"] == 2  # under the old key
