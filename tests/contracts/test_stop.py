"""A stream that stops or ends counts and seals nothing further, and no exact count of it stays."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream_app.core.budget import Total
from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import Cut, LateEvents, Reply
from stream_app.core.store_writes import PartitionCuts
from stream_app.ports import OperatorError
from stream_app.source_ledger import SourceLedger, TotalSpent
from stream_app.state import epochs
from stream_app.state.connection import execute, script
from stream_app.state.keys import StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import CHANGES, ENDS, TRIMMED
from tests.contracts.conftest import Stores
from tests.contracts.examples import (
    BINS,
    ENTRY,
    FIRST_BIN,
    HASH,
    NEXT_EPOCH,
    TEXT,
    WIDTH,
    apply,
    of_users,
    setting_aside,
)
from tests.contracts.test_cap import untallied
from tests.contracts.test_store import cut_and_seal, loaded, opened, release, shown

pytestmark = pytest.mark.anyio
LATER = FIRST_BIN + BINS  # the first bin after the epoch
CUT = FIRST_BIN + BINS - 1  # the last bin with a cut


async def complete(stores: Stores) -> None:
    """Release an epoch, with records of later bins counted and set aside."""
    await opened(stores)
    await stores.store.apply(stores.stream, apply(0, 5, [(LATER, 1, 3), (LATER + 2, 0, 1)]))
    await release(stores, BINS)
    aside = setting_aside(5, 6, [(LATER + 9, 0, 1)], [(LATER + 9, 5)], last_cut_bin=CUT)
    assert await stores.store.apply(stores.stream, aside) == Reply.DONE


async def counts_after_reopening(stores: Stores) -> list[int]:
    """Open the next epoch and return the counts of its cells, with those that its next cut accepts."""
    state = await loaded(stores)
    assert await stores.store.open_epoch(stores.stream, TEXT, NEXT_EPOCH, state.head) == Reply.DONE
    cut = Cut(LATER + 5, 100, overdue=9)
    taken = await stores.store.take_cuts(stores.stream, HASH, "0", CUT, [cut], max_ahead_bins=99)
    assert taken == Reply.DONE
    position = (await loaded(stores)).partitions["0"].position
    moved = apply(position, 100, last_cut_bin=LATER + 5, epoch=1)
    assert await stores.store.apply(stores.stream, moved) == Reply.DONE
    await cut_and_seal(stores, LATER + 10)
    counts = await stores.store.read_cells(stores.stream, LATER, LATER + 10, WIDTH)
    return [int(count) for count in counts.sum(axis=0)]


async def test_a_stop_deletes_what_was_counted_for_later_bins(stores: Stores) -> None:
    await complete(stores)
    assert not (await loaded(stores)).stopped
    assert (await loaded(stores)).counter
    assert await stores.store.stop(stores.stream, 0, BINS) == Reply.DONE
    assert (await loaded(stores)).stopped
    assert not (await loaded(stores)).counter
    assert await stores.store.stop(stores.stream, 0, BINS) == Reply.DONE
    assert await counts_after_reopening(stores) == [0, 0, 0]


async def test_without_a_stop_later_bins_keep_their_counts(stores: Stores) -> None:
    await complete(stores)
    assert await counts_after_reopening(stores) == [2, 3, 0]


async def test_a_stopped_stream_reads_on_and_counts_nothing(stores: Stores) -> None:
    await complete(stores)
    await stores.store.stop(stores.stream, 0, BINS)
    for change in (
        apply(6, 9, [(LATER, 0, 1)], last_cut_bin=CUT),
        setting_aside(6, 9, [(LATER, 0, 1)], last_cut_bin=CUT),
    ):
        assert await stores.store.apply(stores.stream, change) == Reply.SEALED
    assert await stores.store.apply(stores.stream, apply(6, 9, last_cut_bin=CUT)) == Reply.DONE
    assert (await loaded(stores)).partitions["0"].position == 9
    assert await counts_after_reopening(stores) == [0, 0, 0]
    assert not (await loaded(stores)).stopped


async def test_a_stop_deletes_the_users_of_later_bins(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(stores.stream, of_users(0, 5, [(LATER, 1, "ann"), (LATER + 1, 1, "bob")]))
    await release(stores, BINS)
    assert await stores.store.stop(stores.stream, 0, BINS) == Reply.DONE
    assert not await untallied(stores)
    state = await loaded(stores)
    assert await stores.store.open_epoch(stores.stream, TEXT, NEXT_EPOCH, state.head) == Reply.DONE
    # Another key of users would be refused if anything of an open window were left.
    change = of_users(5, 6, [(LATER, 1, "ann")], last_cut_bin=CUT, key_mark=b"1" * 16)
    assert await stores.store.apply(stores.stream, replace(change, epoch=1)) == Reply.DONE


async def test_a_stop_deletes_what_a_partition_sets_aside_that_appears_meanwhile(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await complete(stores)
    if isinstance(stores.store, RedisStore):
        stop = script("stop")

        async def after_another_worker(*call: Any) -> Any:
            """Let another worker read a new partition between the reading of keys and the first call."""
            monkeypatch.undo()
            await another_partition(stores)
            return await stop(*call)

        monkeypatch.setattr(epochs, "script", lambda name: after_another_worker)
    else:
        await another_partition(stores)
    assert await stores.store.stop(stores.stream, 0, BINS) == Reply.DONE
    state = await loaded(stores)
    assert state.partitions.keys() == {"0", "1"}
    assert await stores.store.open_epoch(stores.stream, TEXT, NEXT_EPOCH, state.head) == Reply.DONE
    for partition, last in (("0", CUT), ("1", state.partitions["1"].last_cut_bin)):
        cut = Cut(LATER + 5, 100, overdue=9)
        taken = await stores.store.take_cuts(stores.stream, HASH, partition, last, [cut], max_ahead_bins=99)
        assert taken == Reply.DONE
        position = (await loaded(stores)).partitions[partition].position
        moved = apply(position, 100, last_cut_bin=LATER + 5, partition=partition, epoch=1)
        assert await stores.store.apply(stores.stream, moved) == Reply.DONE
    assert await stores.store.seal(stores.stream, HASH, ["0", "1"], LATER + 5) == LATER + 5
    assert not (await stores.store.read_cells(stores.stream, LATER, LATER + 5, WIDTH)).any()


async def another_partition(stores: Stores) -> None:
    """Start a partition, of which a record is set aside and nothing counted."""
    assert await stores.store.start_partition(stores.stream, HASH, "1", 0) == Reply.DONE
    last = (await loaded(stores)).partitions["1"].last_cut_bin
    aside = setting_aside(0, 1, [(LATER + 4, 0, 1)], [(LATER + 4, 0)], last_cut_bin=last)
    assert await stores.store.apply(stores.stream, replace(aside, partition="1")) == Reply.DONE


async def test_a_running_epoch_is_not_stopped(stores: Stores) -> None:
    await opened(stores)
    await stores.store.apply(stores.stream, apply(0, 5, [(FIRST_BIN + 1, 1, 3)]))
    await release(stores, 1)
    for epoch, seq in ((0, 1), (1, 1), (0, 0)):
        assert await stores.store.stop(stores.stream, epoch, seq) == Reply.CONFLICT
    assert not (await loaded(stores)).stopped
    await cut_and_seal(stores, FIRST_BIN + 1)
    counts = await stores.store.read_cells(stores.stream, FIRST_BIN + 1, FIRST_BIN + 1, WIDTH)
    assert counts.tolist() == [[0, 3, 0]]


async def test_a_worker_that_has_not_seen_the_last_release_stops_nothing(stores: Stores) -> None:
    await complete(stores)
    assert await stores.store.stop(stores.stream, 0, BINS - 1) == Reply.CONFLICT
    assert not (await loaded(stores)).stopped


async def test_an_entry_is_written_only_after_the_entries_that_were_seen(stores: Stores) -> None:
    entries = [replace(ENTRY, source=stores.stream, epoch=epoch) for epoch in range(3)]
    assert await stores.store.reserve(entries[0], 0) == Reply.DONE
    assert await stores.store.reserve(entries[1], 0) == Reply.CONFLICT
    assert await stores.store.reserve(entries[1], 1) == Reply.DONE
    assert await stores.store.reserve(entries[1], 0) == Reply.ALREADY
    assert await stores.store.ledger(stores.stream) == tuple(entries[:2])


async def test_streams_that_ask_at_the_same_moment_stay_within_their_total(stores: Stores) -> None:
    ledger = SourceLedger(stores.store, ACCEPTED, total=Total(Fraction(3)))

    async def ask(number: int) -> bool:
        entry = replace(ENTRY, source=stores.stream, stream=f"s{number}", unit="user", user="name")
        with suppress(TotalSpent):
            return await ledger.reserve_within_total(entry) is Reply.DONE
        return False

    assert sum(await asyncio.gather(*map(ask, range(9)))) == 3
    assert len(await stores.store.ledger(stores.stream)) == 3


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


async def test_the_mark_comes_and_goes_and_changes_nothing_else(stores: Stores) -> None:
    assert await stores.store.mark_halted(stores.stream, True) == Reply.CONFLICT  # it was never opened
    assert await stores.store.load(stores.stream) is None
    await opened(stores)
    before = await loaded(stores)
    seen = await stores.reader.public_state(stores.stream)
    for mark, reply in (
        (True, Reply.DONE),
        (True, Reply.ALREADY),
        (False, Reply.DONE),
        (False, Reply.ALREADY),
    ):
        assert await stores.store.mark_halted(stores.stream, mark) == reply
        assert await loaded(stores) == replace(before, halted=mark)
        now = await shown(stores)
        assert now.halted == mark
        assert now == seen
