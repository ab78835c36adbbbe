"""No record may delay a cut, or other records would count in other bins."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from stream_app.core.incoming import Reason
from stream_app.core.records import Cut, History, Reply
from stream_app.core.segments.history import history_text
from stream_app.core.store_writes import PartitionCuts
from stream_app.loops import dead_letters as writing
from stream_app.loops.cutting import MOST_CUTS, calls_of
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.ports import OperatorError
from stream_app.wiring.pipeline import Counting
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM, strategy_of
from tests.world import Struck, World, first, raising, slow
from tests.world.faults import Call

BIN_S = BIN_US / 1e6
TWELVE = [f"p{number}" for number in range(12)]


@pytest.fixture
def world() -> Iterator[World]:
    """Yield a world with one stream."""
    with World(strategy_of()) as world:
        yield world


def count(world: World, until: float, **ports: Any) -> list[str]:
    """Cut and count from bin 100 on, without a closer; return the streams that were compared again."""
    world.run_until(100)
    agreed: list[str] = []

    async def agree(stream: str) -> None:
        agreed.append(stream)

    names = [one.stream for one in world.strategies]
    running = world.loop.create_task(Counting.over(world.ports(**ports), names, agree=agree).run())
    world.until(until)
    assert not running.done(), running.exception()
    running.cancel()
    world.run(_ended(running))
    return agreed


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def late_ms(world: World, store: Struck, partition: str = "0", stream: str = STREAM) -> list[int]:
    """Return how late the store was asked for each cut of a partition, in order, in milliseconds."""
    found: dict[int, int] = {}
    for (name, arguments), at_s in zip(store.asked, store.at_s, strict=True):
        if not name.startswith("take_cuts") or arguments[0] != stream:
            continue
        together = name == "take_cuts_together"
        for one in arguments[2] if together else [PartitionCuts(*arguments[2:5])]:
            for bin in range(one.expected_last_cut_bin + 1, one.cuts[-1].bin + 1):
                if one.partition == partition:
                    late_us = world.start_us + round(at_s * 1e6) - (bin + 1) * BIN_US
                    found.setdefault(bin, late_us // 1_000)
    return [found[bin] for bin in sorted(found)]


def test_a_source_that_fails_delays_no_cut(world: World) -> None:
    """A record whose schema is not known yet makes each read fail. This raises no doubt about the store."""

    async def fails(call: Call) -> Any:
        await asyncio.sleep(0.1)
        raise ConnectionError("schema registry: no answer")

    store = Struck(world.store)
    agreed = count(world, 105.5, store=store, source=Struck(world.reader(), read=fails))
    assert late_ms(world, store) == [0] * 5
    assert agreed == [STREAM]


def test_a_log_that_does_not_say_where_it_ends_is_no_doubt_about_the_store(world: World) -> None:
    silent = first(raising(ConnectionError("kafka: no answer")), calls=3)
    store = Struck(world.store)
    agreed = count(world, 103.5, store=store, source=Struck(world.reader(), positions_at=silent))
    assert len(late_ms(world, store)) == 3
    assert agreed == [STREAM]


def test_a_store_that_fails_is_asked_anew_once_it_agrees_with_the_witness(world: World) -> None:
    store = Struck(world.store, take_cuts=first(raising(ConnectionError("the reply was lost"))))
    agreed = count(world, 102.5, store=store)
    assert len(store.calls("take_cuts")) == 3
    assert late_ms(world, store) == [0, 0]
    assert agreed == [STREAM] * 2


@pytest.mark.parametrize("future", [[], [1000]])
def test_letters_of_records_from_the_future_delay_no_cut(world: World, future: list[int]) -> None:
    """A slow write of a refused record must not move another user's late record into another bin."""
    world.start(letters=Struck(world.letters, write=slow(1.7 * BIN_S)))
    for instant, times in ((100.5, [100.5]), (104.5, future), (106.5, [101.5])):
        world.until(instant)
        world.arrive(*times)
    world.until(109)
    assert world.counts() == {FIRST_BIN: 1, FIRST_BIN + 6: 1}
    assert len(world.letters.kept) == len(future)


@pytest.mark.parametrize("most", [1, 1_000])
def test_each_record_that_is_refused_while_letters_are_written_gets_its_letter(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(writing, "MOST_LETTERS", most)
    with World(strategy_of(), partitions=["p0", "p1"]) as world:
        world.start(letters=Struck(world.letters, write=slow(1.3 * BIN_S)))
        for bin in range(100, 106):
            world.until(bin + 0.5)
            for partition in ("p0", "p1"):
                world.arrive(1000, partition=partition)
        world.until(120)
        letters = {(one.partition, one.position, one.reason) for one in world.letters.kept}
        assert letters == {(name, at, Reason.FUTURE) for name in ("p0", "p1") for at in range(6)}
        assert world.secrets().letters_to_write == []


def test_a_letter_ahead_for_which_no_thread_starts_is_written_later(world: World) -> None:
    world.arrive(1000)
    world.start(letters=Struck(world.letters, write=first(raising(RuntimeError("can't start new thread")))))
    world.until(120)
    assert world.letters.reasons() == [Reason.FUTURE]


def test_streams_whose_cuts_refuse_the_same_records_share_their_letters() -> None:
    streams = [f"s{number:02}" for number in range(40)]
    with World(*(strategy_of(stream=name) for name in streams)) as world:
        world.arrive(1000)
        # The first cuts' letters take a while; meanwhile all others are stored.
        letters = Struck(world.letters, write=slow(0.2 * BIN_S))
        world.start(letters=letters)
        world.until(103.5)
        assert sorted(map(str, world.letters.streams)) == streams
        assert len(letters.calls("write")) <= 2
        assert all(world.secrets(name).letters_to_write == [] for name in streams)


def test_letters_of_all_partitions_are_asked_for_together() -> None:
    under_way, most = [0], [0]

    async def counted(call: Call) -> Any:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.sleep(0.1)
        under_way[0] -= 1
        return await call()

    with World(strategy_of(), partitions=TWELVE) as world:
        world.start(store=Struck(world.store, refused_ahead=counted))
        world.until(103.5)
    assert most == [12]


class SlowCuts:
    """A store that needs long for the cuts of the partition p0 of a stream, as if records were set aside."""

    def __init__(self, store: Any) -> None:
        self.store, self.busy, self.most = store, 0, 0

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            return await getattr(self.store, name)(*arguments)

        return call

    async def take_cuts(self, stream: str, *rest: Any) -> Reply:
        if (stream, rest[1]) == (STREAM, "p0"):
            self.busy += 1
            self.most = max(self.most, self.busy)
            await asyncio.sleep(2.25 * BIN_S)
            self.busy -= 1
        reply: Reply = await self.store.take_cuts(stream, *rest)
        return reply

    async def take_cuts_together(
        self, stream: str, hash: str, taken: Sequence[PartitionCuts], *change: Any
    ) -> list[Reply]:
        quick = [one for one in taken if (stream, one.partition) != (STREAM, "p0")]
        replies = iter(await self.store.take_cuts_together(stream, hash, quick, *change))
        return [next(replies) if one in quick else Reply.SET_ASIDE for one in taken]


def test_a_cut_that_takes_long_to_store_delays_cuts_of_its_stream_and_partition_only() -> None:
    """A cut takes longer to store if many records are set aside before it."""
    with World(strategy_of(), strategy_of(stream="second"), partitions=["p0", "p1"]) as world:
        slow_cuts = SlowCuts(world.store)
        store = Struck(slow_cuts)
        count(world, 108.5, store=store)
        for stream, partition in ((STREAM, "p1"), ("second", "p0"), ("second", "p1")):
            assert late_ms(world, store, partition, stream) == [0] * 8
        # Cuts of the slow partition wait for one another, and bins that closed meanwhile share one cut.
        assert late_ms(world, store, "p0") == [0, 12_500, 2_500, 15_000, 5_000, 17_500, 7_500]
        assert slow_cuts.most == 1


def test_one_call_stores_the_cuts_of_all_partitions_of_a_stream() -> None:
    with World(strategy_of(), strategy_of(stream="second"), partitions=TWELVE) as world:
        store = Struck(world.store)
        world.start(store=store)
        world.until(103.5)
        calls = Counter((stream, len(taken)) for stream, _, taken, *_ in store.calls("take_cuts_together"))
        assert calls == {(STREAM, 12): 3, ("second", 12): 3}


def test_many_cuts_of_a_stream_are_stored_in_calls_of_limited_length() -> None:
    """While the store takes cuts, it serves nobody else; a replay has many cuts of each partition."""
    cuts = [Cut(FIRST_BIN + bin, bin) for bin in range(MOST_CUTS)]
    taken = [PartitionCuts(f"p{number}", FIRST_BIN - 1, cuts[: MOST_CUTS // 2]) for number in range(3)]
    taken.append(PartitionCuts("p3", FIRST_BIN - 1, cuts))
    calls = list(calls_of(cast(LoadedStream, None), taken))
    assert [[one.partition for one in call.cuts] for call in calls] == [["p0", "p1"], ["p2"], ["p3"]]


def test_an_error_of_the_operator_s_ends_the_cutter() -> None:
    with World(strategy_of(), partitions=["p0", "p1"]) as world:

        async def retired(call: Call) -> Any:
            world.secrets().begin_anew(history_text(world.secrets().text, History(retired_us=0)))
            return [Reply.STRATEGY] * 2

        world.start(store=Struck(world.store, take_cuts_together=retired))
        with pytest.raises(OperatorError, match="was retired on 1970-01-01"):
            world.until(108.5)
