"""What a worker does once for all streams over a log, however many there are."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.ledger import ACCEPTED
from stream_app.core.strategy import Strategy
from stream_app.loops import ingest as ingest_loop
from stream_app.loops import slices
from stream_app.loops.lease import Lease, give_up, renew
from stream_app.loops.loaded_streams import LoadedStreams
from stream_app.state import round_trips
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore
from tests.patience import PATIENCE_S
from tests.stream_app.declared import BIN_US, FIRST_BIN, strategy_of
from tests.stream_app.one_source import ByHand, OneSource

STREAMS = 30


def strategies(**facts: Any) -> list[Strategy]:
    """Return streams that count alike, except that every second one waits longer for its bins."""
    return [
        strategy_of(stream=f"s{place:02}", grace_us=place % 2 * BIN_US, **facts) for place in range(STREAMS)
    ]


async def opened(one: OneSource, store: Any = None) -> ByHand:
    """Open all streams, and return their reader once it has begun to read."""
    for strategy in one.strategies:
        await one.closer(strategy, accept=ACCEPTED, store=store).agree()
    ingest = one.ingest(store)
    await ingest.counting.ingest.step()
    return ingest


def counted_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[Any, ...]]:
    """Return a list to which each call of a function appends its arguments."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(owner, name)

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_records_are_assigned_once_for_all_streams_that_count_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(one: OneSource) -> None:
        ingest = await opened(one)
        assigned = counted_calls(monkeypatch, slices, "assign")
        one.append(*[FIRST_BIN + 0.5] * 7)
        while await ingest.counting.ingest.step():
            pass
        assert len(assigned) == 2  # one for each grace
        for strategy in one.strategies:
            assert await one.cells(FIRST_BIN, strategy.stream) == {FIRST_BIN: 7}

    with closing(OneSource(tmp_path, *strategies())) as one:
        asyncio.run(run(one))


def test_streams_that_refuse_the_same_records_share_their_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also streams that count otherwise: every second one has another grace."""

    async def run(one: OneSource) -> None:
        ingest = await opened(one)
        written = counted_calls(monkeypatch, one.letters, "write")
        one.append(FIRST_BIN - 3, FIRST_BIN + 0.5)
        await ingest.step()
        [(refusals, streams)] = written
        assert len(refusals) == 1
        assert sorted(streams) == [strategy.stream for strategy in one.strategies]

    with closing(OneSource(tmp_path, *strategies())) as one:
        asyncio.run(run(one))


@pytest.mark.parametrize(("facts", "at_once"), [({}, STREAMS), ({"max_events": 9}, 2)])
def test_a_turn_packs_the_records_of_few_capped_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, int], at_once: int
) -> None:
    """Cuts wait for the turn, and users' records are packed for each stream anew."""
    monkeypatch.setattr(ingest_loop, "MOST_BINNED", 20)

    async def run(one: OneSource) -> None:
        ingest = await opened(one)
        one.append_of(*[(FIRST_BIN, f"user {number}") for number in range(10)])
        turns = counted_calls(monkeypatch, ingest_loop, "each_to_its_end")
        while await ingest.counting.ingest.step():
            pass
        assert max(map(len, turns)) == at_once
        assert sum(map(len, turns)) == STREAMS

    with closing(OneSource(tmp_path, *strategies(**facts))) as one:
        asyncio.run(run(one))


def test_the_log_s_end_is_asked_once_for_all_streams_whose_bins_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(one: OneSource) -> None:
        ingest = await opened(one)
        asked = counted_calls(monkeypatch, ingest.source, "positions_at")
        one.clock.set_bin(FIRST_BIN + 2.5)
        await ingest.cut()
        [(partitions, instants_us)] = asked
        assert len(partitions) == 1
        assert len(instants_us) == 2  # the ends of both bins; a longer grace ends at the second one, too

    with closing(OneSource(tmp_path, *strategies())) as one:
        asyncio.run(run(one))


@pytest.mark.redis
def test_exchanges_with_redis_do_not_grow_with_the_number_of_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(one: OneSource, url: str) -> None:
        store = RedisStore(url)
        ingest = await opened(one, store)
        one.append(*[now_us / BIN_US] * 7)
        exchanges = counted_calls(monkeypatch, round_trips, "packed")
        assert await ingest.counting.ingest.step() == 7
        # The second exchange sends the script, which the server does not have yet.
        assert [len(commands) for (commands,) in exchanges] == [STREAMS, STREAMS]
        exchanges.clear()
        leases = [Lease(store, strategy.stream, "a") for strategy in one.strategies]
        await renew(leases)
        assert all([await lease.held() for lease in leases])
        assert not await Lease(store, "s00", "b").held()
        await give_up(leases)
        assert [len(commands) for (commands,) in exchanges] == [STREAMS, STREAMS, 1, STREAMS]
        assert await Lease(store, "s00", "b").held()
        await store.close()

    now_us, week_us = time.time_ns() // 1_000, 7 * 86_400_000_000  # the server's own clock closes bins
    long = strategies(bin_us=week_us, first_us=now_us // week_us * week_us)
    with EmbeddedRedis(tmp_path / "redis") as server, closing(OneSource(tmp_path, *long)) as one:
        asyncio.run(run(one, server.worker_url))


def test_a_closer_waits_for_its_reader_without_asking_the_store(tmp_path: Path) -> None:
    async def run(one: OneSource) -> None:
        ingest = await opened(one)
        views: LoadedStreams = ingest.counting.views
        assert not await views.has_reached("s00", FIRST_BIN, 0.0)
        waiting = asyncio.create_task(views.has_reached("s00", FIRST_BIN, PATIENCE_S))
        one.append(FIRST_BIN + 0.5)
        one.clock.set_bin(FIRST_BIN + 1)
        await ingest.cut()
        assert not waiting.done()  # the reader has not counted the record before the cut
        await ingest.counting.ingest.step()
        assert await waiting

    with closing(OneSource(tmp_path, *strategies())) as one:
        asyncio.run(run(one))
