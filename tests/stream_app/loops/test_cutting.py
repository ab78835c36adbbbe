"""No record may delay a cut, or other records would count in other bins."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from stream_app.core.incoming import Reason, Refusal
from stream_app.core.records import Cut, History, PartitionCuts, Reply
from stream_app.core.segments.history import history_text
from stream_app.loops import refused_ahead
from stream_app.loops.cutting import MOST_CUTS, calls_of
from stream_app.loops.loaded_streams import LoadedStream
from stream_app.ports import OperatorError
from tests.simulator.log import Entry
from tests.simulator.loop import simulate
from tests.stream_app.counting_live import BIN_S, Live, Store, event, log_of
from tests.stream_app.declared import FIRST_BIN, STREAM


def test_a_source_that_fails_delays_no_cut() -> None:
    """A record whose schema is not known yet makes each read fail. This raises no doubt about the store."""
    agreed: list[str] = []

    async def agree(stream: str) -> None:
        agreed.append(stream)
        await asyncio.sleep(0.9)

    async def run() -> list[float]:
        live = Live(log_of(p0=[event(0.5, 0.5)]), agree=agree)

        async def read(positions: Mapping[str, int], timeout_s: float) -> Any:
            await asyncio.sleep(0.1)
            raise ConnectionError("schema registry: no answer")

        live.source.read = read  # type: ignore[method-assign]
        await live.run(5.5)
        return live.store.late_of("p0")

    assert simulate(1, run()) == [0] * 5
    assert agreed == [STREAM]


def test_a_log_that_does_not_say_where_it_ends_is_no_doubt_about_the_store() -> None:
    agreed: list[str] = []

    async def agree(stream: str) -> None:
        agreed.append(stream)

    async def run() -> int:
        live = Live(log_of(p0=[event(0.5, 0.5)]), agree=agree)
        ends_of, failures = live.source.positions_at, [ConnectionError("kafka: no answer")] * 3

        async def positions_at(
            partitions: Sequence[str], instants_us: Sequence[int]
        ) -> Mapping[str, Sequence[int]]:
            if failures:
                raise failures.pop()
            return await ends_of(partitions, instants_us)

        live.source.positions_at = positions_at  # type: ignore[method-assign]
        await live.run(3.5)
        return len(live.store.late_of("p0"))

    assert simulate(1, run()) == 3
    assert agreed == [STREAM]


def test_a_store_that_fails_is_asked_anew_once_it_agrees_with_the_witness() -> None:
    agreed: list[str] = []

    async def agree(stream: str) -> None:
        agreed.append(stream)

    async def run() -> list[float]:
        live = Live(log_of(p0=[event(0.5, 0.5)]), agree=agree)
        live.store.fails[STREAM, "p0"] = [ConnectionError("the reply was lost")]
        await live.run(2.5)
        return live.store.late_of("p0")

    assert simulate(1, run()) == [500, 0]
    assert agreed == [STREAM] * 2


def test_letters_of_records_from_the_future_delay_no_cut() -> None:
    """A slow write of a refused record must not move another user's late record into another bin."""

    def counted(*more: Entry) -> tuple[dict[int, int], int]:
        async def run() -> tuple[dict[int, int], int]:
            live = Live(
                log_of(p0=sorted([event(0.5, 0.5), event(6.5, 1.5), *more], key=lambda e: e.arrival_us))
            )
            live.letters.takes_s = 1.7 * BIN_S
            await live.run(9)
            cells = live.store._streams[STREAM].cells
            return {bin: sum(cells[bin].values()) for bin in cells if cells[bin]}, len(live.letters.kept)

        return simulate(1, run())

    assert counted() == ({FIRST_BIN: 1, FIRST_BIN + 6: 1}, 0)
    assert counted(event(4.5, 900)) == ({FIRST_BIN: 1, FIRST_BIN + 6: 1}, 1)


@pytest.mark.parametrize("most", [1, 1_000])
def test_each_record_that_is_refused_while_letters_are_written_gets_its_letter(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(refused_ahead, "MOST_LETTERS", most)

    async def run() -> Live:
        future = [event(bin + 0.5, 900) for bin in range(6)]
        live = Live(log_of(p0=future, p1=future))
        live.letters.takes_s = 1.3 * BIN_S
        await live.run(20)
        return live

    live = simulate(1, run())
    assert live.letters.kept == {
        (STREAM, partition, position): Reason.FUTURE for partition in ("p0", "p1") for position in range(6)
    }
    assert all(live.store._streams[STREAM].partitions[name].refused_ahead == [] for name in ("p0", "p1"))


def test_a_letter_ahead_for_which_no_thread_starts_is_written_later() -> None:
    async def run() -> Live:
        live = Live(log_of(p0=[event(0.5, 900)]))
        live.letters.failures = [RuntimeError("can't start new thread")]
        await live.run(20)
        return live

    assert simulate(1, run()).letters.kept == {(STREAM, "p0", 0): Reason.FUTURE}


def test_streams_whose_cuts_refuse_the_same_records_share_their_letters() -> None:
    streams = [f"s{number:02}" for number in range(40)]
    calls: list[tuple[str | None, ...]] = []

    async def run() -> Live:
        live = Live(log_of(p0=[event(0.5, 900)]), streams)
        live.letters.takes_s = 0.2 * BIN_S  # those of the first cuts; meanwhile all others are stored
        write = live.letters.write

        async def noting(refusals: Sequence[Refusal], streams: tuple[str | None, ...]) -> Sequence[int]:
            calls.append(streams)
            return await write(refusals, streams)

        live.letters.write = noting  # type: ignore[assignment,method-assign]
        await live.run(3.5)
        return live

    live = simulate(1, run())
    assert live.letters.kept == {(stream, "p0", 0): Reason.FUTURE for stream in streams}
    assert len(calls) <= 2
    assert all(live.store._streams[name].partitions["p0"].refused_ahead == [] for name in streams)


def test_letters_of_all_partitions_are_asked_for_together() -> None:
    asked: list[int] = [0]

    async def run() -> None:
        live = Live(log_of(**{f"p{number}": [event(0.5, 0.5)] for number in range(12)}))
        refused = live.store.refused_ahead
        under_way: list[str] = []

        async def refused_ahead(stream: str, partition: str, limit: int) -> list[int]:
            under_way.append(partition)
            asked.append(len(under_way))
            await asyncio.sleep(0.1)
            under_way.remove(partition)
            return await refused(stream, partition, limit)

        live.store.refused_ahead = refused_ahead  # type: ignore[method-assign]
        await live.run(3.5)

    simulate(1, run())
    assert max(asked) == 12


def test_a_cut_that_takes_long_to_store_delays_cuts_of_its_stream_and_partition_only() -> None:
    """A cut takes longer to store if many records are set aside before it."""
    streams = (STREAM, "second")

    async def run() -> Store:
        log = log_of(p0=[event(0.5, 0.5)], p1=[event(0.5, 0.5)])
        live = Live(log, streams)
        live.store.slow[STREAM, "p0"] = 2.25 * BIN_S
        await live.run(8.5)
        return live.store

    store = simulate(1, run())
    for place in ((STREAM, "p1"), ("second", "p0"), ("second", "p1")):
        assert store.late_of(place[1], place[0]) == [0] * 8
    # Cuts of the slow partition wait for one another, and bins that closed meanwhile share one cut.
    assert store.late_of("p0") == [0, 12_500, 2_500, 15_000, 5_000, 17_500, 7_500]
    assert store.most == 1


def test_one_call_stores_the_cuts_of_all_partitions_of_a_stream() -> None:
    calls: list[tuple[str, int]] = []
    streams = (STREAM, "second")

    async def run() -> None:
        live = Live(log_of(**{f"p{number}": [event(0.5, 0.5)] for number in range(12)}), streams)
        take = live.store.take_cuts_together

        async def together(stream: str, hash: str, taken: Sequence[Any], *change: Any) -> list[Reply]:
            calls.append((stream, len(taken)))
            return await take(stream, hash, taken, *change)

        live.store.take_cuts_together = together  # type: ignore[method-assign, assignment]
        await live.run(3.5)

    simulate(1, run())
    assert Counter(calls) == {(STREAM, 12): 3, ("second", 12): 3}


def test_many_cuts_of_a_stream_are_stored_in_calls_of_limited_length() -> None:
    """While the store takes cuts, it serves nobody else; a replay has many cuts of each partition."""
    cuts = [Cut(FIRST_BIN + bin, bin) for bin in range(MOST_CUTS)]
    taken = [PartitionCuts(f"p{number}", FIRST_BIN - 1, cuts[: MOST_CUTS // 2]) for number in range(3)]
    taken.append(PartitionCuts("p3", FIRST_BIN - 1, cuts))
    calls = list(calls_of(cast(LoadedStream, None), taken))
    assert [[one.partition for one in call.cuts] for call in calls] == [["p0", "p1"], ["p2"], ["p3"]]


def test_an_error_of_the_operator_s_ends_the_cutter() -> None:
    async def run() -> None:
        live = Live(log_of(p0=[event(0.5, 0.5)], p1=[event(0.5, 0.5)]))

        async def another(_: str, __: str, taken: Sequence[object], *change: object) -> list[Reply]:
            for state in live.store._streams.values():
                state.strategy = history_text(state.strategy, History(retired_us=0))
            return [Reply.STRATEGY for _ in taken]

        live.store.take_cuts_together = another  # type: ignore[method-assign, assignment]
        await live.run(8.5)

    with pytest.raises(OperatorError, match="was retired on 1970-01-01"):
        simulate(1, run())
