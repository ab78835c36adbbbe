"""A second measurement of the same events needs consent, in whatever order the streams begin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from stream_app.api.replicas import Replicas
from stream_app.core.ledger import ACCEPTED, statement
from stream_app.core.records import LedgerEntry, Reply
from stream_app.ports import OperatorError
from stream_app.source_ledger import SourceLedger, measured
from tests.models.memory import MemoryStore
from tests.stream_app.declared import BIN_US, FIRST_BIN, design_of, strategy_of
from tests.stream_app.one_source import OneSource

HORIZON = design_of().horizon
LOG = "file:events.ndjson"


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OneSource]:
    with closing(OneSource(tmp_path)) as one:
        yield one


def live(stream: str, start_us: int = 0, source: str = "people", epsilon: str = "15") -> LedgerEntry:
    """Return the first epoch of a live stream."""
    return LedgerEntry(source, stream, 0, start_us, start_us + 10, epsilon, "event", stream)


@pytest.mark.parametrize("first_bins", [(0, HORIZON), (HORIZON, 0), (0, 100 * HORIZON)])
async def test_a_stream_that_begins_at_an_epoch_s_edge_is_asked_about(
    one: OneSource, first_bins: tuple[int, int]
) -> None:
    """Each stream continues after its first epoch, so both count the events after the later start."""
    first, second = (
        strategy_of(design_of(epsilon=Fraction(15)), stream=name, first_us=(FIRST_BIN + bins) * BIN_US)
        for name, bins in zip("ab", first_bins, strict=True)
    )

    await one.closer(first).reconcile()
    with pytest.raises(OperatorError, match=r"streams\.b\.privacy\.accept is missing.* cost epsilon 30;"):
        await one.closer(second).reconcile()
    assert [stream for stream, _, _ in await one.reserved()] == ["a"]


async def test_no_words_accept_a_sum_that_protects_nobody_at_an_epoch_s_edge() -> None:
    store = MemoryStore()
    await SourceLedger(store).begin(live("a"))
    with pytest.raises(OperatorError, match="cost epsilon 30, which protects nobody"):
        await SourceLedger(store, ACCEPTED).begin(live("b", 10))


async def test_of_two_that_begin_at_the_same_moment_the_second_is_asked() -> None:
    class Slow(MemoryStore):
        """A store that holds back ``reserve`` until both workers have called it.

        So both workers have read the ledger before either entry is in it.
        """

        def __init__(self) -> None:
            super().__init__()
            self.both_asked = asyncio.Barrier(2)

        async def reserve(self, entry: LedgerEntry, after: int | None = None) -> Reply:
            await self.both_asked.wait()
            return await super().reserve(entry, after)

    store = Slow()
    begun = await asyncio.gather(
        *(SourceLedger(store).begin(live(name)) for name in "ab"), return_exceptions=True
    )
    assert sorted(map(type, begun), key=str) == sorted([OperatorError, Reply], key=str)
    [refused] = [name for name, result in zip("ab", begun, strict=True) if result is not Reply.DONE]
    # It is refused again when it starts again, although its entry is in the ledger.
    store.both_asked = asyncio.Barrier(1)
    with pytest.raises(OperatorError, match="accept is missing"):
        await SourceLedger(store).begin(live(refused))


GROUPED, ALONE = ("people", (LOG,)), (LOG, ())


@pytest.mark.parametrize(
    ("before", "after"),
    [(GROUPED, ALONE), (ALONE, GROUPED), (GROUPED, ("others", (LOG,))), (GROUPED, GROUPED), (ALONE, ALONE)],
)
async def test_a_log_is_known_in_whatever_group_it_was_measured(
    before: tuple[str, tuple[str, ...]], after: tuple[str, tuple[str, ...]]
) -> None:
    """The first stream is no longer configured. The second one names another group, or none."""

    store = MemoryStore()
    (one, one_logs), (two, two_logs) = before, after
    await SourceLedger(store, logs=one_logs).begin(live("a", source=one, epsilon="5"))
    new = live("b", 10, two, "6")
    with pytest.raises(OperatorError, match=f"{two} is already measured by a .* cost epsilon 11;"):
        await SourceLedger(store, logs=two_logs).begin(new)
    await SourceLedger(store, ACCEPTED, two_logs).begin(new)
    # The sum stated for the newer source includes both streams.
    assert statement(two, await store.ledger(two)).epsilon == 11
    assert statement(LOG, await store.ledger(LOG)).epsilon == 11


async def test_a_stream_that_is_no_longer_configured_has_not_ended() -> None:
    """The ledger cannot know that the old stream never starts again, so the new one needs consent."""

    store = MemoryStore()
    await SourceLedger(store).begin(live("old"))
    with pytest.raises(OperatorError, match="already measured by old"):
        await SourceLedger(store).begin(live("new", 10**15))


def user_epoch(stream: str, source: str, epoch: int) -> LedgerEntry:
    return replace(live(stream, 10 * epoch, source, "1"), epoch=epoch, unit="user", user="name")


async def test_groups_that_run_beside_each_other_state_one_sum() -> None:
    """Both groups name one log, and both streams reserve further epochs, whose costs add up for a user."""

    store = MemoryStore()
    ledgers = {name: SourceLedger(store, ACCEPTED, (LOG,)) for name in ("g1", "g2")}
    for epoch in range(5):
        for stream, source in (("a", "g1"), ("b", "g2")):
            entry, ledger = user_epoch(stream, source, epoch), ledgers[source]
            await (ledger.begin(entry) if epoch == 0 else ledger.reserve(entry))
    # The second group's sum does not include another log of the first group.
    await SourceLedger(store, ACCEPTED, ("file:others.ndjson",)).reserve(user_epoch("c", "g1", 0))
    api = Replicas(store.reader())
    for source, epsilon in {"g1": 11, "g2": 10, LOG: 10}.items():
        assert (await api.stated(source)).epsilon == epsilon
        assert statement(source, await measured(store, source)).epsilon == epsilon


async def test_an_epoch_that_an_older_version_reserved_is_taken_up() -> None:
    store, entry = MemoryStore(), user_epoch("a", "g1", 0)
    await store.reserve(replace(entry, user=None))
    assert await SourceLedger(store, logs=(LOG,)).begin(entry) is Reply.ALREADY
