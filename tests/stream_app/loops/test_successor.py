"""A stream and its successor: each event counts in one of them, by its own time, wherever a worker stops."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from stream_app.core.answers.succession import continued
from stream_app.core.kinds.tables import Span
from stream_app.core.ledger import statement
from stream_app.core.segments.endings import ENDED
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import Closer
from stream_app.ports import OperatorError
from stream_app.sources.file import FileSource
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.core.test_query import read
from tests.stream_app.declared import (
    BIN_US,
    FIRST_BIN,
    NO_NOISE,
    SOURCE,
    changed,
    design_of,
    strategy_of,
)
from tests.stream_app.loops.test_generations import drawn
from tests.stream_app.one_source import ByHand, OneSource
from tests.world import deaths

pytestmark = pytest.mark.slow

EDGE = 109  # inside the second epoch of six bins
EDGE_US = EDGE * BIN_US
HALF_US = BIN_US // 2  # the successor's bins


def successor(**facts: Any) -> Strategy:
    """Return a stream with bins of half the length that begins at the edge."""
    facts = {"first_us": EDGE_US, "bin_us": HALF_US} | facts
    found = strategy_of(design_of((2, 4)), stream="halves", epoch_bins=8, **facts)
    return replace(found, declared=structs.replace(found.declared, successor_of="visits"))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OneSource]:
    """Yield a service with a stream and its successor."""
    with closing(OneSource(tmp_path, strategy_of(), successor())) as one:
        yield one


def closers(one: OneSource) -> list[Closer]:
    """Start the closers of both streams, the earlier one first."""
    first, second = one.strategies
    return [one.closer(first, sharing={"until_us": EDGE_US}), one.closer(second)]


async def later(one: OneSource, bin: float, closer: Closer, ingest: ByHand) -> None:
    """Set the clock to a bin; let a worker count and release what is due then."""
    one.clock.set_bin(bin)
    for _ in range(4):
        await ingest.step()
        await closer.close_due()


async def run_until(
    one: OneSource, last: float, events: dict[int, list[float]], restart_at: int = -1
) -> None:
    """Move the clock in quarters of a bin; write the events that arrive then, count and release them."""
    ingest, both = one.ingest(), closers(one)
    for closer in both:
        await closer.reconcile()
    while one.clock.now_us < last * BIN_US:
        quarter = 4 * one.clock.now_us // BIN_US
        if quarter == restart_at:
            ingest, both = one.ingest(), closers(one)
            for closer in both:
                await closer.reconcile()
        one.append(*events.get(quarter, ()))
        await ingest.step()
        one.clock.set_bin((quarter + 1) / 4)
        for _ in range(2):
            await ingest.step()
        for closer in both:
            await closer.close_due()
    for closer in both:
        await closer.publisher.publish()


def recounted(events: dict[int, list[float]], bins: int = 2) -> tuple[Counter[int], Counter[int], int]:
    """Return what each stream must have counted by bin, and how many events the edge leaves out.

    Args: bins, of the successor in a bin of the first stream.
    """
    old, new, late = Counter[int](), Counter[int](), 0
    for quarter, times in events.items():
        at = quarter / 4 + 0.125
        for time in times:
            if time >= EDGE:
                new[max(int(bins * time), int(bins * at))] += 1
            elif max(int(time), int(at)) < EDGE:
                old[max(int(time), int(at))] += 1
            else:
                late += 1
    return old, new, late


@pytest.mark.parametrize(
    ("seed", "restart_at"), [(1, -1), (2, 4 * EDGE), (3, 4 * EDGE + 1), (4, 4 * EDGE - 1)]
)
async def test_each_event_counts_in_one_of_both_streams(one: OneSource, seed: int, restart_at: int) -> None:
    events = drawn(seed)
    await run_until(one, 117, events, restart_at)
    old, new, late = recounted(events)
    released = await one.released()
    assert max(released) == EDGE - 1
    assert Counter(released) == old
    assert min(await one.released("halves")) == 2 * EDGE
    assert Counter(await one.released("halves")) == new
    assert late
    assert one.letters.reasons() == ["late"] * late
    assert set(one.letters.streams) == {"visits"}


async def test_both_streams_have_one_history_if_their_bins_agree(tmp_path: Path) -> None:
    with closing(OneSource(tmp_path, strategy_of(), successor(bin_us=BIN_US))) as one:
        events = drawn(5)
        await run_until(one, 117, events)
        old, new, late = recounted(events, bins=1)
        assert late
        views = {name: await read(None, one.store, name) for name in ("visits", "halves")}
        view = views["halves"].following(continued(views["halves"], views.get))
        every = old + new
        assert view.span.start == FIRST_BIN
        for start, stop in combinations(range(FIRST_BIN, view.span.stop + 1), 2):
            counted = sum(every[bin] for bin in range(start, stop))
            assert view.count(Span(start, stop)).value == counted


async def test_a_stream_ends_at_its_edge_without_its_successor_and_for_good(one: OneSource) -> None:
    await run_until(one, EDGE - 1, {})
    # A worker whose configuration knows no end, over the same store.
    closer, ingest = one.closer(), one.ingest()
    await closer.reconcile()
    await later(one, EDGE + 9, closer, ingest)
    assert max(await one.released()) == EDGE - 1
    state = await one.state()
    assert (state.until_bin, state.stopped, state.epoch.end_reason) == (EDGE, True, ENDED)
    assert one.store.streams["visits"].cells == {}


async def test_the_ledger_counts_both_streams_as_one(one: OneSource) -> None:
    await run_until(one, 112, {})
    entries = await one.store.ledger(SOURCE)
    stated = statement(SOURCE, entries)
    assert stated.epsilon == NO_NOISE
    assert [(m.stream, m.end_us) for m in stated.measurements] == [("visits", EDGE_US), ("halves", None)]
    # Without the link, or if the first stream went on, both add up.
    unlinked = [replace(entry, successor_of=None) for entry in entries]
    longer = [*entries, replace(entries[0], epoch=9, start_us=EDGE_US)]
    assert statement(SOURCE, unlinked).epsilon == statement(SOURCE, longer).epsilon == 2 * NO_NOISE


async def test_a_store_that_forgot_the_end_gets_it_back_before_the_stream_goes_on(one: OneSource) -> None:
    await run_until(one, FIRST_BIN + 1, {}, restart_at=4 * FIRST_BIN)
    backup = one.store.copy()
    await run_until(one, EDGE + 2, {})
    backup.streams["visits"].until_bin = None
    one.store.restore(backup)
    for closer in reversed(closers(one)):  # the successor first: its witness knows where it began
        await closer.reconcile()
    closer, ingest = one.closer(), one.ingest()
    await later(one, EDGE + 8, closer, ingest)
    assert max(await one.released()) <= EDGE - 1


async def dies(work: Awaitable[object]) -> None:
    """Run a worker until it dies, or to its end."""
    with suppress(asyncio.CancelledError):
        await work


async def test_a_worker_that_dies_at_any_call_begins_no_successor_before_the_end_is_stored(
    one: OneSource,
) -> None:
    await one.closer().reconcile()
    calls = 0
    for death in deaths():
        calls += 1
        store, witness = one.store.copy(), MemoryWitness()
        await dies(one.closer(one.strategies[1], store=death.of(store), witness=witness).reconcile())
        begun = [entry for entry in await store.ledger(SOURCE) if entry.stream == "halves"]
        assert not begun or store.streams["visits"].until_bin == EDGE
        if not death.has_come:
            break
        state = await one.closer(one.strategies[1], store=store, witness=witness).reconcile()
        assert (state.epoch.epoch, state.epoch.first_bin) == (0, 2 * EDGE)
        assert store.streams["visits"].until_bin == EDGE
    assert calls > 5


async def test_a_worker_that_dies_at_any_call_at_the_end_leaves_a_stream_that_ends(one: OneSource) -> None:
    await run_until(one, EDGE - 0.25, {4 * EDGE - 3: [EDGE - 0.5, EDGE + 0.1]})
    one.clock.set_bin(EDGE + 0.25)
    await one.ingest().step()
    calls = 0
    for death in deaths():
        calls += 1
        store, witness = one.store.copy(), deepcopy(one.witness)
        await dies(one.closer(store=death.of(store), witness=witness).close_due())
        if not death.has_come:
            break
        await one.closer(store=store, witness=witness).close_due()
        state = await store.load("visits")
        assert state is not None
        assert (state.stopped, state.epoch.end_reason, state.released_bin) == (True, ENDED, EDGE - 1)
        assert store.streams["visits"].cells == {}
    assert calls > 8  # four that change something, before and after


@pytest.mark.parametrize(
    ("until_us", "line"),
    [
        (EDGE_US + 1, r"time.until: .* is inside a bin of visits; write .* or .*"),
        ((FIRST_BIN + 1) * BIN_US, r"visits has already counted bins from .* on; write a later instant, for"),
    ],
)
async def test_an_end_that_cannot_be_is_refused_in_one_line(one: OneSource, until_us: int, line: str) -> None:
    one.strategies = one.strategies[:1]
    closer, ingest = one.closer(), one.ingest()
    await closer.reconcile()
    await later(one, FIRST_BIN + 3, closer, ingest)
    with pytest.raises(OperatorError, match=line):
        await one.closer(sharing={"until_us": until_us}).reconcile()


async def test_a_successor_of_no_stream_is_refused(one: OneSource) -> None:
    with pytest.raises(OperatorError, match=r"successor_of: this store has no stream visits; correct"):
        await one.closer(one.strategies[1]).reconcile()


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"field": "paid_at"}, "from another field, in another format or in another zone"),
        ({"format": "ms"}, "in another format"),
        ({"format": "iso8601", "zone": "Europe/Paris"}, "in another zone"),
        ({"source": "file:other.ndjson"}, r"visits counts file:visits\.ndjson, not file:other\.ndjson"),
    ],
)
async def test_a_stream_that_is_in_another_configuration_ends_only_for_a_stream_like_it(
    one: OneSource, facts: dict[str, str], line: str
) -> None:
    await one.closer().reconcile()
    before, after = one.strategies[0], successor()
    parts: dict[str, Any] = {"time": {key: value for key, value in facts.items() if key != "source"}}
    if "source" in facts:
        parts["source"] = {"name": facts["source"]}
    other = replace(after, declared=changed(after.declared, **parts))
    with pytest.raises(OperatorError, match=rf"streams\.halves\.successor_of: .*{line}"):
        await one.closer(other).reconcile()
    state = await one.store.load(before.stream)
    assert state is not None
    assert state.until_bin is None
    assert all(entry.stream == "visits" for entry in await one.store.ledger(SOURCE))


@pytest.mark.parametrize(
    "order", [(0, 1), (1, 0), (1,)]
)  # the stream before first, last, in no configuration
@pytest.mark.parametrize("kept_from", [None, EDGE + 3])
async def test_both_streams_survive_a_loss_of_the_store_after_the_edge(
    one: OneSource, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...], kept_from: int | None
) -> None:
    async def kept_since_us(self: FileSource) -> int | None:
        return None if kept_from is None else kept_from * BIN_US

    await run_until(one, EDGE + 4, {})
    released = await one.released()
    one.store = MemoryStore(one.clock)
    monkeypatch.setattr(FileSource, "kept_since_us", kept_since_us)
    for number in order:
        state = await closers(one)[number].reconcile()
        assert (state.stopped, state.until_bin) == ((True, EDGE) if number == 0 else (False, None))
    assert await one.released("halves")
    if 0 in order:
        assert await one.released() == released


async def test_a_lost_store_gets_the_end_from_the_ledger_before_another_configuration_counts_on(
    one: OneSource,
) -> None:
    await run_until(one, EDGE - 2, {})
    await one.closer(one.strategies[1]).reconcile()
    one.clock.set_bin(EDGE + 2)
    second, ingest = one.closer(one.strategies[1]), one.ingest()
    await later(one, EDGE + 2, second, ingest)
    await second.publisher.publish()
    one.store = MemoryStore(one.clock)
    await one.closer(one.strategies[1]).reconcile()  # knows no stream before it, and goes on
    one.strategies = one.strategies[:1]
    first, ingest = one.closer(), one.ingest()  # a configuration without the successor
    await first.reconcile()
    await later(one, EDGE + 5, first, ingest)
    assert max(await one.released()) == EDGE - 1


async def test_a_stream_that_its_total_stopped_opens_no_epoch_after_its_end(one: OneSource) -> None:
    await run_until(one, FIRST_BIN + 2, {})
    state = await one.state()
    await one.store.end_epoch("visits", state.epoch.epoch, state.seq, "stopped")
    await one.store.stop("visits", state.epoch.epoch, state.seq)
    one.clock.set_bin(EDGE + 5)
    state = await closers(one)[0].reconcile()
    assert (state.epoch.epoch, state.stopped, state.until_bin) == (0, True, EDGE)
    assert statement(SOURCE, await one.store.ledger(SOURCE)).epsilon == NO_NOISE


async def test_what_a_successor_lost_with_the_store_is_its_own_dead_letter(one: OneSource) -> None:
    await run_until(one, EDGE + 4, {})
    one.store = MemoryStore(one.clock)
    one.strategies = one.strategies[1:]
    await one.closer().reconcile()  # its new epoch begins after the last row of the witness
    one.clock.set_bin(EDGE + 5)
    ingest = one.ingest()
    one.append(EDGE - 0.5, EDGE + 0.5, EDGE + 5.1)
    for _ in range(3):
        await ingest.step()
    assert (one.letters.reasons(), one.letters.streams) == (["before_first_bin"], ["halves"])
