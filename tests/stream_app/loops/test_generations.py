"""A stream whose bins, keys or epochs change goes on as its next generation, whatever stops a worker."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import pytest

from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.config.settings import ApiSettings, RedisSettings
from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.keys import KeyList
from stream_app.core.ledger import ACCEPTED, statement
from stream_app.core.records import Cut, Reply
from stream_app.core.store_writes import Apply, PartitionCuts
from stream_app.loops.clocks import LiveClock
from stream_app.loops.closer import Closer
from stream_app.loops.ending import late_of_before
from stream_app.loops.segments import SegmentPlan
from stream_app.loops.stream import Stream
from stream_app.ports import OperatorError
from stream_app.wiring.known_segments import with_segments
from stream_app.wiring.starting import check_measured_before, check_streams, refused_segments
from tests.models.memory import MemoryStore
from tests.models.witnessed import OneWitness
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.declared import (
    BIN_US,
    FIRST_BIN,
    NO_NOISE,
    SOURCE,
    STREAM,
    changed_stream,
    declared_of,
)
from tests.stream_app.one_source import ByHand, OneSource
from tests.world import deaths

EDGE = 106  # the end of the first epoch of six bins
CHANGED_AT = 102.0  # in bins: when a worker starts with the changed settings
SECOND = f"{STREAM}@2"


def stream_of(one: OneSource, **facts: Any) -> StreamSettings:
    """Return a configured stream. Args: facts, as for ``declared_of``."""
    facts = {"epsilon": NO_NOISE, "private": False, "first_us": FIRST_BIN * BIN_US} | facts
    return StreamSettings(STREAM, SourceSettings(one.path, "earliest"), declared_of(**facts))


def settings_of(one: OneSource, *streams: StreamSettings) -> Settings:
    """Return a configuration with these streams."""
    return Settings(
        file=one.directory / "app.yaml",
        redis=RedisSettings("redis://unused", None, None, None),
        api=ApiSettings("127.0.0.1", 0),
        state_dir=one.directory / "state",
        noise_key_file=None,
        publish_every_us=1_000_000,
        streams=streams,
    )


async def plan_of(one: OneSource, *streams: StreamSettings, store: Any = None) -> SegmentPlan:
    """Return what a start with these streams finds."""
    told = OneWitness(one.witness)
    return await with_segments(settings_of(one, *streams), store or one.store, None, one.clock.now_us, told)


@dataclass
class Worker:
    """The loops of one worker, which the test runs by hand."""

    plan: SegmentPlan
    ingest: ByHand
    closers: list[Closer]

    @classmethod
    async def start(
        cls, one: OneSource, *streams: StreamSettings, store: Any = None, found: SegmentPlan | None = None
    ) -> Worker:
        """Start as ``wiring/workers.py`` does. Args: found, what the start has found."""
        at = store or one.store
        found = found or await plan_of(one, *streams, store=store)
        found = found.without(await refused_segments(found.checked, at, one.clock.now_us))
        found.log()
        if found.due:
            await check_streams(found.checked, at, one.keys)
        found_settings = await found.store_due(at)
        assert found_settings is not None
        one.strategies = tuple(planned(stream) for stream in found_settings.streams)
        closers = [
            one.closer(
                strategy,
                accept=stream.accept,
                ledger={"configured": found_settings.names, "total": stream.total},
                sharing={"until_us": stream.until_us},
                store=store,
            )
            for stream, strategy in zip(found_settings.streams, one.strategies, strict=True)
        ]
        ingest = one.ingest()
        for closer in closers:
            await closer.reconcile()
        return cls(found, ingest, closers)

    async def run(self, one: OneSource, events: Mapping[int, Sequence[Any]], until: float) -> None:
        """Move the clock in quarters of a bin; write the events that arrive then, count and release them."""
        while one.clock.now_us < until * BIN_US:
            quarter = 4 * one.clock.now_us // BIN_US
            one.append(*events.get(quarter, ()))
            await self.ingest.step()
            one.clock.set_bin((quarter + 1) / 4)
            for _ in range(2):
                await self.ingest.step()
            for closer in self.closers:
                await closer.close_due()
            for closer in self.closers:  # a segment begins to read once readers see the last row before it
                await closer.publisher.publish()
            await self.ingest.step()


def drawn(seed: int, last: int = 116) -> dict[int, list[float]]:
    """Return events by the quarter of a bin in which they arrive: on time, late, or a little ahead."""
    chance = random.Random(seed)
    found: dict[int, list[float]] = {}
    for quarter in range(4 * FIRST_BIN, 4 * last):
        at = quarter / 4 + 0.125
        times = [at - chance.choice((0, 0, 0.2, 0.6, 1.3, 4.0)) for _ in range(chance.randrange(4))]
        found[quarter] = [time for time in times if time >= FIRST_BIN]
    return found


def recounted(events: dict[int, list[float]], edges: list[int], bins: Sequence[float]) -> list[Counter[int]]:
    """Return what each generation must have counted, by bin: late events count in the first open bin.

    Args: edges, where the generations after the first begin; bins, of each in a bin of ten seconds.
    """
    found = [Counter[int]() for _ in bins]
    ends = [*edges, 10**6]
    for quarter, times in events.items():
        at = quarter / 4 + 0.125
        for time in times:
            number = next(number for number, end in enumerate(ends) if max(time, at) < end)
            found[number][int(bins[number] * max(time, at))] += 1
    return found


CHANGES: list[dict[str, Any]] = [
    {"bin_us": BIN_US // 2, "epoch_bins": 12},
    {"epoch_bins": 4},
    {"epsilon": NO_NOISE / 2},
    {"max_ahead_bins": 3},
]
CUT_SHORT: dict[str, Any] = {"bin_us": 4 * BIN_US, "epoch_bins": 2}  # no such bin begins at the epoch's end


@pytest.mark.parametrize("facts", [*CHANGES, CUT_SHORT])
@pytest.mark.parametrize(("seed", "restart_at"), [(1, None), (2, EDGE), (3, EDGE + 0.25), (4, EDGE - 0.25)])
async def test_each_event_counts_in_one_generation(
    one: OneSource,
    seed: int,
    restart_at: float | None,
    facts: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    events, bins = drawn(seed), BIN_US / facts.get("bin_us", BIN_US)
    edge = EDGE - 2 if facts is CUT_SHORT else EDGE
    await (await Worker.start(one, stream_of(one))).run(one, events, CHANGED_AT)
    worker = await Worker.start(one, stream_of(one, **facts))
    if restart_at is not None:
        await worker.run(one, events, restart_at + edge - EDGE)
        worker = await Worker.start(one, stream_of(one, **facts))
    await worker.run(one, events, 117)
    old, new = recounted(events, [edge], [1, bins])
    assert max(await one.released()) == edge - 1
    assert Counter(await one.released()) == old
    assert min(await one.released(SECOND)) == bins * edge
    assert Counter(await one.released(SECOND)) == new
    entries = await one.store.ledger(SOURCE)
    assert statement(SOURCE, entries).epsilon == NO_NOISE
    assert {entry.successor_of for entry in entries if entry.stream == SECOND} == {STREAM}
    # A start after the change leaves out the generation that has ended.
    last = await plan_of(one, stream_of(one, **facts))
    assert [stream.name for stream in last.now.streams] == [SECOND]
    assert last.now.names == {STREAM, SECOND}


async def test_the_end_of_a_stream_names_the_one_that_goes_on(one: OneSource) -> None:
    await (await Worker.start(one, stream_of(one))).run(one, {}, CHANGED_AT)
    found = await plan_of(one, stream_of(one, **CHANGES[0]))
    measuring = [Stream(strategy=planned(stream)) for stream in found.checked.streams]
    before, after = (replace(stream, measuring=measuring).end_in_words for stream in measuring)
    assert before == f"it has released its last bin; {SECOND} goes on"
    assert after == "it has released its last bin; it counts nothing more"


async def test_the_one_before_runs_until_readers_see_its_last_row(one: OneSource) -> None:
    await (await Worker.start(one, stream_of(one))).run(one, {}, CHANGED_AT)
    worker = await Worker.start(one, stream_of(one, **CHANGES[0]))
    await worker.run(one, {}, EDGE - 0.25)
    one.clock.set_bin(EDGE + 0.25)
    await worker.ingest.step()
    await worker.closers[0].close_due()
    # Its last row is released and not visible, so the next one does not read yet, and the worker dies here.
    await worker.closers[0].close_due()
    ended = await one.store.load(STREAM)
    assert ended is not None
    assert ended.stopped
    going_on = next(stream for stream in one.strategies if stream.stream == SECOND)
    assert await late_of_before(one.store, LiveClock(one.store), going_on) is None
    then = await plan_of(one, stream_of(one, **CHANGES[0]))
    assert [stream.name for stream in then.now.streams] == [STREAM, SECOND]
    await (await Worker.start(one, stream_of(one, **CHANGES[0]))).run(one, {}, EDGE + 0.5)
    then = await plan_of(one, stream_of(one, **CHANGES[0]))
    assert [stream.name for stream in then.now.streams] == [SECOND]


async def test_an_ended_segment_costs_the_reader_nothing(
    one: OneSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, counted = drawn(6, 112), list[str]()
    await (await Worker.start(one, stream_of(one))).run(one, events, CHANGED_AT)
    worker = await Worker.start(one, stream_of(one, **CHANGES[0]))
    await worker.run(one, events, EDGE + 2)
    apply = one.store.apply

    async def applied(stream: str, change: Apply) -> Reply:
        counted.append(stream)
        return await apply(stream, change)

    monkeypatch.setattr(one.store, "apply", applied)
    await worker.run(one, events, 113)
    assert {*counted} == {SECOND}
    views = worker.ingest.counting.views
    view = await views.load(STREAM, one.store)
    [(partition, at)] = view.partitions.items()
    late = PartitionCuts(partition, at.last_cut_bin, [Cut(at.last_cut_bin + 1, at.position + 1)], 0)
    views.cut(view, [late])  # it was being stored when the segment ended
    assert views.reached_cuts()  # the reader pauses as before
    first, second = recounted(events, [EDGE], [1, 2])
    assert (Counter(await one.released()), Counter(await one.released(SECOND))) == (first, second)


async def test_settings_change_again_and_back(one: OneSource) -> None:
    events, halves = drawn(5, 126), stream_of(one, bin_us=BIN_US // 2, epoch_bins=12)
    await (await Worker.start(one, stream_of(one))).run(one, events, CHANGED_AT)
    await (await Worker.start(one, halves)).run(one, events, 108)
    await (await Worker.start(one, stream_of(one))).run(one, events, 127)
    first, second, third = recounted(events, [EDGE, 112], [1, 2, 1])
    assert Counter(await one.released()) == first
    assert Counter(await one.released(SECOND)) == second
    assert Counter(await one.released(f"{STREAM}@3")) == third


@pytest.mark.parametrize(
    "facts",
    [
        {"keys": KeyList("k", ("a", "b"))},
        {"keys": KeyList("k", ("a", "b", "c")), "epsilon": 2, "private": True},
        {"user": PerUser("user", 2)},
    ],
)
async def test_which_settings_need_a_generation_and_which_are_refused(
    one: OneSource, facts: dict[str, Any]
) -> None:
    begun = {} if "user" not in facts else {"user": PerUser("user", 1)}
    await Worker.start(one, stream_of(one, **begun))
    found = await plan_of(one, stream_of(one, **facts))
    [following] = found.following
    assert (following.segment.name, following.edge_us) == (SECOND, EDGE * BIN_US)
    assert following.segment.declared.successor_of == STREAM
    for refused in ({"user": PerUser("other", 1)}, {"field": "paid"}, {"format": "ms"}):
        [stream] = (await plan_of(one, stream_of(one, **facts | refused))).now.streams
        with pytest.raises(OperatorError, match="put it back"):
            await one.closer(planned(stream)).reconcile()


async def test_a_change_can_be_taken_back_until_it_is_stored(one: OneSource) -> None:
    hours = {"epoch_bins": 60}  # ends at bin 160; the beginning is stored 30 bins before
    changed = stream_of(one, **hours, bin_us=BIN_US // 2)
    await (await Worker.start(one, stream_of(one, **hours))).run(one, {}, CHANGED_AT)
    worker = await Worker.start(one, changed)
    [line] = worker.plan.lines()
    assert line == (
        f"{STREAM}: from 1970-01-01T00:26:40Z on, as generation 2: time.bin 5s instead of 10s, "
        "time.epoch 5m instead of 10m; until 1970-01-01T00:21:40Z, the old settings can be put back"
    )
    assert [closer.name for closer in worker.closers] == [STREAM]
    state = await one.state()
    assert state.until_bin is None
    # Put back in time, nothing has changed.
    one.clock.set_bin(129)
    assert (await Worker.start(one, stream_of(one, **hours))).plan.following == []
    # Once it is stored, the old settings follow as the generation after.
    one.clock.set_bin(130)
    await Worker.start(one, changed)
    worker = await Worker.start(one, stream_of(one, **hours))
    assert [closer.name for closer in worker.closers] == [STREAM, SECOND]
    [following] = worker.plan.following
    assert (following.segment.name, following.edge_us) == (f"{STREAM}@3", 190 * BIN_US)


async def test_the_instant_that_another_worker_has_stored_counts(one: OneSource) -> None:
    changed = stream_of(one, epoch_bins=4)
    await (await Worker.start(one, stream_of(one))).run(one, {}, CHANGED_AT)
    slow = await plan_of(one, changed)
    assert await one.store.end_at(STREAM, EDGE + 6) is Reply.DONE
    assert await slow.store_due(one.store) is None
    worker = await Worker.start(one, changed)
    assert [closer.name for closer in worker.closers] == [STREAM, SECOND]
    await worker.run(one, drawn(6), 117)
    assert max(await one.released()) == EDGE + 5
    assert min(await one.released(SECOND)) == EDGE + 6


@pytest.mark.parametrize(("epoch_bins", "late"), [(6, False), (6, True), (4, True)])
async def test_a_worker_goes_on_at_an_end_whose_generation_never_opened(
    one: OneSource, epoch_bins: int, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also with the settings of before. All events are there if it starts late."""
    events = drawn(7)
    worker = await Worker.start(one, stream_of(one))
    await worker.run(one, {}, CHANGED_AT)
    changed = await plan_of(one, stream_of(one, epoch_bins=4))
    assert await changed.store_due(one.store) is not None  # the worker then died
    if late:
        await worker.run(one, events, 117)
        assert max(await one.released()) == EDGE - 1
        assert {entry.stream for entry in await one.store.ledger(SOURCE)} == {STREAM}
    following = await Worker.start(one, stream_of(one, epoch_bins=epoch_bins))
    assert [closer.name for closer in following.closers] == [STREAM, SECOND]
    assert ("as generation 2: the same settings; this is stored" in caplog.text) == (epoch_bins == 6)
    await following.run(one, {} if late else events, 119)
    _, counted = recounted(events, [EDGE], [1, 1])
    if late:
        times = [(time, quarter / 4) for quarter, times in events.items() for time in times]
        counted = Counter(max(int(time), EDGE) for time, at in times if max(time, at) >= EDGE)
    assert Counter(await one.released(SECOND)) == counted


async def dies_everywhere(one: OneSource) -> None:
    """Let a worker with changed settings die at each call of its start; check what it leaves."""
    changed = stream_of(one, bin_us=BIN_US // 2, epoch_bins=12)
    await (await Worker.start(one, stream_of(one))).run(one, {}, CHANGED_AT)
    before, witness = one.store, one.witness
    calls = 0
    for death in deaths():
        calls += 1
        one.store, one.witness = before.copy(), deepcopy(witness)
        with suppress(asyncio.CancelledError):
            await Worker.start(one, changed, store=death.of(one.store))
        state = await one.state()
        begun = [entry for entry in await one.store.ledger(SOURCE) if entry.stream == SECOND]
        assert state.until_bin in (None, EDGE)
        assert state.until_bin == EDGE or not begun
        if not death.has_come:
            break
        # The operator puts the old settings back. If an end is stored, they hold on as the next generation.
        [found] = (await plan_of(one, stream_of(one))).found
        assert [segment.name for segment in found.running] == ([STREAM, SECOND] if begun else [STREAM])
        is_left = found.next is not None and found.next.segment.name == SECOND
        assert is_left == (state.until_bin is not None and not begun)
        one.clock.set_bin(CHANGED_AT + 1)
        await Worker.start(one, changed)
        one.clock.set_bin(CHANGED_AT)
        epochs = [(epoch, first_bin) for epoch, first_bin, _ in await one.epochs(SECOND)]
        assert epochs == [(0, 2 * EDGE)]
        entries = await one.store.ledger(SOURCE)
        assert [entry.epoch for entry in entries if entry.stream == SECOND] == [0]
    assert calls > 10  # five that change something, before and after


async def test_a_worker_that_dies_at_any_call_begins_one_generation_once(one: OneSource) -> None:
    await dies_everywhere(one)


async def test_a_generation_that_begins_before_the_end_is_stored_is_caught(
    one: OneSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_others: Any, **_named: Any) -> bool:
        return False

    monkeypatch.setattr(MemoryStore, "end_at", done)
    monkeypatch.setattr("stream_app.loops.opening.announce_ends", nothing)
    monkeypatch.setattr("stream_app.loops.opening.changed_by_end", nothing)
    with pytest.raises(AssertionError):
        await dies_everywhere(one)


async def done(*_arguments: Any, **_named: Any) -> Reply:
    """Store nothing, and say that it is done."""
    return Reply.DONE


async def test_a_generation_that_is_forgotten_at_a_restart_is_caught(
    one: OneSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("loops.segments", "core.segments.plan"):
        monkeypatch.setattr(f"stream_app.{place}.number_of", lambda name: 1)
    with pytest.raises((AssertionError, KeyError, OperatorError)):
        await dies_everywhere(one)


async def test_a_generation_beside_another_stream_of_the_source_needs_no_second_consent(
    one: OneSource,
) -> None:
    small = {"epsilon": 1, "private": True}
    other = replace(stream_of(one, **small), name="other", accept=ACCEPTED)
    both = stream_of(one, **small), other
    for stream in both:
        await one.closer(planned(stream), accept=stream.accept).reconcile()
    one.strategies = ()
    for epsilon, line in ((2, None), (30, "protects nobody")):
        changed = stream_of(one, **small | {"epsilon": epsilon, "epoch_bins": 4}), other
        found = (await plan_of(one, *changed)).checked
        refused = await refused_segments(found, one.store, one.clock.now_us)
        assert list(refused) == ([] if line is None else [SECOND])
        assert all(str(line) in why for why in refused.values())
        witnesses = dict.fromkeys(found.names, MemoryWitness())
        with nullcontext() if line is None else pytest.raises(OperatorError, match=line):
            await check_measured_before(found, one.store, witnesses, None, one.clock.now_us)


async def test_another_streams_successor_is_the_newest_generation(one: OneSource) -> None:
    changed = stream_of(one, epoch_bins=4)
    await (await Worker.start(one, stream_of(one))).run(one, {}, CHANGED_AT)
    await (await Worker.start(one, changed)).run(one, {}, 108)
    follows = changed_stream(changed, time={"first_us": 118 * BIN_US}, successor_of=STREAM)
    follows = replace(follows, name="after")
    both = replace(changed, until_us=118 * BIN_US), follows
    worker = await Worker.start(one, *both)
    assert [closer.name for closer in worker.closers] == [SECOND, "after"]
    entries = await one.store.ledger(SOURCE)
    assert {entry.successor_of for entry in entries if entry.stream == "after"} == {SECOND}
    again = await plan_of(one, *both)
    assert again.following == []


@pytest.mark.parametrize("first", [None, FIRST_BIN, FIRST_BIN - 50])
async def test_a_next_generation_does_not_keep_time_first(one: OneSource, first: int | None) -> None:
    """The first of long bins may lie inside a new one, so the configuration has to change it."""
    begun = (FIRST_BIN + 1) * BIN_US
    first_us = None if first is None else first * BIN_US
    await Worker.start(one, stream_of(one, epoch_bins=5, first_us=begun))
    changed = stream_of(one, bin_us=2 * BIN_US, epoch_bins=3, first_us=first_us)
    found = await plan_of(one, changed)
    [following] = found.following
    assert following.segment.declared.time.first_us == following.edge_us > begun
    assert not any("time.first" in line for line in found.lines())
    worker = await Worker.start(one, changed)
    assert [closer.name for closer in worker.closers] == [STREAM, SECOND]
    again = stream_of(one, bin_us=2 * BIN_US, epoch_bins=3, first_us=(FIRST_BIN - 10) * BIN_US)
    assert (await plan_of(one, again)).following == []


async def test_time_first_alone_cannot_change(one: OneSource) -> None:
    await Worker.start(one, stream_of(one))
    one.strategies = ()
    changed = stream_of(one, first_us=None)
    assert (await plan_of(one, changed)).following == []
    with pytest.raises(OperatorError, match=r"time\.first was .*; put it back"):
        await Worker.start(one, changed)
