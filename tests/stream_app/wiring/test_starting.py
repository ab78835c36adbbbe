"""What a start checks before it opens a stream, if the store, the witness or both are lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stream_app.config import Settings, load_text
from stream_app.config.plans import planned
from stream_app.core.instants import parse_instant
from stream_app.core.ledger import statement
from stream_app.core.records import GENESIS, EpochRecord, LedgerEntry, Reply, WitnessRow
from stream_app.core.segments.visible_costs import ledger_entry
from stream_app.monitoring.metrics import Metrics
from stream_app.ports import Clock, OperatorError
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.wiring.halted import Halted
from stream_app.wiring.starting import check_measured_before, checked_start
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryWitness

NOW_US = parse_instant("2024-06-15T12:00:00Z")
HOUR_US = 3_600_000_000
FIRST_US = parse_instant("2024-06-01T00:00:00Z")
SOURCE = "file:events.ndjson"
ACCEPT = ', accept: "measured again"'


def settings(directory: Path, *streams: str) -> Settings:
    """Return settings of streams.

    Args: streams, each a name, or "name|more"; ``more`` follows the stream's epsilon of 1.
    """
    lines = [
        f"""
  {name}:
    source: {{file: events.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 1m, epoch: 1d, first: 2024-06-01T00:00:00Z}}
    privacy: {{epsilon: 1{more}}}"""
        for name, _, more in (stream.partition("|") for stream in streams)
    ]
    return load_text("streams:" + "".join(lines), directory / "app.yaml", {})


def epoch_of(stream: str, epoch: int) -> LedgerEntry:
    start_us = FIRST_US + 24 * HOUR_US * epoch
    return LedgerEntry(SOURCE, stream, epoch, start_us, start_us + 24 * HOUR_US, "1", "event", "h")


def row_of(epoch: int, strategy_hash: str) -> WitnessRow:
    """Return the first row of an epoch, for a stream with bins of an hour."""
    bin = FIRST_US // HOUR_US + 24 * epoch
    facts = {"seq": 1 + 24 * epoch, "epoch": epoch, "bin": bin, "strategy": strategy_hash, "prev": "0" * 64}
    return WitnessRow(1 + 24 * epoch, json.dumps(facts).encode())


@dataclass
class World:
    """A store, a witness, and a ledger in another place. Each of them may be lost."""

    directory: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    witness: MemoryWitness = field(default_factory=MemoryWitness)

    def __post_init__(self) -> None:
        self.outside: LedgerFile | None = LedgerFile.create(self.directory / "elsewhere" / "ledger.ndjson")

    async def start(self, *streams: str) -> None:
        """Run the checks of a start."""
        read = settings(self.directory, *streams)
        witnesses = dict.fromkeys((stream.name for stream in read.streams), self.witness)
        await check_measured_before(read, self.store, witnesses, self.outside, NOW_US)

    async def measure(self, stream: str, epochs: int) -> None:
        """Reserve this many epochs of a stream, and put the first row of each into the witness."""
        strategy = planned(settings(self.directory, stream).streams[0])
        for epoch in range(epochs):
            await self.store.reserve(epoch_of(stream, epoch))
            await self.witness.append(stream, [row_of(epoch, strategy.hash)])

    async def ledger(self) -> list[tuple[str, int, bool]]:
        entries = await self.store.ledger(SOURCE)
        return sorted((entry.stream, entry.epoch, entry.lost) for entry in entries)

    async def outside_entries(self) -> Sequence[LedgerEntry]:
        assert self.outside is not None
        return await self.outside.entries()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_start_copies_what_the_store_knows(world: World) -> None:
    await world.measure("a", 2)
    for _ in range(2):
        await world.start("a")
    assert await world.outside_entries() == (epoch_of("a", 0), epoch_of("a", 1))
    assert await world.ledger() == [("a", 0, False), ("a", 1, False)]


async def test_a_running_epoch_without_a_row_goes_on_if_the_ledger_alone_was_lost(world: World) -> None:
    strategy = planned(settings(world.directory, "a").streams[0])
    record = EpochRecord(0, FIRST_US // HOUR_US, 24, 1, strategy.hash)
    await world.store.reserve(ledger_entry(strategy, record))
    assert await world.store.open_epoch("a", strategy.to_json(), record, GENESIS) is Reply.DONE
    await world.start("a")
    world.store.ledgers.clear()
    for _ in range(2):
        await world.start("a")
    assert await world.ledger() == [("a", 0, True)]


async def test_where_store_and_witness_are_lost_a_stream_does_not_go_on(world: World) -> None:
    await world.measure("a", 2)
    await world.start("a")
    world.store, world.witness = MemoryStore(), MemoryWitness()
    for _ in range(2):  # another start, or a crash, does not count as an answer
        with pytest.raises(
            OperatorError, match=r"^stream a: ledger\.file: .* knows that it measured"
        ) as refused:
            await world.start("a")
        assert "(epoch 1, from 2024-06-02T00:00:00Z)" in str(refused.value)
        assert "give stream a another name, whose privacy.accept then says" in str(refused.value)


async def test_another_name_is_asked_and_the_sum_knows_what_was_lost(world: World) -> None:
    await world.measure("a", 2)
    await world.start("a")
    world.store, world.witness = MemoryStore(), MemoryWitness()
    with pytest.raises(OperatorError, match=r"streams\.b\.privacy\.accept is missing.*cost epsilon 2;"):
        await world.start("b")
    await world.start("b|" + ACCEPT)
    assert statement(SOURCE, await world.store.ledger(SOURCE)).epsilon == 1
    assert await world.ledger() == [("a", 0, True), ("a", 1, True)]
    # The old name stays refused, even beside the new name, and after the ledger was copied again.
    with pytest.raises(OperatorError, match=r"^stream a: ledger\.file"):
        await world.start("a", "b|" + ACCEPT)
    world.outside = None
    with pytest.raises(OperatorError, match=r"^stream a: the ledger outside the store"):
        await world.start("a")


async def test_a_witness_that_knows_everything_is_enough(world: World) -> None:
    await world.measure("a", 2)
    await world.start("a")
    world.store = MemoryStore()
    await world.start("a")
    # But a witness that was set back together with the store is not accepted.
    world.store = MemoryStore()
    world.witness.kept["a"].pop()
    with pytest.raises(OperatorError, match=r"^stream a: .*epoch 1, from"):
        await world.start("a")


async def test_another_measurement_in_the_same_place_is_refused(world: World) -> None:
    """A stream began anew under its old name, while the ledger in the other place was missing."""
    await world.measure("a", 1)
    await world.start("a")
    world.store = MemoryStore()
    await world.store.reserve(LedgerEntry(SOURCE, "a", 0, NOW_US, NOW_US + 1, "1", "event", "other"))
    with pytest.raises(OperatorError, match=r"knows another epoch 0 of stream a than the store"):
        await world.start("a")


async def test_the_witness_is_entered_in_the_ledger_before_a_new_stream_is_asked_about(world: World) -> None:
    """The store is lost. Without the witness's epochs, a stream that opens first would see no measurement."""
    world.outside = None
    await world.measure("b", 2)
    world.store = MemoryStore()
    with pytest.raises(OperatorError, match=r"streams\.a\.privacy\.accept is missing.* measured by b from"):
        await world.start("a", "b")
    assert await world.ledger() == [("b", 0, False), ("b", 1, False)]
    await world.start("a|" + ACCEPT, "b")


async def test_a_store_that_was_set_back_gets_the_later_epochs(world: World) -> None:
    world.outside = None
    await world.measure("a", 1)
    backup = world.store.copy()
    await world.measure("a", 3)
    world.store.restore(backup)
    await world.start("a")
    assert await world.ledger() == [("a", 0, False), ("a", 1, False), ("a", 2, False)]


TOTAL = ", total: {epsilon: 9}"


async def test_a_total_over_a_stream_of_another_configuration_needs_a_ledger_elsewhere(world: World) -> None:
    outside, world.outside = world.outside, None
    await world.measure("retired", 1)
    with pytest.raises(
        OperatorError, match=r"^streams\.a\..*total: .* by stream retired, too, .*forget"
    ) as one:
        await world.start("a|" + TOTAL + ACCEPT)
    assert "\n" not in str(one.value)
    assert await world.ledger() == [("retired", 0, False)]
    await world.start("a|" + TOTAL.replace("}", ", per: stream}") + ACCEPT)
    await world.start("retired", "a|" + TOTAL + ACCEPT)
    world.outside = outside
    await world.start("a|" + TOTAL + ACCEPT)


async def test_a_first_start_that_nothing_knows_of_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await world.start("a")
    assert caplog.messages == []  # the ledger in the other place says that this is the first start
    world.outside = None
    with caplog.at_level(logging.WARNING):
        await world.start("a", "b|" + ACCEPT)
    [line] = caplog.messages
    assert line.startswith("a, b: no earlier run is known. A new stream needs nothing.")
    assert "\n" not in line
    caplog.clear()
    (world.directory / "state" / "streams").mkdir(parents=True)
    (world.directory / "state" / "streams" / "a.json").touch()
    await world.measure("b", 1)
    with caplog.at_level(logging.WARNING):
        await world.start("a|" + ACCEPT, "b")
    assert caplog.messages == []


UNREAD = [
    ("x.ndjson", b"no row\n{}\n"),
    ("x%402.ndjson", b"[]\n"),
    ("x%402.ndjson", b"\xff\n"),
    ("x%403.ndjson", b"{}\n{}\n"),
]


class Noon(Clock):
    """The store's clock."""

    virtual = False

    async def sleep_until_us(self, instant_us: int) -> None:
        raise AssertionError("a start does not sleep")

    async def now_us(self) -> int:
        return NOW_US


READERS = {"x": "events", "y": "events", "listed": "ev*", "renamed": "old", "far": "far"}


@pytest.mark.parametrize(("name", "content"), UNREAD)
@pytest.mark.parametrize("kept", [False, True])
async def test_no_stream_begins_over_a_source_of_which_one_stream_cannot_be_read(
    tmp_path: Path, name: str, content: bytes, kept: bool
) -> None:
    """The store was lost, so only what cannot be read knows what the stream has cost."""
    text = "ledger: {file: ledger.ndjson}\n" if kept else ""
    text += "streams:"
    for stream, file in READERS.items():
        (tmp_path / f"{file.replace('*', '2')}.ndjson").write_bytes(
            f'{{"at": 1, "file": "{file}"}}\n'.encode()
        )
        text += f"""
  {stream}:
    source: {{file: '{file}.ndjson'}}
    time: {{field: at, format: s, bin: 1h, grace: 1m, epoch: 1d, first: 2024-06-01T00:00:00Z}}
    privacy: {{epsilon: 1{ACCEPT}{", total: {epsilon: 3, per: stream}" if stream == "y" else ""}}}"""
    read = load_text(text, tmp_path / "app.yaml", {})
    (tmp_path / "state" / "witness").mkdir(parents=True)
    (tmp_path / "state" / "witness" / name).write_bytes(content)
    LedgerFile.create(tmp_path / "ledger.ndjson")
    store, metrics = MemoryStore(), Metrics()
    halted = Halted([stream.name for stream in read.streams], store, metrics)
    async with AsyncExitStack() as resources:
        started = await checked_start(read, store, Noon(), metrics, (), halted, resources)
    assert started is not None
    running, stopped = {stream.name for stream in started.settings.streams}, set(halted.lines)
    assert stopped == ({"x"} if kept else {"x", "y", "listed"})
    assert running == READERS.keys() - stopped
