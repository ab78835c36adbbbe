"""Two names of one log are one log in the ledger: a second measurement is asked about and added up."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

from stream_app.api.replicas import Replicas
from stream_app.config import ConfigError, Settings, StreamSettings, load_text
from stream_app.config.one_log import related
from stream_app.config.plans import planned
from stream_app.config.second_measurement import check_measurements
from stream_app.config.source import by_log
from stream_app.core.instants import parse_instant
from stream_app.core.ledger import composed, statement
from stream_app.core.records import GENESIS, EpochRecord, LedgerEntry
from stream_app.core.segments.visible_costs import ledger_entry
from stream_app.loops.clocks import ReplayClock
from stream_app.ports import Clock, OperatorError, OutsideLedger, Source
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from stream_app.source_ledger import SourceLedger, TotalSpent, measured
from stream_app.sources.copies import FEWEST_RECORDS
from stream_app.wiring.event_logs import check_files, decodes_for, open_source
from stream_app.wiring.known_logs import ledger_of, with_known_logs
from stream_app.wiring.starting import check_measured_before
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.one_source import event_line

pytestmark = pytest.mark.slow

EPSILON = Fraction(3)
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


class Outside(OutsideLedger):
    """A ledger outside the store that keeps nothing on a disk."""

    name = "ledger.file: elsewhere"

    def __init__(self) -> None:
        self._entries: dict[LedgerEntry, None] = {}

    async def entries(self) -> tuple[LedgerEntry, ...]:
        return tuple(self._entries)

    async def append(self, entries: Sequence[LedgerEntry]) -> None:
        self._entries |= dict.fromkeys(entries)


class Ended(ReplayClock):
    """The clock of a replay that has ended."""

    def __init__(self) -> None:
        pass

    def reached_us(self) -> int:
        return 2**60


class World:
    """A directory of files, a store, a ledger outside it, and the configurations that count here in turn."""

    def __init__(self, path: Path) -> None:
        self.path, self.store, self.witness = path, MemoryStore(), MemoryWitness()
        self.outside = Outside()
        self.counted: dict[str, Counter[bytes]] = defaultdict(Counter)  # by stream, then event
        self.positions: dict[str, int] = {}
        self.sources: dict[str, str] = {}

    def settings(self, *streams: tuple[str, str], total: str = "") -> Settings:
        """Return a configuration. Args: streams, name and source; ``|accept`` may end the name."""
        text = "streams:"
        for name, source in streams:
            name, _, accept = name.partition("|")
            live = "" if "replay" in source else ", grace: 1m, first: 2024-06-01T00:00:00Z"
            text += f"""
  {name}:
    source: {{{source}}}
    time: {{field: at, format: us, bin: 1h, epoch: 1d{live}}}
    privacy: {{epsilon: {EPSILON}{ACCEPT if accept else ""}{total}}}"""
        return load_text(text, self.path / "app.yaml", {})

    def send(self, *numbers: int) -> None:
        """Store events in the spool, as the listener does."""
        writer = SpoolWriter(self.path / "spool" / "web", 1 << 30, KnownKeys(1 << 40, 100), lambda: NOW_US)
        writer.append([Incoming(events(*numbers))])
        writer.close()

    def start(self, *streams: tuple[str, str], total: str = "") -> None:
        """Start a worker: check, begin each stream, and count what its log holds now."""
        asyncio.run(self._start(self.settings(*streams, total=total)))

    async def _start(self, settings: Settings) -> None:
        witnesses = dict.fromkeys((stream.name for stream in settings.streams), self.witness)
        check_files(settings.streams)
        await check_measured_before(settings, self.store, witnesses, self.outside, NOW_US)
        settings = await with_known_logs(settings, self.store, self.outside)
        for streams in by_log(settings.streams):
            replays = streams[0].declared.source.replay is not None
            source = await open_source(streams, settings, Ended() if replays else cast("Clock", None))
            try:
                for stream in streams:
                    await self.begin(stream, settings)
                    await self._count(stream.name, source)
            finally:
                await source.close()

    async def begin(self, stream: StreamSettings, settings: Settings) -> None:
        strategy = planned(stream)
        record = EpochRecord(0, FIRST_BIN, 24, 1, strategy.hash)
        ledger = ledger_of(stream, settings, self.store, self.outside)
        await ledger.begin(ledger_entry(strategy, record))
        await self.store.open_epoch(stream.name, strategy.to_json(), record, GENESIS)
        self.sources[stream.name] = stream.declared.source.name

    async def _count(self, stream: str, source: Source) -> None:
        while batches := await source.read({"0": self.positions.get(stream, 0)}, 0.0):
            self.counted[stream] += Counter(batches[0].records)
            self.positions[stream] = batches[0].end

    def recounted(self) -> dict[str, Fraction]:
        """Return what the most expensive event of each stream costs in all streams that counted it."""
        costs: dict[bytes, Fraction] = defaultdict(Fraction)
        for found in self.counted.values():
            assert set(found.values()) <= {1}, "an event counted more than once in one stream"
            for event in found:
                costs[event] += EPSILON
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


def without_a_common_file(world: World) -> None:
    """One may come: day-1.ndjson."""
    write(world.path / "day-2.ndjson", 8)
    write(world.path / "day2-1.ndjson", 9)


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
    world.send(1, 2, 3)


def rename(world: World) -> None:
    (world.path / "day.ndjson").rename(world.path / "renamed.ndjson")


def move_segment(world: World) -> None:
    (world.path / "spool" / "web" / f"{0:020}.ndjson").rename(world.path / "moved.ndjson")


DAY_OF_EVENTS = "{from: 2024-06-01T00:00:00Z, to: 2024-06-02T00:00:00Z}"
REPLAY = f"{DAY}, replay: {DAY_OF_EVENTS}"
SAME = [
    (rename, DAY, "file: renamed.ndjson"),
    (rename, "file: 'day*'", "file: 'ren*'"),
    (rename, REPLAY, "file: renamed.ndjson"),
    (rename, DAY, f"file: 'ren*', replay: {DAY_OF_EVENTS}"),
    (no_change, REPLAY, f"file: 'day*', replay: {DAY_OF_EVENTS}"),
    (compress, REPLAY, f"file: day.ndjson.gz, replay: {DAY_OF_EVENTS}"),
    (no_change, DAY, DAY),
    (no_change, DAY, "file: 'day*'"),
    (no_change, "file: '*.ndjson'", "file: 'day*'"),
    (no_change, "file: 'd*.ndjson'", "file: 'day*.ndjson'"),
    (without_a_common_file, "file: 'day-*.ndjson'", "file: 'day*-1.ndjson'"),
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
    (move_segment, "http: web", "file: moved.ndjson"),
]


LATER = [compress, rename, move_segment]  # what only makes sense between two starts


@pytest.mark.parametrize(("change", "one", "other"), SAME)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("when", ["together", "one after the other", "the first has left"])
def test_a_log_under_another_name_is_asked_about_and_added(
    world: World, change: Callable[[World], None], one: str, other: str, swapped: bool, when: str
) -> None:
    write(world.path / "day.ndjson", 1, 2, 3)
    write(world.path / "other" / "day.ndjson", 7)  # of the same name in another folder
    if change is move_segment:
        world.send(1, 2, 3)
    if change in LATER:
        swapped, when = False, "the first has left"
    else:
        change(world)
    if swapped:
        one, other = other, one
    first = [] if when == "the first has left" else [("a", one)]
    if when != "together":
        world.start(("a", one))
    if change in LATER:
        change(world)
    with pytest.raises(OperatorError, match=r"accept is missing: .* measured by a|reads the"):
        world.start(*first, ("b", other))
    if first and _own(one) == _own(other) and one != other:
        return  # both in one configuration need the same source
    with pytest.raises(OperatorError, match="costs epsilon 6, more than the total of epsilon 5"):
        world.start(*first, ("b|accept", other), total=", total: {epsilon: 5}")
    for _ in range(2):
        world.start(*first, ("b|accept", other))
        world.check_sums()
        assert world.stated("b") == world.stated("a") == [6, 6, 6]


def _own(source: str) -> str:
    return source.partition(",")[0].replace("./", "")


def test_what_an_earlier_build_counted_under_two_names_is_added_up_at_the_next_start(world: World) -> None:
    """It asked nobody, and no ledger has an entry of the other name. Both streams go on, unasked."""
    write(world.path / "day.ndjson", 1, 2, 3)
    settings = world.settings(("a", DAY), ("b", "file: 'day*', group: people"))

    async def begin(stream: StreamSettings) -> None:
        strategy = planned(stream)
        record = EpochRecord(0, FIRST_BIN, 24, 1, strategy.hash)
        entry = ledger_entry(strategy, record)
        if entry.source == "people":
            await world.store.reserve(replace(entry, source="file:day*", log="file:day*"))
            entry = replace(entry, log="file:day*")
        await world.store.reserve(entry)
        await world.store.open_epoch(stream.name, strategy.to_json(), record, GENESIS)
        world.sources[stream.name] = stream.declared.source.name

    async def start() -> None:
        witnesses = dict.fromkeys(("a", "b"), world.witness)
        await check_measured_before(settings, world.store, witnesses, world.outside, NOW_US)

    for stream in settings.streams:
        asyncio.run(begin(stream))
    assert world.stated("a")[:2] == world.stated("b")[:2] == [3, 3]
    for _ in range(2):
        asyncio.run(start())
        assert world.stated("a") == world.stated("b") == [6, 6, 6]


async def test_of_two_names_that_begin_at_the_same_moment_one_is_asked_about() -> None:
    """Each worker has looked for other names before the other one wrote its own."""
    names = ("file:day.ndjson", "file:day*")
    store = MemoryStore()
    ledgers = [SourceLedger(store, find_others=_others(name, names)) for name in names]
    entries = [LedgerEntry(name, name[-1], 0, 0, 10, "3", "event", name) for name in names]
    begins = (ledger.begin(entry) for ledger, entry in zip(ledgers, entries, strict=True))
    assert any(
        isinstance(found, OperatorError)
        for found in list(await asyncio.gather(*begins, return_exceptions=True))
    )


def _others(own: str, same: tuple[str, ...]) -> Callable[[Iterable[str]], Awaitable[Sequence[str]]]:
    async def find(names: Iterable[str]) -> list[str]:
        return [name for name in set(names) if name in same and name != own]

    return find


LATE_FILES: dict[Callable[[World], None], str] = {
    link_hard: "hard.ndjson",
    link_soft: "soft.ndjson",
    link_folder: "folder/day.ndjson",
    link_from_a_list: "list/*.ndjson",
    copy: "copy.ndjson",
    copy_compressed: "copy.ndjson.gz",
    copy_and_grow: "c*.ndjson",
    rename: "renamed.ndjson",
}


@pytest.mark.parametrize("change", LATE_FILES)
@pytest.mark.parametrize("total", ["", ", total: {epsilon: 5}"])
def test_a_file_that_comes_after_the_start_is_compared_before_its_stream_begins(
    world: World, change: Callable[[World], None], total: str
) -> None:
    """The worker looks again for a file that was missing, and its stream begins by itself."""
    write(world.path / "day.ndjson", 1, 2, 3)
    write(world.path / "far.ndjson", 7)
    world.start(("a", DAY))

    async def late(accept: str) -> None:
        b = (f"b{accept}", f"file: '{LATE_FILES[change]}'")
        settings = world.settings(("far", "file: far.ndjson"), b, total=total)
        if not world.sources.keys() - {"a"}:
            compared.append(await with_known_logs(settings, world.store, world.outside))
            change(world)
        settings = replace(settings, logs=compared[0].logs)
        far, stream = settings.streams
        await world.begin(far, settings)
        await world.begin(stream, settings)

    compared: list[Settings] = []
    with pytest.raises(OperatorError, match=r"accept is missing: .* already measured by a"):
        asyncio.run(late(""))
    if total:
        with pytest.raises(TotalSpent):
            asyncio.run(late("|accept"))
    else:
        asyncio.run(late("|accept"))
        assert world.stated("b") == world.stated("a") == [6, 6, 6]


def test_a_copy_is_found_beside_each_name_of_a_linked_file(world: World) -> None:
    write(world.path / "day.ndjson", 1, 2, 3)
    link_hard(world)
    copy(world)
    places = {name: world.path / f"{name}.ndjson" for name in ("day", "hard", "copy")}
    assert {name: set(others) for name, others in related(places.items()).items()} == {
        name: places.keys() - {name} for name in places
    }


DIFFERENT = [
    (DAY, "file: 'days*'"),
    (DAY, "file: other/day.ndjson"),
    ("file: 'day-1*.ndjson'", "file: 'day-2*.ndjson'"),
    ("file: 'day*.ndjson'", "file: 'day*.csv'"),
    ("file: 'day-?-*.ndjson'", "file: 'day.*'"),
    ("http: web", "http: app"),
    ("http: web", "file: 'spool/app/*.ndjson'"),
    ("http: web", "file: 'spool/*.ndjson'"),
    (DAY, "http: web"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_logs_without_a_common_event_are_not_asked_about(world: World, one: str, other: str) -> None:
    check_measurements(world.settings(("a", one), ("b", other)).streams, NOW_US)


POOL = {
    "a1": "file: a-1.ndjson",
    "all": "file: 'a-*.ndjson'",
    "ones": "file: '*-1.ndjson', group: people",
    "bs": "file: 'b-*.ndjson', group: people",
    "b1": "file: b-1.ndjson",
    "packed": "file: a-1.ndjson.gz",
    "moved": "file: 'moved/*.ndjson'",
    "web": "http: web",
    "spooled": "file: 'spool/web/*.ndjson'",
    "replayed": f"file: a-1.ndjson, replay: {DAY_OF_EVENTS}",
    "replays": f"file: 'b-*', replay: {DAY_OF_EVENTS}",
}


class Drawn:
    """Drawn changes of files, and drawn starts."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng, self.next = world, random.Random(seed), 0
        self.begun: dict[str, None] = {}
        self.refused = 0

    def change(self) -> None:
        """Do one of the things that happen to files."""
        path, files = self.world.path, self.files()
        new = path / self.rng.choice(["a-{}", "b-{}", "moved/m-{}"]).format(self.rng.randint(1, 4))
        new = new.with_name(f"{new.name}.ndjson")
        new.parent.mkdir(exist_ok=True)
        own = [self._write, self._write, self._grow, self._send]
        what: Any = self.rng.choice([*own, soft, hard, shutil.copy, _rename, _pack, Path.unlink, Path.unlink])
        if what in (self._write, self._send) or not files:
            (self._send if what == self._send else self._write)(new)
            return
        old = self.rng.choice(files)
        if not old.exists():
            old.unlink()  # a link that leads nowhere now
            return
        if what in (self._grow, _pack, Path.unlink):
            what(old)
            return
        new = new.with_name(f"{new.name}.gz") if old.suffix == ".gz" else new
        if not os.path.lexists(new):
            what(old, new)

    def files(self) -> list[Path]:
        """Return all files but those of the spool."""
        return sorted((*self.world.path.glob("moved/*"), *self.world.path.glob("[ab]-*")))

    def numbers(self) -> range:
        """Return numbers of as many new events as tell a copy."""
        self.next += FEWEST_RECORDS
        return range(self.next - FEWEST_RECORDS, self.next)

    def _write(self, path: Path) -> None:
        if not path.exists() and not path.with_name(f"{path.name}.gz").exists():
            write(path, *self.numbers())

    def _grow(self, path: Path) -> None:
        records = (
            other.read_bytes() for other in self.files() if other.exists() and not other.samefile(path)
        )
        begin = path.read_bytes().partition(b"\n")[0]
        is_copied = any(other.startswith(begin) for other in records)  # then it would get other contents
        if path.suffix != ".gz" and not is_copied:
            with path.open("ab") as file:
                file.write(events(*self.numbers()))

    def _send(self, _: Path) -> None:
        self.world.send(*self.numbers())

    def start(self) -> None:
        """Start drawn streams; most accept what they are asked."""
        names = self.rng.sample(sorted(POOL), self.rng.randint(1, 2))
        accepts = {name: "|accept" if name in self.begun or self.rng.random() < 0.7 else "" for name in names}
        try:
            self.world.start(*((name + accept, POOL[name]) for name, accept in accepts.items()))
        except (ConfigError, OperatorError):
            self.refused += 1
        else:
            self.begun |= dict.fromkeys(names)


def soft(old: Path, new: Path) -> None:
    new.symlink_to(old)


def hard(old: Path, new: Path) -> None:
    os.link(old, new)


def _rename(old: Path, new: Path) -> None:
    old.rename(new)


def _pack(path: Path) -> None:
    if path.suffix != ".gz" and not path.is_symlink():
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


@pytest.mark.parametrize("seed", range(2, 22))
def test_over_drawn_files_each_event_counts_once_and_no_sum_is_too_small(world: World, seed: int) -> None:
    drawn = Drawn(world, seed)
    for name in ("a-1", "b-1", "moved/m-1"):
        write(world.path / f"{name}.ndjson", *drawn.numbers())
    starts = 0
    for _ in range(24):
        drawn.change()
        if drawn.rng.random() < 0.4:
            drawn.start()
            world.check_sums()
            starts += 1
    assert drawn.refused < starts


VISITS = """
streams:
  shown:
    source: &log {file: access.log, format: combined}
    time: &day {bin: 1d, epoch: 30d, grace: 5m, first: 2026-11-01T00:00:00Z}
    where: {page: {present: true}}
    privacy: {epsilon: 1}
  english:
    source: *log
    time: *day
    where: {page: [/en]}
    privacy: {epsilon: 1, accept: measured again}
  requests:
    source: *log
    time: *day
    where: {page: [/de]}
    privacy: {epsilon: 1, accept: measured again, unit: event}
"""


@pytest.mark.parametrize(
    ("opened", "joining", "is_decoded"),
    [
        (["shown"], ["shown"], True),
        (["shown"], ["english"], False),  # it names the visitors of other lines only
        (["shown", "english"], ["english"], True),
        (["shown"], ["requests"], True),
        (["requests"], ["shown"], False),
    ],
)
def test_a_log_is_opened_again_for_a_stream_whose_visitors_it_does_not_name(
    tmp_path: Path, opened: list[str], joining: list[str], is_decoded: bool
) -> None:
    streams = {one.name: one for one in load_text(VISITS, tmp_path / "app.yaml", {}).streams}
    assert decodes_for([streams[name] for name in opened], [streams[name] for name in joining]) is is_decoded
