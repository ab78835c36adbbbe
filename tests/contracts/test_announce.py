"""A change of what arrival decides is stored before any record can meet it, in both stores."""

from __future__ import annotations

import pytest

from stream_app.core.arrival import Arrival, ArrivalChange
from stream_app.core.records import Cut, Reply
from stream_app.ports import OperatorError
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import ANNOUNCES, ENDS
from tests.contracts.conftest import Stores
from tests.contracts.examples import BINS, FIRST_BIN, HASH
from tests.contracts.test_store import cut_and_seal, loaded, opened

pytestmark = pytest.mark.anyio
BEFORE = Arrival(0, 1, "next_bin")
CHANGE = ArrivalChange(FIRST_BIN + BINS, BEFORE, Arrival(5_000_000, 2, "drop"))
OTHER = ArrivalChange(FIRST_BIN + BINS, BEFORE, Arrival(0, 1, "dead_letter"))


async def cut(stores: Stores, bin: int, change: ArrivalChange | None) -> Reply:
    """Cut partition 0 at its position with what the caller knows."""
    known = (await loaded(stores)).partitions["0"]
    given = [Cut(bin, known.position)]
    return await stores.store.take_cuts(stores.stream, HASH, "0", known.last_cut_bin, given, change=change)


async def shown(stores: Stores) -> ArrivalChange | None:
    """Return the announcement that readers may see."""
    state = await stores.reader.public_state(stores.stream)
    assert state is not None
    return state.announced


async def test_only_loops_that_know_the_change_take_cuts(stores: Stores) -> None:
    assert await stores.store.announce(stores.stream, 0, None, CHANGE) == Reply.CONFLICT  # never opened
    await opened(stores)
    await cut_and_seal(stores, FIRST_BIN)
    assert (await loaded(stores)).change is None
    assert await stores.store.announce(stores.stream, 0, None, CHANGE) == Reply.DONE
    assert await stores.store.announce(stores.stream, 0, None, CHANGE) == Reply.ALREADY
    assert (await loaded(stores)).change == CHANGE
    assert await cut(stores, FIRST_BIN + 1, None) == Reply.STRATEGY
    assert await cut(stores, FIRST_BIN + 1, OTHER) == Reply.STRATEGY
    assert (await loaded(stores)).partitions["0"].last_cut_bin == FIRST_BIN
    assert await cut(stores, FIRST_BIN + 1, CHANGE) == Reply.DONE


async def test_a_change_is_replaced_only_by_who_saw_it(stores: Stores) -> None:
    await opened(stores)
    await cut_and_seal(stores, FIRST_BIN)
    assert await shown(stores) is None
    await stores.store.announce(stores.stream, 0, None, CHANGE)
    assert await shown(stores) == CHANGE
    assert await stores.store.announce(stores.stream, 0, None, OTHER) == Reply.CONFLICT
    assert await stores.store.announce(stores.stream, 0, CHANGE, OTHER) == Reply.DONE
    assert await shown(stores) == OTHER
    assert await stores.store.announce(stores.stream, 1, OTHER, None) == Reply.CONFLICT  # another epoch
    assert await stores.store.announce(stores.stream, 0, OTHER, None) == Reply.DONE
    assert (await loaded(stores)).change is None
    assert await shown(stores) is None


@pytest.mark.parametrize(
    ("last", "overdue", "reply"),
    [(0, 0, Reply.DONE), (1, 0, Reply.CUTS_CHANGED), (0, 1, Reply.CUTS_CHANGED)],
)
async def test_no_change_is_announced_once_records_could_meet_it(
    stores: Stores, last: int, overdue: int, reply: Reply
) -> None:
    await opened(stores)
    known = (await loaded(stores)).partitions["0"]
    near = ArrivalChange(FIRST_BIN + 3, CHANGE.before, CHANGE.after)
    cuts = [Cut(bin, known.position + 10 + bin) for bin in range(FIRST_BIN, FIRST_BIN + last)]
    cuts.append(Cut(FIRST_BIN + last, known.position + 20 + FIRST_BIN, overdue))
    await stores.store.take_cuts(stores.stream, HASH, "0", known.last_cut_bin, cuts)
    assert await stores.store.announce(stores.stream, 0, None, near) == reply


async def test_an_epoch_that_has_ended_and_a_stopped_stream_announce_nothing(stores: Stores) -> None:
    await opened(stores)
    await cut_and_seal(stores, FIRST_BIN)
    await stores.store.announce(stores.stream, 0, None, CHANGE)
    state = await loaded(stores)
    await stores.store.end_epoch(stores.stream, 0, state.seq, "noise")
    assert await stores.store.announce(stores.stream, 0, CHANGE, OTHER) == Reply.CONFLICT
    await stores.store.stop(stores.stream, 0, state.seq)
    assert (await loaded(stores)).change is None
    assert await stores.store.announce(stores.stream, 0, None, OTHER) == Reply.CONFLICT


async def test_an_older_build_refuses_a_stream_with_an_announced_change(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(stores.store, RedisStore):
        return
    await opened(stores)
    await stores.store.announce(stores.stream, 0, None, CHANGE)
    monkeypatch.setattr("stream_app.stored_format.NEWEST", ENDS)
    with pytest.raises(OperatorError, match=f"stored format {ANNOUNCES}, and this build knows formats up to"):
        await stores.store.load(stores.stream)
