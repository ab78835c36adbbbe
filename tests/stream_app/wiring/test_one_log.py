"""Two names of one log are one log in the ledger: a second measurement is asked about and added up."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from stream_app.api.replicas import Replicas
from stream_app.config import ConfigError, Settings, SourceSettings, load_text
from stream_app.config.plans import planned
from stream_app.config.source import by_log
from stream_app.core.instants import parse_instant
from stream_app.core.ledger import composed, statement
from stream_app.core.measured import ledger_entry
from stream_app.core.records import GENESIS, EpochRecord, LedgerEntry
from stream_app.ports import OperatorError, OutsideLedger
from stream_app.source_ledger import measured
from stream_app.sources.copies import check_copies
from stream_app.sources.file_list import files_of, is_list
from stream_app.wiring.known_logs import ledger_of, with_known_logs
from stream_app.wiring.starting import check_measured_before
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.files import event_line

NOW_US = parse_instant("2024-06-15T12:00:00Z")
FIRST_BIN = parse_instant("2024-06-01T00:00:00Z") // 3_600_000_000
ACCEPT = ', accept: "measured again"'


def events(*numbers: int) -> bytes:
    """Return lines of different events."""
    return b"".join(event_line(1_717_200_000_000_000 + number, n=number) for number in numbers)


def write(path: Path, *numbers: int) -> Path:
    """Write a file of events, compressed if its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(events(*numbers)) if path.suffix == ".gz" else events(*numbers))
    return path


def in_file(path: Path) -> set[bytes]:
    """Return the events of a file."""
    if not path.exists():
        path = path.with_name(f"{path.name}.gz")
    data = path.read_bytes()
    return set((gzip.decompress(data) if path.suffix == ".gz" else data).splitlines())


class Outside(OutsideLedger):
    """A ledger outside the store that keeps nothing on a disk."""

    name = "ledger.file: elsewhere"

    def __init__(self) -> None:
        self._entries: dict[LedgerEntry, None] = {}

    async def entries(self) -> tuple[LedgerEntry, ...]:
        return tuple(self._entries)

    async def append(self, entries: Sequence[LedgerEntry]) -> None:
        self._entries |= dict.fromkeys(entries)


class World:
    """A directory of files, a store, a ledger outside it, and the configurations that count here in turn."""

    def __init__(self, path: Path) -> None:
        self.path, self.store, self.witness = path, MemoryStore(), MemoryWitness()
        self.outside = Outside()
        self.counted: dict[str, set[bytes]] = defaultdict(set)  # by stream: the events that it counted
        self.sources: dict[str, str] = {}
        self.epsilon: dict[str, Fraction] = {}

    def settings(self, *streams: tuple[str, str], total: str = "") -> Settings:
        """Return a configuration. Args: streams, name and source; ``|accept`` may end the name."""
        text = "streams:"
        for name, source in streams:
            name, _, accept = name.partition("|")
            text += f"""
  {name}:
    source: {{{source}}}
    time: {{field: at, format: us, bin: 1h, grace: 1m, epoch: 1d, first: 2024-06-01T00:00:00Z}}
    privacy: {{epsilon: {self.epsilon.setdefault(name, Fraction(3))}{ACCEPT if accept else ""}{total}}}"""
        return load_text(text, self.path / "app.yaml", {})

    def start(self, *streams: tuple[str, str], total: str = "") -> None:
        """Start a worker: check, begin each stream, and count what its files hold."""
        asyncio.run(self._start(self.settings(*streams, total=total)))

    async def _start(self, settings: Settings) -> None:
        witnesses = dict.fromkeys((stream.name for stream in settings.streams), self.witness)
        await check_measured_before(settings, self.store, witnesses, self.outside, NOW_US)
        settings = await with_known_logs(settings, self.store, self.outside)
        for streams in by_log(settings.streams):
            source = streams[0].source
            assert isinstance(source, SourceSettings)
            if source.keep_us is None and is_list(source.file):
                files = list(files_of(source.file).values())
                check_copies(files, csv=False)
            else:
                files = [source.file] if source.keep_us is None else list(source.file.glob("*.ndjson"))
            for stream in streams:
                strategy = planned(stream)
                record = EpochRecord(0, FIRST_BIN, 24, 1, strategy.hash)
                ledger = ledger_of(stream, settings, self.store, self.outside)
                await ledger.begin(ledger_entry(strategy, record))
                await self.store.open_epoch(stream.name, strategy.to_json(), record, GENESIS)
                self.sources[stream.name] = stream.declared.source.name
                self.counted[stream.name] |= set().union(*map(in_file, files))

    def recounted(self) -> dict[str, Fraction]:
        """Return what the most expensive event of each stream costs in all streams that counted it."""
        costs: dict[bytes, Fraction] = defaultdict(Fraction)
        for stream, found in self.counted.items():
            for event in found:
                costs[event] += self.epsilon[stream]
        return {
            stream: max((costs[event] for event in found), default=Fraction(0))
            for stream, found in self.counted.items()
        }

    def stated(self, stream: str) -> list[Fraction]:
        """Return the sum that the API states, the one that a start and an audit see, and the one outside."""
        source = self.sources[stream]

        async def ask() -> list[Fraction]:
            api = await Replicas(self.store.reader()).stated(source)
            audit = statement(source, await measured(self.store, source))
            kept = await self.outside.entries()
            names = {source, *(one.log for one in kept if one.source == source)}
            outside = composed(source, [[one for one in kept if one.source in names]])
            return [api.epsilon, audit.epsilon, statement(source, outside).epsilon]

        return asyncio.run(ask())

    def check_sums(self) -> None:
        """Check that no stated sum is below the recount's."""
        for stream, cost in self.recounted().items():
            assert min(self.stated(stream)) >= cost, (stream, self.stated(stream), cost)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


DAY = "file: day.ndjson"


def no_change(world: World) -> None:
    pass


def compress(world: World) -> None:
    day = world.path / "day.ndjson"
    write(day.with_name("day.ndjson.gz"), 1, 2, 3)
    day.unlink()


def link_hard(world: World) -> None:
    os.link(world.path / "day.ndjson", world.path / "hard.ndjson")


def link_soft(world: World) -> None:
    (world.path / "soft.ndjson").symlink_to("day.ndjson")


def link_folder(world: World) -> None:
    (world.path / "folder").symlink_to(".")


def link_from_a_list(world: World) -> None:
    (world.path / "list").mkdir()
    (world.path / "list" / "a.ndjson").symlink_to(world.path / "day.ndjson")


def copy(world: World) -> None:
    shutil.copy(world.path / "day.ndjson", world.path / "copy.ndjson")


def copy_compressed(world: World) -> None:
    write(world.path / "copy.ndjson.gz", 1, 2, 3)


def copy_and_grow(world: World) -> None:
    write(world.path / "copy.ndjson", 1, 2, 3, 4)


def spool(world: World) -> None:
    write(world.path / "spool" / "web" / f"{0:020}.ndjson", 1, 2, 3)


SAME = [
    (no_change, DAY, DAY),
    (no_change, DAY, "file: 'day*'"),
    (no_change, "file: '*.ndjson'", "file: 'day*'"),
    (no_change, "file: 'd*.ndjson'", "file: 'day*.ndjson'"),
    (no_change, "file: 'day-*.ndjson'", "file: 'day*-1.ndjson'"),  # no file has both names yet
    (no_change, f"{DAY}, group: people", "file: 'day*'"),
    (no_change, "file: 'day*', group: people", DAY),
    (no_change, "file: 'day*', group: people", f"{DAY}, group: others"),
    (no_change, DAY, "file: ./day.ndjson"),
    (no_change, DAY, "file: day.ndjson.gz"),
    (compress, DAY, "file: day.ndjson.gz"),
    (compress, "file: 'day*.ndjson'", "file: day.ndjson.gz"),
    (compress, "file: 'day*.ndjson.gz'", "file: 'day.n*'"),
    (link_hard, DAY, "file: hard.ndjson"),
    (link_hard, "file: 'd*'", "file: 'h*'"),
    (link_soft, DAY, "file: soft.ndjson"),
    (link_soft, DAY, "file: 's*.ndjson'"),
    (link_folder, DAY, "file: folder/day.ndjson"),
    (link_folder, DAY, "file: 'folder/day*'"),
    (link_from_a_list, DAY, "file: 'list/*.ndjson'"),
    (copy, DAY, "file: copy.ndjson"),
    (copy, "file: 'day*'", "file: 'copy*'"),
    (copy_compressed, DAY, "file: copy.ndjson.gz"),
    (copy_and_grow, DAY, "file: copy.ndjson"),
    (spool, "http: web", "file: 'spool/web/*.ndjson'"),
    (spool, "http: web", f"file: spool/web/{0:020}.ndjson"),
    (spool, "http: web, group: people", "file: 'spool/web/*'"),
]


@pytest.mark.parametrize(("change", "one", "other"), SAME)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("when", ["together", "one after the other", "the first has left"])
def test_a_log_under_another_name_is_asked_about_and_added(
    world: World, change: Callable[[World], None], one: str, other: str, swapped: bool, when: str
) -> None:
    write(world.path / "day.ndjson", 1, 2, 3)
    write(world.path / "other" / "day.ndjson", 7)  # of the same name in another folder
    change(world)
    if swapped:
        one, other = other, one
    first = [] if when == "the first has left" else [("a", one)]
    if when != "together":
        world.start(("a", one))

    with pytest.raises((ConfigError, OperatorError), match=r"accept is missing: .* measured by a|reads the"):
        world.start(*first, ("b", other))
    if first and _own(one) == _own(other) and one != other:
        return  # both in one configuration need the same source
    with pytest.raises(ConfigError, match="costs epsilon 6, more than the total of epsilon 5"):
        world.start(*first, ("b|accept", other), total=", total: {epsilon: 5}")
    world.start(*first, ("b|accept", other))
    world.check_sums()
    assert world.stated("b") == world.stated("a") == [6, 6, 6]
    world.start(*first, ("b|accept", other))  # again
    assert world.stated("b") == world.stated("a") == [6, 6, 6]


def _own(source: str) -> str:
    return source.partition(",")[0].replace("./", "")
