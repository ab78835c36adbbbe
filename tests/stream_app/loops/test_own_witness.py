"""Each worker has a witness of its own: who may start with which, and what a follower copies into its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from stream_app.loops import unwitnessed
from stream_app.loops.closer import Closer
from stream_app.loops.lease import Lease
from stream_app.ports import OperatorError
from tests.patience import eventually_async
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.declared import FIRST_BIN, STREAM
from tests.stream_app.loops.test_sharing import EXACT, SharedSource, count_to, visible

pytestmark = pytest.mark.slow


@pytest.fixture
def one(tmp_path: Path) -> Iterator[SharedSource]:
    """Yield a service with one stream whose noise is zero."""
    with closing(SharedSource(tmp_path, EXACT)) as one:
        yield one


def with_own_witness(one: SharedSource, name: str | None, witness: MemoryWitness) -> Closer:
    """Start a worker whose witness is its own. Args: name, of its lease; None: it is the only worker."""
    lease = None if name is None else Lease(one.store, STREAM, name, 60)
    return one.closer(witness=witness, sharing={"lease": lease})


@pytest.mark.parametrize("name", [None, "b"])
def test_a_start_with_another_witness_is_refused_once_readers_have_seen_rows(
    one: SharedSource, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        kept, lost = MemoryWitness(), MemoryWitness()
        first = with_own_witness(one, None, kept)
        await count_to(one, first, FIRST_BIN + 1, FIRST_BIN)
        await first.close_due()
        await with_own_witness(one, name, MemoryWitness()).agree()  # nobody has seen the row
        await Lease(one.store, STREAM, "b").give_up()
        await first.publisher.publish()
        before = await one.store.load(STREAM)
        with pytest.raises(
            OperatorError, match=rf"^stream {STREAM}: Redis has rows up to the bin of .*new-witness$"
        ):
            await with_own_witness(one, name, lost).agree()
        assert lost.kept.get(STREAM, []) == []
        assert await one.store.load(STREAM) == before
        assert await Lease(one.store, STREAM, "other").held(), "a start that is refused holds no lease"
        await Lease(one.store, STREAM, "other").give_up()
        await with_own_witness(one, name, kept).agree()

    monkeypatch.setattr(unwitnessed, "PATIENCE_S", 0.0)  # how long a worker waits for another one
    asyncio.run(run())


def test_a_worker_that_joins_witnesses_what_readers_see_and_may_start_alone_later(one: SharedSource) -> None:
    async def run() -> None:
        closes, joins = MemoryWitness(), MemoryWitness()
        first = with_own_witness(one, "a", closes)
        await count_to(one, first, FIRST_BIN + 2, FIRST_BIN)
        await first.close_due()
        await first.publisher.publish()
        second = with_own_witness(one, "b", joins)
        await second.agree()
        running = asyncio.create_task(second.run())

        async def has_rows() -> bool:
            return joins.kept.get(STREAM) == closes.kept[STREAM]

        await eventually_async(has_rows, "the witness of the worker that joined has the rows")
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await Lease(one.store, STREAM, "a").give_up()
        await with_own_witness(one, "b", joins).agree()

    asyncio.run(run())


def test_after_a_loss_the_worker_that_followed_gives_no_bin_that_it_copied_noise_again(
    one: SharedSource,
) -> None:
    """The machine of the worker that closed is lost, with the store, which comes back from a copy."""

    async def run() -> None:
        closes, follows = MemoryWitness(), MemoryWitness()
        first, second = with_own_witness(one, "a", closes), with_own_witness(one, "b", follows)

        async def show(end: int) -> None:
            await count_to(one, first, end, end - 0.5)
            await first.close_due()
            await first.publisher.publish()

        await show(FIRST_BIN + 1)
        await second.agree()
        await second._own_witness.keep_up(EXACT)
        backup = one.store.copy()
        await show(FIRST_BIN + 4)
        assert len(follows.kept[STREAM]) == 1
        await second._own_witness.keep_up(EXACT)
        assert follows.kept[STREAM] == closes.kept[STREAM], "it goes on copying what readers see"
        copied = [row.row for row in follows.kept[STREAM]]

        one.store.restore(backup)
        one.store._leases.clear()
        again = with_own_witness(one, "b", follows)
        await count_to(one, again, FIRST_BIN + 6, FIRST_BIN + 5)
        await again.close_due()
        rows = [json.loads(row.row) for row in follows.kept[STREAM]]
        assert [row.row for row in follows.kept[STREAM]][: len(copied)] == copied
        assert [row["bin"] for row in rows] == list(range(FIRST_BIN, FIRST_BIN + 6)), "each bin once"
        assert await one.epochs() == [(0, FIRST_BIN, 1), (1, FIRST_BIN + 4, 5)]
        stored = [row for _, row in await one.store.rows(STREAM, 0, 100)]
        assert stored == [row.row for row in follows.kept[STREAM]]

    asyncio.run(run())


def test_a_worker_that_follows_copies_nothing_that_nobody_sees_or_that_does_not_follow_its_rows(
    one: SharedSource,
) -> None:
    async def run() -> None:
        closes, follows = MemoryWitness(), MemoryWitness()
        first, second = with_own_witness(one, "a", closes), with_own_witness(one, "b", follows)
        await count_to(one, first, FIRST_BIN + 2, FIRST_BIN)
        empty = one.store.copy()
        await first.close_due()
        await first.publisher.witness_released(EXACT, await first.reconcile())
        await second._own_witness.keep_up(EXACT)
        assert STREAM not in follows.kept, "a row is copied once readers see it"
        await first.publisher.publish()
        await second._own_witness.keep_up(EXACT)
        assert follows.kept[STREAM] == closes.kept[STREAM]
        kept = list(follows.kept[STREAM])

        # The store is set back, and a worker that knows nothing of it releases the bins again, and one more.
        one.store.restore(empty)
        one.append(FIRST_BIN + 1)
        third = with_own_witness(one, "a", MemoryWitness())
        await count_to(one, third, FIRST_BIN + 3)
        await third.close_due()
        await third.publisher.publish()
        assert await visible(one) == 3
        await second._own_witness.keep_up(EXACT)
        assert follows.kept[STREAM] == kept, "its rows tell it later that the store was set back"

    asyncio.run(run())
