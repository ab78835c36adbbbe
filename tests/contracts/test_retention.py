"""Old epochs leave both stores whole, the oldest first; the place and the hash of the last row stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.records import EpochRecord, Reply, StreamState
from stream_app.core.releases.release import row_hash
from stream_app.core.segments.retention import tiles_of
from stream_app.ports import OperatorError
from stream_app.state.connection import batch
from stream_app.state.keys import StreamKeys
from stream_app.state.redis_store import RedisStore
from stream_app.stored_format import ENDS, TRIMMED
from tests.contracts.conftest import Stores
from tests.contracts.examples import BINS, EPOCH, FIRST_BIN, NEXT_EPOCH, TEXT, WIDTH, release_of
from tests.contracts.test_put_back import lost
from tests.contracts.test_store import loaded, opened, release, shown
from tests.stream_app.declared import BIN_US

pytestmark = pytest.mark.anyio
ENDED_US = (FIRST_BIN + BINS) * BIN_US  # the end of the first epoch
LATER = 10**15


async def two_epochs(stores: Stores, second: int = 1, visible: int = BINS + 1) -> StreamState:
    """Release the first epoch, and ``second`` bins of the next one."""
    await opened(stores)
    state = await release(stores, BINS)
    await stores.store.open_epoch(stores.stream, TEXT, NEXT_EPOCH, state.head)
    state = await release(stores, second) if second else await loaded(stores)
    assert await stores.store.visible_seq(stores.stream) == 0
    await stores.store.publish(stores.stream, visible)
    assert await stores.store.visible_seq(stores.stream) == visible
    return state


async def seen(stores: Stores) -> tuple[list[int], list[int]]:
    """Return the visible rows and the epochs that a reader finds."""
    state = await shown(stores)
    rows = await stores.reader.rows(stores.stream, 0, 100)
    return [seq for seq, _ in rows], [epoch.epoch for epoch in state.epochs]


async def test_an_old_epoch_leaves_and_the_stream_goes_on(stores: Stores) -> None:
    before = await two_epochs(stores)
    rows = dict(await stores.store.rows(stores.stream, 0, 100))
    oldest = await stores.store.oldest_epoch(stores.stream)
    assert oldest == replace(EPOCH, last_bin=FIRST_BIN + BINS - 1, end_reason="complete")
    assert await stores.store.trim(stores.stream, ENDED_US) == 1
    public = await shown(stores)
    assert public.trimmed.seq == BINS
    assert (public.trimmed.epoch, public.trimmed.bin) == (0, FIRST_BIN + BINS - 1)
    assert public.trimmed.hash == row_hash(rows[BINS])
    assert await seen(stores) == ([BINS + 1], [1])
    with pytest.raises(OSError, match="epoch 0 left the store meanwhile"):
        await stores.reader.tile_rows(stores.stream, 0, PUBLISHED, 0, 1, WIDTH)
    assert (await stores.reader.tile_rows(stores.stream, 1, PUBLISHED, 0, 1, WIDTH)).shape == (1, WIDTH)
    # What decides the next release has not changed.
    assert await loaded(stores) == replace(before, trimmed=public.trimmed)
    assert await stores.store.oldest_epoch(stores.stream) == before.epoch
    assert await stores.store.trim(stores.stream, LATER) == 0
    await release(stores, BINS - 1)
    assert [seq for seq, _ in await stores.store.rows(stores.stream, 0, 100)] == [5, 6, 7, 8]


async def test_no_tile_of_an_epoch_that_left_stays(stores: Stores) -> None:
    await two_epochs(stores)
    assert await stores.store.trim(stores.stream, ENDED_US) == 1
    if isinstance(stores.store, RedisStore):
        ended = replace(EPOCH, last_bin=FIRST_BIN + BINS - 1, end_reason="complete")
        names = map(StreamKeys(stores.stream).tile, tiles_of((TEXT,), ended))
        assert await batch(stores.store.connection, [("EXISTS", *names)]) == [0]


async def test_young_epochs_stay(stores: Stores) -> None:
    await two_epochs(stores)
    assert await stores.store.trim(stores.stream, ENDED_US - 1) == 0
    assert await seen(stores) == ([1, 2, 3, 4, 5], [0, 1])


async def test_a_running_epoch_stays(stores: Stores) -> None:
    await opened(stores)
    await release(stores, BINS - 1)
    await stores.store.publish(stores.stream, BINS - 1)
    assert await stores.store.trim(stores.stream, LATER) == 0
    assert await seen(stores) == ([1, 2, 3], [0])


async def test_an_epoch_stays_until_readers_see_a_row_after_it(stores: Stores) -> None:
    assert await stores.store.trim(stores.stream, LATER) == 0  # it was never opened
    await two_epochs(stores, visible=BINS)
    assert await stores.store.trim(stores.stream, LATER) == 0
    assert await seen(stores) == ([1, 2, 3, 4], [0, 1])
    await stores.store.publish(stores.stream, BINS + 1)
    assert await stores.store.trim(stores.stream, LATER) == 1


def outdated(patched: pytest.MonkeyPatch) -> None:
    """Let a worker ask for every epoch to be removed, as if the store had changed since it looked."""
    patched.setattr("stream_app.state.epochs.removable", lambda _texts, epochs, *_: epochs)
    patched.setattr(EpochRecord, "final_seq", property(lambda epoch: epoch.first_seq + BINS - 1))


async def test_what_a_worker_saw_before_others_changed_it_removes_no_last_row(stores: Stores) -> None:
    if not isinstance(stores.store, RedisStore):
        return
    await two_epochs(stores, visible=BINS)
    with pytest.MonkeyPatch.context() as patched:
        outdated(patched)
        assert await stores.store.trim(stores.stream, 0) == 0
    assert await seen(stores) == ([1, 2, 3, 4], [0, 1])


async def test_what_a_worker_saw_before_others_changed_it_removes_no_running_epoch(stores: Stores) -> None:
    if not isinstance(stores.store, RedisStore):
        return
    await two_epochs(stores)
    with pytest.MonkeyPatch.context() as patched:
        outdated(patched)
        patched.setattr(EpochRecord, "final_seq", property(lambda epoch: epoch.first_seq - 1))
        assert await stores.store.trim(stores.stream, 0) == 1
    assert await seen(stores) == ([1, 2, 3, 4, 5], [1])


async def test_what_a_worker_saw_before_others_changed_it_removes_no_epoch_before_an_older_one(
    stores: Stores,
) -> None:
    if not isinstance(stores.store, RedisStore):
        return
    state = await two_epochs(stores, second=BINS)
    third = replace(NEXT_EPOCH, epoch=2, first_bin=FIRST_BIN + 2 * BINS, first_seq=1 + 2 * BINS)
    await stores.store.open_epoch(stores.stream, TEXT, third, state.head)
    await release(stores, 1)
    await stores.store.publish(stores.stream, 2 * BINS + 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stream_app.state.epochs.removable", lambda _texts, epochs, *_: epochs[1:2])
        assert await stores.store.trim(stores.stream, LATER) == 0
    assert (await seen(stores))[1] == [0, 1, 2]
    assert await stores.store.trim(stores.stream, LATER) == 2  # one after the other
    assert await seen(stores) == ([9], [2])


async def test_removed_rows_do_not_come_back(stores: Stores) -> None:
    await two_epochs(stores)
    await stores.store.trim(stores.stream, ENDED_US)
    third = replace(NEXT_EPOCH, epoch=2, first_bin=FIRST_BIN + 2 * BINS, first_seq=1 + 2 * BINS)
    assert await stores.store.open_epoch(stores.stream, TEXT, third, "e" * 64) == Reply.DONE
    assert await stores.store.put_back(stores.stream, lost(1, BINS)) == Reply.CONFLICT
    assert (await seen(stores))[0] == [BINS + 1]


async def test_a_removed_release_cannot_be_repeated(stores: Stores) -> None:
    first = release_of(await opened(stores), BINS)
    await release(stores, BINS)
    state = await loaded(stores)
    await stores.store.open_epoch(stores.stream, TEXT, NEXT_EPOCH, state.head)
    await release(stores, 1)
    await stores.store.publish(stores.stream, BINS + 1)
    await stores.store.trim(stores.stream, ENDED_US)
    assert await stores.store.release(stores.stream, first) == Reply.CONFLICT
    assert await stores.store.open_epoch(stores.stream, TEXT, EPOCH, "0" * 64) == Reply.CONFLICT
    assert await seen(stores) == ([BINS + 1], [1])


async def test_an_older_build_refuses_a_trimmed_stream(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(stores.store, RedisStore):
        return
    await two_epochs(stores)
    await stores.store.trim(stores.stream, ENDED_US)
    monkeypatch.setattr("stream_app.stored_format.NEWEST", ENDS)
    with pytest.raises(OperatorError, match=f"stored format {TRIMMED}, and this build knows formats up to"):
        await stores.store.load(stores.stream)
