"""Settings that change with an epoch: one step of the store, after which it refuses the strategy before."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from stream_app.core.counting.bounding import Bounds
from stream_app.core.kinds import kind_of
from stream_app.core.records import Cut, Reply
from stream_app.core.segments.strategies import strategies_text
from stream_app.ports import OperatorError
from stream_app.state.connection import batch
from stream_app.state.keys import STORED_FORMAT, StreamKeys
from stream_app.state.redis_store import RedisStore
from tests.contracts.conftest import Stores
from tests.contracts.examples import BINS, FIRST_BIN, HASH, NEXT_EPOCH, STRATEGY, TEXT, WIDTH, apply
from tests.contracts.test_store import loaded, opened, release, shown

pytestmark = pytest.mark.anyio

DESIGN = TreeDesign(TreeShape((4,)), BINS, Fraction(2), (Fraction(1),))
CHANGED = replace(STRATEGY, kind=kind_of(DESIGN, WIDTH))
RECORD = replace(NEXT_EPOCH, strategy_hash=CHANGED.hash, changed_from=HASH)
BOTH = strategies_text([TEXT, CHANGED.to_json()])


async def changed(stores: Stores) -> None:
    """Release an epoch, with records of the next one counted, and open the next one changed."""
    await opened(stores)
    await stores.store.apply(stores.stream, apply(0, 5, [(FIRST_BIN + BINS, 1, 3)]))
    state = await release(stores, BINS)
    reply = await stores.store.open_epoch(stores.stream, BOTH, RECORD, state.head, None, b"", TEXT)
    assert reply == Reply.DONE


async def test_the_next_epoch_has_the_other_strategy_and_the_counted_records(stores: Stores) -> None:
    await changed(stores)
    state = await loaded(stores)
    assert state.texts == (TEXT, CHANGED.to_json())
    assert (state.epoch, state.partitions["0"].position) == (RECORD, 5)
    cut = [Cut(FIRST_BIN + BINS, 5)]
    await stores.store.take_cuts(stores.stream, CHANGED.hash, "0", FIRST_BIN + BINS - 1, cut)
    bin = FIRST_BIN + BINS
    assert await stores.store.seal(stores.stream, CHANGED.hash, ["0"], bin) == bin
    assert (await stores.store.read_cells(stores.stream, bin, bin, WIDTH)).tolist() == [[0, 3, 0]]


async def test_calls_of_the_strategy_before_are_refused(stores: Stores) -> None:
    await changed(stores)
    store, stream, last = stores.store, stores.stream, FIRST_BIN + BINS - 1
    assert await store.apply(stream, apply(5, 6, last_cut_bin=last)) == Reply.STRATEGY
    assert await store.take_cuts(stream, HASH, "0", last, [Cut(last + 1, 5)]) == Reply.STRATEGY
    assert await store.start_partition(stream, HASH, "1", 0) == Reply.STRATEGY
    assert await store.seal(stream, HASH, ["0"], last + 1) == last
    bounds = Bounds(STRATEGY.declared.privacy.caps, 1, None, WIDTH)
    assert await store.tally(stream, HASH, bounds, last) == Reply.STRATEGY
    assert await store.open_epoch(stream, TEXT, replace(NEXT_EPOCH, epoch=2), "a" * 64) == Reply.STRATEGY


async def test_a_repeated_change_is_already_done(stores: Stores) -> None:
    await changed(stores)
    head = (await loaded(stores)).head
    open_epoch = stores.store.open_epoch
    assert await open_epoch(stores.stream, BOTH, RECORD, head, None, b"", TEXT) == Reply.ALREADY
    assert await open_epoch(stores.stream, BOTH, RECORD, head) == Reply.ALREADY


async def test_only_the_known_strategies_are_replaced(stores: Stores) -> None:
    await opened(stores)
    state = await release(stores, BINS)
    store, stream = stores.store, stores.stream
    assert await store.open_epoch(stream, BOTH, RECORD, state.head) == Reply.STRATEGY
    assert await store.open_epoch(stream, BOTH, RECORD, state.head, None, b"", b"{}") == Reply.STRATEGY
    assert (await loaded(stores)).texts == (TEXT,)


async def test_readers_know_each_epoch_s_strategy(stores: Stores) -> None:
    await changed(stores)
    await stores.store.publish(stores.stream, BINS - 1)
    public = await shown(stores)
    assert public.texts == (TEXT,)
    await stores.store.publish(stores.stream, BINS)
    public = await shown(stores)
    assert public.texts == (TEXT, CHANGED.to_json())
    assert public.epochs[-1].changed_from == HASH
    rows = await stores.reader.tile_rows(stores.stream, 0, "2", 0, BINS, WIDTH)
    assert rows.shape == (BINS, WIDTH)


async def test_builds_that_know_no_changes_refuse_the_store_and_the_stream(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(stores.store, RedisStore):
        return  # only a real store has a format
    await batch(stores.store.connection, [("DEL", STORED_FORMAT)])  # of the server, and other tests raised it
    await changed(stores)
    keys = StreamKeys(stores.stream)
    asked = [("GET", STORED_FORMAT), ("HGET", keys.epochs, "format"), ("GET", keys.strategy)]
    store_format, stream_format, text = await batch(stores.store.connection, asked)
    assert (store_format, stream_format) == (b"4", b"4")
    assert b'"v":3' in text
    monkeypatch.setattr("stream_app.stored_format.NEWEST", 3)
    with pytest.raises(OperatorError, match="stored format 4, and this build knows formats up to 3"):
        await stores.store.check_format()
    with pytest.raises(OperatorError, match="stored format 4"):
        await stores.store.load(stores.stream)
