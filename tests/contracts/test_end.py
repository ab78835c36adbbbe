"""A stream that has an end seals no bin from there on, and the next segment learns what it left."""

from __future__ import annotations

import pytest

from stream_app.core.records import Cut, LateEvents, PartitionCuts, Reply
from stream_app.ports import OperatorError
from stream_app.state.connection import execute
from stream_app.state.keys import StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import CHANGES, ENDS, TRIMMED
from tests.contracts.conftest import Stores
from tests.contracts.examples import BINS, FIRST_BIN, HASH, apply
from tests.contracts.test_store import cut_and_seal, loaded, opened

pytestmark = pytest.mark.anyio
END = FIRST_BIN + 2


async def cut_and_ask(stores: Stores, bin: int) -> int:
    """Cut partition 0 at its position; return the last bin that is then sealed."""
    known = (await loaded(stores)).partitions["0"]
    cut = Cut(bin, known.position)
    await stores.store.take_cuts(stores.stream, HASH, "0", known.last_cut_bin, [cut])
    return await stores.store.seal(stores.stream, HASH, ["0"], bin)


async def test_no_bin_is_sealed_beyond_the_end(stores: Stores) -> None:
    assert await stores.store.end_at(stores.stream, END) == Reply.CONFLICT  # it was never opened
    await opened(stores)
    await cut_and_seal(stores, FIRST_BIN)
    assert (await loaded(stores)).until_bin is None
    assert await stores.store.end_at(stores.stream, END) == Reply.DONE
    assert await cut_and_ask(stores, FIRST_BIN + BINS - 1) == END - 1
    state = await loaded(stores)
    assert (state.sealed_bin, state.until_bin) == (END - 1, END)
    assert await stores.store.end_at(stores.stream, END) == Reply.ALREADY


async def test_an_end_never_moves_and_no_sealed_bin_is_beyond_it(stores: Stores) -> None:
    await opened(stores)
    await cut_and_seal(stores, END)
    assert await stores.store.end_at(stores.stream, END) == Reply.SEALED
    assert await stores.store.end_at(stores.stream, END + 1) == Reply.DONE
    assert await stores.store.end_at(stores.stream, END + 2) == Reply.CONFLICT
    assert (await loaded(stores)).until_bin == END + 1


async def test_an_older_build_refuses_a_stream_with_an_end(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(stores.store, RedisStore):
        return
    await opened(stores)
    await stores.store.end_at(stores.stream, END)
    monkeypatch.setattr("stream_app.stored_format.NEWEST", CHANGES)
    with pytest.raises(OperatorError, match=f"stored format {ENDS}, and this build knows formats up to"):
        await stores.store.load(stores.stream)


async def test_an_end_does_not_lower_the_format_of_a_stream(stores: Stores) -> None:
    if not isinstance(stores.store, RedisStore):
        return
    connection, epochs = stores.store.connection, StreamKeys(stores.stream).epochs
    await opened(stores)
    await execute(connection, "HSET", epochs, "format", TRIMMED)  # old epochs have left
    assert await stores.store.end_at(stores.stream, END) == Reply.DONE
    assert int(await execute(connection, "HGET", epochs, "format")) == TRIMMED


async def test_where_the_last_bin_is_cut_is_kept_for_the_next_segment(stores: Stores) -> None:
    await opened(stores)
    store, stream, last = stores.store, stores.stream, END - 1
    assert await store.start_partition(stream, HASH, "1", 7) == Reply.DONE
    assert await store.end_at(stream, END, late_to_next=True) == Reply.DONE
    assert (await loaded(stores)).late_from == {}
    await store.take_cuts(stream, HASH, "1", FIRST_BIN - 1, [Cut(last - 1, 8)])
    assert (await loaded(stores)).late_from == {}
    await store.take_cuts(stream, HASH, "1", last - 1, [Cut(last, 9), Cut(last + 1, 11)])
    await store.take_cuts_together(stream, HASH, [PartitionCuts("1", last + 1, [Cut(last + 2, 12)])])
    await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, [Cut(last + 2, 0)])
    assert (await loaded(stores)).late_from == {"0": 0, "1": 9}
    # What begins after the last bin belongs to the next segment.
    await store.apply(stream, apply(7, 9, last_cut_bin=last + 2, partition="1"))
    assert await store.seal(stream, HASH, ["0", "1"], last) == last
    assert await store.start_partition(stream, HASH, "2", 5) == Reply.DONE
    assert (await loaded(stores)).late_from == {"0": 0, "1": 9, "2": 5}
    assert await store.end_at(stream, END, late_to_next=True) == Reply.ALREADY
    assert (await loaded(stores)).late_from == {"0": 0, "1": 9, "2": 5}


async def test_an_end_that_comes_after_the_last_cut_hands_nothing_over(stores: Stores) -> None:
    await opened(stores)
    store, stream = stores.store, stores.stream
    await store.take_cuts(stream, HASH, "0", FIRST_BIN - 1, [Cut(END - 1, 3)])
    assert await store.end_at(stream, END, late_to_next=True) == Reply.DONE
    assert (await loaded(stores)).late_from is None


async def test_an_end_that_is_stored_already_can_still_hand_over(stores: Stores) -> None:
    await opened(stores)
    assert await stores.store.end_at(stores.stream, END) == Reply.DONE
    assert (await loaded(stores)).late_from is None
    assert await stores.store.end_at(stores.stream, END + 1, late_to_next=True) == Reply.CONFLICT
    assert await stores.store.end_at(stores.stream, END, late_to_next=True) == Reply.ALREADY
    assert (await loaded(stores)).late_from == {}


async def test_a_partition_keeps_what_it_takes_over(stores: Stores) -> None:
    await opened(stores)
    taken = LateEvents(position=12, since_bin=-3)
    assert await stores.store.start_partition(stores.stream, HASH, "1", 5, taken) == Reply.DONE
    assert await stores.store.start_partition(stores.stream, HASH, "1", 5, taken) == Reply.ALREADY
    state = await loaded(stores)
    assert (state.partitions["1"].late_before, state.partitions["0"].late_before) == (taken, None)
