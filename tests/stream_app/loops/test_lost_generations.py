"""Store and notes are lost, the witness is not: no event counts twice, and no cost is forgotten."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stream_app.config import StreamSettings
from stream_app.core.counting.bounding import PerUser
from stream_app.core.ledger import statement
from stream_app.loops.recovery import catch_up
from stream_app.ports import OperatorError
from stream_app.sinks.witness_file import WitnessFile
from stream_app.stored_format import GENERATIONS
from stream_app.wiring.known_segments import with_segments
from stream_app.wiring.starting import check_measured_before
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.declared import BIN_US, NO_NOISE, SOURCE, STREAM
from tests.stream_app.loops.test_generations import (
    CHANGED_AT,
    EDGE,
    SECOND,
    Worker,
    drawn,
    plan_of,
    settings_of,
    stream_of,
)
from tests.stream_app.one_source import OneSource
from tests.world import deaths

pytestmark = pytest.mark.slow

LOST_AT = EDGE + 3


async def started(one: OneSource, stream: StreamSettings) -> Worker:
    """Start as ``wiring/workers.py`` does."""
    found = await plan_of(one, stream)
    witnesses = dict.fromkeys(found.checked.names, one.witness)
    await check_measured_before(found.checked, one.store, witnesses, None, one.clock.now_us)
    return await Worker.start(one, stream, found=found)


async def until_lost(
    one: OneSource, events: dict[int, list[float]], kind: str, *streams: StreamSettings
) -> None:
    """Run two generations, then lose the store or set it back."""
    before, after = streams
    await (await Worker.start(one, before)).run(one, events, CHANGED_AT)
    backup = one.store.copy()
    await (await Worker.start(one, after)).run(one, events, LOST_AT)
    one.store = MemoryStore(one.clock) if kind == "lost" else backup


@pytest.fixture
def tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows be as older builds wrote them."""
    monkeypatch.setattr("stream_app.core.releases.release.settings_in_row", lambda text: {})


@pytest.mark.parametrize("kind", ["lost", "set_back"])
@pytest.mark.parametrize("puts_back", [False, True])
async def test_the_witness_tells_the_generations_to_another_machine(
    one: OneSource, kind: str, puts_back: bool
) -> None:
    """An operator may start with the settings of the first generation, or with those of the second one."""
    events, first = drawn(8, 140), stream_of(one, user=PerUser("user", 8), epsilon=NO_NOISE / 2)
    second = stream_of(one, user=PerUser("user", 8), bin_us=BIN_US // 2, epoch_bins=12)
    await until_lost(one, events, kind, first, second)
    worker = await started(one, first if puts_back else second)
    assert [closer.name for closer in worker.closers][:2] == [STREAM, SECOND]
    await worker.run(one, events, EDGE + 20)
    bins = Counter[float]()
    for name, width in ((STREAM, 1), (SECOND, 2), (f"{STREAM}@3", 1)):
        rows = await one.witness.rows(name, 0)
        seen = [json.loads(row.row)["bin"] for row in rows]
        bins.update(bin / width for bin in seen)
        assert name != STREAM or max(seen) == EDGE - 1
    assert max(bins.values()) == 1  # no time is in the rows of two generations, or twice in one's
    # Each epoch of the first generation is in the statement again, also those that only its rows know.
    entries = await one.store.ledger(SOURCE)
    assert {(entry.stream, entry.epoch) for entry in entries} >= {(STREAM, 0), (SECOND, 0)}
    assert statement(SOURCE, entries).epsilon == sum(float(entry.epsilon) for entry in entries)


@pytest.mark.parametrize("kind", ["lost", "set_back"])
@pytest.mark.parametrize("puts_back", [False, True])
@pytest.mark.usefixtures("tells_nothing")
async def test_a_start_refuses_settings_that_nothing_tells(
    one: OneSource, kind: str, puts_back: bool
) -> None:
    first, second = stream_of(one), stream_of(one, epoch_bins=4)
    await until_lost(one, {}, kind, first, second)
    before = await one.store.ledger(SOURCE)
    line = (
        rf"stream {STREAM}: its generation 2 has released, and the settings of generation [12] are lost: "
        r".* bring back the witness, or the store"
    )
    with pytest.raises(OperatorError, match=line):
        await started(one, first if puts_back else second)
    assert await one.store.ledger(SOURCE) == before


async def copied_to_files(one: OneSource) -> Path:
    """Write the rows of the witness to files; return their directory."""
    place = one.directory / "state" / "witness"
    file = WitnessFile(place)
    for name in (STREAM, SECOND):
        await file.append(name, await one.witness.rows(name, 0))
    file.close()
    return place


async def test_files_of_the_witness_tell_the_generations(one: OneSource) -> None:
    first, second = stream_of(one), stream_of(one, epoch_bins=4)
    await until_lost(one, {}, "lost", first, second)
    place = await copied_to_files(one)
    for stream in (first, second):
        found = await with_segments(settings_of(one, stream), one.store, None, one.clock.now_us)
        assert [one.name for one in found.history.streams] == [STREAM, SECOND]
    # A build that knows no generations does not start over this directory.
    assert (place / "format").read_text() == f"{GENERATIONS}\n"


@pytest.mark.parametrize("same", [False, True])
async def test_a_generation_that_a_dead_worker_reserved_is_opened_by_another_machine(
    one: OneSource, same: bool
) -> None:
    """The dead worker's entry stays in the sum, whatever settings the other machine has."""
    events = drawn(4, 130)
    await (await Worker.start(one, stream_of(one))).run(one, events, CHANGED_AT)
    before, tried = one.store, 0
    for death in deaths():
        one.store = before.copy()
        with suppress(asyncio.CancelledError):
            await Worker.start(one, stream_of(one, epoch_bins=4), store=death.of(one.store))
        entries = [entry for entry in await one.store.ledger(SOURCE) if entry.stream == SECOND]
        if not entries or await one.store.load(SECOND) is not None:
            continue
        tried += 1
        other = stream_of(one, epoch_bins=4 if same else 3)
        worker = await Worker.start(one, other)
        assert [closer.name for closer in worker.closers] == [STREAM, SECOND]
        epochs = [entry.epoch for entry in await one.store.ledger(SOURCE) if entry.stream == SECOND]
        assert epochs == ([0] if same else [0, 1])
        if tried == 2:
            break
    assert tried == 2
    await worker.run(one, events, 117)
    assert min(await one.released(SECOND)) == EDGE
    # The worker that died comes back: its settings follow as the generation after.
    found = await plan_of(one, stream_of(one, epoch_bins=4))
    assert [following.segment.name for following in found.following] == ([] if same else [f"{STREAM}@3"])


async def test_an_end_for_good_is_not_taken_back_by_changing_something_else(one: OneSource) -> None:
    ending = replace(stream_of(one), until_us=EDGE * BIN_US)
    await (await Worker.start(one, ending)).run(one, drawn(3), EDGE + 8)
    [found] = (await plan_of(one, stream_of(one))).found
    assert found.abandoned_us == EDGE * BIN_US
    with pytest.raises(OperatorError, match=r"time.epoch was .* with successor_of to continue this one"):
        await Worker.start(one, stream_of(one, epoch_bins=4))
    assert {entry.stream for entry in await one.store.ledger(SOURCE)} == {STREAM}


async def test_a_generation_that_has_released_is_found_behind_one_without_rows(one: OneSource) -> None:
    third, streams = f"{STREAM}@3", (stream_of(one), stream_of(one, epoch_bins=4))
    await until_lost(one, {}, "lost", *streams)
    one.witness.kept[third] = one.witness.kept[SECOND]
    found = await plan_of(one, streams[1])
    assert [one.name for one in found.history.streams] == [STREAM, SECOND, third]


async def test_a_machine_that_joins_after_the_edge_survives_a_loss_of_the_store(one: OneSource) -> None:
    """It keeps the rows of the generation that has ended, too, although it never ran it."""
    changed, events = stream_of(one, epoch_bins=4), drawn(8, 116)
    await (await Worker.start(one, stream_of(one))).run(one, events, CHANGED_AT)
    await (await Worker.start(one, changed)).run(one, events, LOST_AT)
    joined = (await plan_of(one, changed)).now
    assert ([one.name for one in joined.streams], *joined.ended) == ([SECOND], STREAM)
    rows = [await one.witness.rows(name, 0) for name in (STREAM, SECOND)]
    one.witness = MemoryWitness()  # another machine
    assert [await catch_up(one.store, one.witness, name) for name in (STREAM, SECOND)] == [True, True]
    assert [await one.witness.rows(name, 0) for name in (STREAM, SECOND)] == rows
    assert not await catch_up(one.store, one.witness, STREAM)
    one.store = MemoryStore(one.clock)
    found = await plan_of(one, changed)
    assert [stream.name for stream in found.history.streams] == [STREAM, SECOND]
