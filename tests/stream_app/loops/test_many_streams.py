"""What a worker does once for all streams over a log, however many there are."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.counting.keys import KeyList, Normalise
from stream_app.core.ledger import ACCEPTED
from stream_app.core.strategy import Strategy
from stream_app.loops import ingest as ingest_loop
from stream_app.loops import slices
from stream_app.loops.lease import Lease, give_up, renew
from stream_app.state import round_trips
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore
from tests.patience import ended
from tests.stream_app.declared import BIN_US, FIRST_BIN, changed, strategy_of
from tests.stream_app.one_source import ByHand, OneSource
from tests.stream_app.product_stream import ProductSource, product_strategy
from tests.world import Struck, World, slow
from tests.world.faults import Call

pytestmark = pytest.mark.slow

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


def test_records_are_assigned_once_for_all_streams_that_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    with World(*strategies()) as world:
        world.start()
        world.until(100.1)
        assigned = counted_calls(monkeypatch, slices, "assign")
        world.arrive(*[100.5] * 7)
        world.until(100.5)
        assert len(assigned) == 2  # one for each grace
        world.until(102.5)
        assert [world.counts(one.stream) for one in world.strategies] == [{100: 7}] * STREAMS


def test_streams_that_refuse_the_same_records_share_their_letters() -> None:
    """Also streams that count otherwise: every second one has another grace."""
    with World(*strategies()) as world:
        letters = Struck(world.letters)
        world.start(letters=letters)
        world.until(100.1)
        world.arrive(97, 100.5)
        world.until(100.5)
        [(refusals, streams)] = letters.calls("write")
        assert len(refusals) == 1
        assert sorted(streams) == [strategy.stream for strategy in world.strategies]


@pytest.mark.parametrize(("facts", "at_once"), [({}, STREAMS), ({"max_events": 9}, 2)])
def test_a_turn_packs_the_records_of_few_capped_streams(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, int], at_once: int
) -> None:
    """Cuts wait for the turn, and users' records are packed for each stream anew."""
    monkeypatch.setattr(ingest_loop, "MOST_BINNED", 20)
    with World(*strategies(**facts)) as world:
        world.start()
        world.until(100.1)
        turns = counted_calls(monkeypatch, ingest_loop, "each_to_its_end")
        world.write(*({"at": FIRST_BIN * BIN_US, "user": f"user {number}"} for number in range(10)))
        world.until(100.5)
        assert max(map(len, turns)) == at_once
        assert sum(map(len, turns)) == STREAMS


async def test_other_tasks_run_between_two_keys_that_a_rule_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule may take long for a value that somebody chose; streams with equal rules make each key once."""
    monkeypatch.setattr(slices, "_TURN_S", -1.0, raising=False)
    rule = Normalise(lower=True, replace=(("c0", "ua"),))
    keys = KeyList("carrier", ("ua", "c1"), True, False, normalise=rule)
    plain = product_strategy(value=False)
    strategy = replace(plain, declared=changed(plain.declared, keys=keys))
    turns, made, real = 0, list[int](), Normalise._made

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def counted(self: Normalise, value: Any) -> Any:
        made.append(turns)
        return real(self, value)

    monkeypatch.setattr(Normalise, "_made", counted)
    with closing(ProductSource(tmp_path, strategy, replace(strategy, stream="second"))) as one:
        ingest = await opened(one)
        one.append_events((FIRST_BIN + 0.5, f"C{number % 50}", None) for number in range(100))
        beside = asyncio.create_task(others())
        assert await ingest.step() == 100
        await ended(beside)
        for stream in ("second", strategy.stream):
            assert one.store.streams[stream].cells == {FIRST_BIN: {0: 2, 1: 2, 2: 96}}
    assert len(made) == len(set(made)) == 50


def test_the_log_s_end_is_asked_once_for_all_streams_whose_bins_close() -> None:
    with World(*strategies()) as world:
        world.run_until(100.1)
        world.until(102.5)
        source = Struck(world.reader())
        world.start(source=source)
        world.until(102.6)
        [(partitions, instants_us)] = source.calls("positions_at")
        assert len(partitions) == 1
        assert len(instants_us) == 2  # the ends of both bins; a longer grace ends at the second one, too


def test_a_closer_waits_for_its_reader_without_asking_the_store() -> None:
    async def late(call: Call) -> Any:
        return await (slow(0.8 * BIN_US / 1e6)(call) if world.now > 100.5 else call())

    with World(strategy_of()) as world:
        store = Struck(world.store)
        world.start(store=store, source=Struck(world.reader(), read=late))
        world.until(100.95)
        world.arrive(100.5)
        asked = len(store.calls("seal"))
        world.until(101.2)  # the cut is taken; the reader has not counted the record before it
        assert world.state().partitions["0"].last_cut_bin == 100
        assert len(store.calls("seal")) == asked
        world.until(102)
        assert len(store.calls("seal")) > asked
        assert world.counts() == {100: 1}


@pytest.mark.redis
async def test_exchanges_with_redis_do_not_grow_with_the_number_of_streams(
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
        await run(one, server.worker_url)
