"""Old epochs leave the store: what stays answers as before, and nothing that left is released again."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stream_app.api.answers.streams import summary
from stream_app.api.replica import StreamReplica
from stream_app.api.replicas import Replicas
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.tables import Span
from stream_app.core.records import WitnessRow
from stream_app.core.releases.release import RowLink, row_hash
from stream_app.core.segments.visible_costs import KnownEpochs
from stream_app.loops import recovery
from stream_app.loops.recovery import agrees
from stream_app.outage import Outage
from tests.models.memory import MemoryStore
from tests.patience import ended, eventually_async
from tests.stream_app.declared import BIN_US, FIRST_BIN, SOURCE, STREAM
from tests.stream_app.loops.test_lost_store import KINDS, Departures, release_until, view_of
from tests.stream_app.one_source import OneSource

PLAIN = "tree anticipating"
KEPT = (PLAIN, "axes causal", "windows anticipating", "toeplitz with keys")
EPOCH_BINS = 6
KEEP_US = 3 * BIN_US
MANY = 1_000


@pytest.fixture(params=KEPT)
def one(tmp_path: Path, request: Any) -> Iterator[OneSource]:
    """Yield a service with one noisy stream. Its first bin is 100, and its epochs have six bins."""
    strategy = KINDS[request.param]
    kind = OneSource if strategy.declared.cells.width == 1 else Departures
    with closing(kind(tmp_path, strategy)) as one:
        yield one


plain = pytest.mark.parametrize("one", [PLAIN], indirect=True)


async def trim(one: OneSource, keep_us: int = KEEP_US) -> None:
    """Start a worker, which makes the stream's last rows visible at a public instant."""
    closer = one.closer(sharing={"keep_us": keep_us})
    await closer.reconcile()
    await closer.publisher.publish(one.clock.now_us + 1_000_000)


async def seqs(one: OneSource) -> list[int]:
    return [seq for seq, _ in await one.store.rows(STREAM, 0, MANY)]


def counts(view: StreamView, first: int, last: int) -> list[float]:
    """Return the count of every bin, and of every range that begins with the first one."""
    spans = [Span(bin, bin + 1) for bin in range(first, last)]
    spans += [Span(first, bin + 1) for bin in range(first, last)]
    return [float(view.count(span).value) for span in spans]


async def test_what_stays_answers_as_before(one: OneSource) -> None:
    await release_until(one, FIRST_BIN + 10)
    before = await view_of(one)
    await trim(one)
    after, second = await view_of(one), FIRST_BIN + EPOCH_BINS
    assert await seqs(one) == [7, 8, 9, 10]
    assert after.span == Span(second, FIRST_BIN + 10)
    assert counts(after, second, FIRST_BIN + 10) == counts(before, second, FIRST_BIN + 10)
    assert after.running().value == before.count(Span(second, FIRST_BIN + 10)).value
    assert summary(after).kept_from == "1970-01-01T00:17:40Z" == summary(after).start
    assert summary(before).kept_from is None
    for start, end in ((FIRST_BIN * BIN_US, None), (None, FIRST_BIN * BIN_US)):
        with pytest.raises(QueryError, match="is before 1970-01-01T00:17:40Z, since when releases are"):
            after.bins_between(start, end)


async def test_an_api_that_runs_forgets_what_left(one: OneSource) -> None:
    known = KnownEpochs()
    replica = StreamReplica(one.store.reader(), STREAM, Replicas(one.store.reader()).stated, known)
    await release_until(one, FIRST_BIN + 9)
    await replica.refresh()
    view = replica.view
    assert view is not None
    await trim(one)
    await release_until(one, FIRST_BIN + 10)
    await replica.read_news(10)
    fresh = await view_of(one)
    assert replica.view is view, "it goes on with the rows that it has"
    assert view.shown == fresh.shown
    assert [epoch.record.epoch for epoch in view.epochs] == [1]
    second = FIRST_BIN + EPOCH_BINS
    assert counts(view, second, FIRST_BIN + 10) == counts(fresh, second, FIRST_BIN + 10)
    # What the epoch cost stays known, also if the store loses its ledger now.
    assert {entry.epoch for entry in known.entries(SOURCE)} == {0, 1}


async def test_an_epoch_leaves_at_its_instant_and_the_store_is_not_asked_before(one: OneSource) -> None:
    await release_until(one, FIRST_BIN + 8)
    asked: list[int] = []
    trim_store = one.store.trim

    async def counted(stream: str, before_us: int) -> int:
        asked.append(before_us)
        return await trim_store(stream, before_us)

    one.store.trim = counted  # type: ignore[method-assign]
    closer = one.closer(sharing={"keep_us": KEEP_US})
    await closer.reconcile()
    leaves_us = (FIRST_BIN + EPOCH_BINS) * BIN_US + KEEP_US
    for _ in range(3):
        await closer.publisher.publish(leaves_us - 1)
    assert (asked, await seqs(one)) == ([], list(range(1, 9)))
    assert closer.publisher.wakes_us == leaves_us
    for _ in range(3):
        await closer.publisher.publish(leaves_us)
        await closer.reconcile()
    assert asked == [leaves_us - KEEP_US], "the public instant decides, not the time of the call"
    assert await seqs(one) == [7, 8]


@plain
async def test_old_epochs_of_a_stream_that_has_ended_leave_while_a_worker_runs(one: OneSource) -> None:
    sharing = {"keep_us": 2 * KEEP_US, "until_us": (FIRST_BIN + 8) * BIN_US, "publish_every_us": 1_000}
    await release_until(one, FIRST_BIN + 9, sharing=sharing)
    closer = one.closer(sharing=sharing)
    await closer.close_due()
    outage = Outage(logging.getLogger(), "closer")
    publishing = asyncio.create_task(closer.publisher.run(outage, lambda: False))

    async def kept_from(seq: int) -> bool:
        one.clock.now_us += 1_000
        await closer.close_due()  # as once a minute
        return closer.publisher.all_is_visible and (await seqs(one))[0] == seq

    one.clock.set_bin(FIRST_BIN + EPOCH_BINS + 5)
    await eventually_async(lambda: kept_from(1), "all rows are visible")
    one.clock.set_bin(FIRST_BIN + EPOCH_BINS + 6)
    await eventually_async(lambda: kept_from(7), "the first epoch leaves")
    assert await seqs(one) == [7, 8], "the last epoch stays"
    for later in (20, 1_000):
        one.clock.set_bin(FIRST_BIN + later)
        await closer.close_due()
        assert closer.publisher.wakes_us is None
    await ended(publishing)


@pytest.mark.parametrize("last", [EPOCH_BINS - 2, EPOCH_BINS, EPOCH_BINS + 2])
async def test_a_worker_whose_witness_lacks_rows_that_left_follows(
    one: OneSource, last: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes over after a long time. Its witness may end in an epoch that left, with its end, or later."""
    await release_until(one, FIRST_BIN + last)
    older = deepcopy(one.witness)
    await release_until(one, FIRST_BIN + EPOCH_BINS + 3)
    await trim(one)
    kept = await seqs(one)
    ledger = await one.store.ledger(SOURCE)
    newer, one.witness = one.witness, older
    await release_until(one, FIRST_BIN + EPOCH_BINS + 4)
    one.witness = newer
    await release_until(one, FIRST_BIN + EPOCH_BINS + 5)
    assert await seqs(one) == [*kept, kept[-1] + 1, kept[-1] + 2]
    assert await one.store.ledger(SOURCE) == ledger, "no epoch ended"
    written = [row.seq for row in await older.rows(STREAM, 0)]
    assert written == [*range(1, last + 1), *range(max(last, EPOCH_BINS) + 1, EPOCH_BINS + 5)]
    told = [record.getMessage() for record in caplog.records if "goes on without" in record.message]
    assert ["without the rows 5 to 6" in line for line in told] == [True] * (last < EPOCH_BINS)


async def test_a_witness_that_knows_more_than_what_left_still_ends_the_epoch(one: OneSource) -> None:
    """The store was set back and went on without this witness, whose last bin is beyond what left."""
    await release_until(one, FIRST_BIN + EPOCH_BINS + 4)
    await trim(one)
    kept, [row] = await seqs(one), await one.witness.rows(STREAM, EPOCH_BINS + 3)
    later = json.loads(row.row) | {"seq": 5}
    one.witness.kept[STREAM] = [WitnessRow(5, json.dumps(later).encode(), row.values)]
    state = await one.state()
    head = RowLink.of(one.witness.kept[STREAM][0].row)
    assert (head.seq, state.trimmed.seq, kept[0]) == (5, EPOCH_BINS, EPOCH_BINS + 1)
    assert not await agrees(one.store, one.witness, one.strategies[0])


@pytest.mark.parametrize("how", ["emptied", "backup before", "backup after"])
async def test_a_loss_releases_nothing_again(one: OneSource, how: str) -> None:
    await lose_and_go_on(one, how, 10)


async def lose_and_go_on(one: OneSource, how: str, bins: int) -> None:
    """Remove all epochs but the last one, lose the store four bins later, and compare what comes back."""
    await release_until(one, FIRST_BIN + bins)
    seen = dict(await one.store.rows(STREAM, 0, MANY))
    backup = one.store.copy()
    await trim(one)
    first = (await seqs(one))[0]
    assert first == bins // EPOCH_BINS * EPOCH_BINS + 1
    if how == "backup after":
        backup = one.store.copy()
    await release_until(one, FIRST_BIN + bins + 4)
    seen |= dict(await one.store.rows(STREAM, 0, MANY))
    one.store.restore(MemoryStore() if how == "emptied" else backup)
    await release_until(one, FIRST_BIN + bins + 6)
    rows = dict(await one.store.rows(STREAM, 0, MANY))
    assert list(rows) == list(range(first if how == "backup after" else 1, bins + 7)), "all others are back"
    assert all(row == seen.get(seq, row) for seq, row in rows.items())
    told = [json.loads(row) for row in (seen | rows).values()]
    assert [row["bin"] for row in told] == list(range(FIRST_BIN, FIRST_BIN + bins + 6)), "each once"
    assert all(json.loads(row)["prev"] == row_hash(before) for before, row in pairwise(rows.values()))
    await trim(one)
    lost_at = bins + 5
    assert (await one.store.rows(STREAM, 0, 1))[0] == (bins + 3, seen[bins + 3]), "old epochs leave again"
    assert max(entry.epoch for entry in await one.store.ledger(SOURCE)) == lost_at // EPOCH_BINS + 1


@plain
async def test_what_a_long_history_lost_comes_back(one: OneSource) -> None:
    await lose_and_go_on(one, "backup after", 22)


@plain
async def test_a_recovery_that_looks_for_removed_rows_is_caught(
    one: OneSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant: rows that retention removed count as lost, so what was really lost is not put back."""

    async def holds(store: Any, stream: str, seq: int) -> bool:
        following = await store.rows(stream, seq - 1, 1)
        return bool(following) and following[0][0] == seq

    monkeypatch.setattr(recovery, "holds", holds)
    with pytest.raises(AssertionError, match="all others are back"):
        await lose_and_go_on(one, "backup after", 22)


@plain
async def test_a_witness_that_was_lost_too_is_filled_with_what_stays(one: OneSource) -> None:
    await release_until(one, FIRST_BIN + 10)
    await trim(one)
    kept = dict(await one.store.rows(STREAM, 0, MANY))
    one.witness.kept.clear()
    await trim(one)
    assert {row.seq: row.row for row in await one.witness.rows(STREAM, 0)} == kept
    one.store.restore(MemoryStore())
    await release_until(one, FIRST_BIN + 12)
    rows = dict(await one.store.rows(STREAM, 0, MANY))
    assert list(rows) == list(range(7, 13))
    assert rows.items() >= kept.items()
