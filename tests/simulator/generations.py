"""Streams that end where another one goes on: generations of one stream, and successors under other names.

The workers start as the service's do: ``core/segments/plan.py`` decides what they run, and they start again
where a generation begins. Both streams follow every rule of a stream, and each event counts in one of them.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec import structs

from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.config.settings import ApiSettings, RedisSettings
from stream_app.core.declaration import Declaration
from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import EpochRecord, LedgerEntry, Reply
from stream_app.core.segments import edges
from stream_app.core.segments import plan as decisions
from stream_app.core.segments.endings import ENDED
from stream_app.core.segments.names import generation
from stream_app.core.segments.strategies import by_hash
from stream_app.loops import segments
from stream_app.loops.lease import Lease
from stream_app.loops.segments import SegmentPlan, Witnessed, until_begun_elsewhere
from stream_app.loops.stream import Ports, Stream
from stream_app.ports.errors import OvertakenError
from stream_app.together import until_all_end, until_one_ends
from stream_app.wiring import pipeline as loops
from stream_app.wiring import starting
from stream_app.wiring.known_logs import ledger_of
from tests.models.memory import MemoryStore
from tests.models.witnessed import MOST, OneWitness
from tests.simulator.checks import Broken
from tests.simulator.log import Kind
from tests.simulator.observer import MANY, Observer
from tests.simulator.on_time import is_on_time
from tests.simulator.pipeline import Pipeline, SharedListing
from tests.simulator.recount import Place, floor_at, is_taken_over
from tests.simulator.schedule import BIN_US, FIRST_BIN, STREAM, Action, Deed, Schedule, draw_schedule
from tests.simulator.world import PATIENCE_BINS, Trace, World

AFTER = "visits after"  # the name of a successor
LEAD_US = 3 * BIN_US // 2
CHANGES: list[dict[str, Any]] = [
    {"keys": 3},
    {"keys": 2, "sides": True},
    {"bin_us": BIN_US // 2},
    {"bin_us": BIN_US * 2},
    {"branching": (2,), "horizon": 2},
    {"branching": (5,), "horizon": 5},
    {"epsilon": 2, "keys": 3},
    {"max_events": 2},
]
# Of releases and of arrival: cells and bins stay.
SETTINGS: list[dict[str, Any]] = [
    {"epsilon": Fraction(3)},
    {"epsilon": Fraction(1, 3), "branching": (2, 3), "horizon": 6},
    {"grace_us": 0, "max_ahead_bins": 6},
    {"grace_us": 2 * BIN_US, "late": "next_bin"},
    {"late": "drop", "max_ahead_bins": 1},
]


class StartedByGenerations(Pipeline):
    """Workers that run the generations of their configuration.

    Args: edge_us, where the other stream begins as a successor; None: it is the next generation.
    """

    first_row: Callable[[str], bytes | None]  # of a stream's witness
    put_back: Callable[[Schedule], Schedule]  # what an operator does whose settings are refused

    def __init__(self, edge_us: int | None = None) -> None:
        self.edge_us = edge_us
        self.others: dict[str, Schedule] = {}  # what a successor's configuration is, by name

    def patched(self) -> AbstractContextManager[object]:
        """Read no file, and have a short time before an edge."""
        patches = ExitStack()
        for place, name, part in (
            (decisions, "LEAD_US", LEAD_US),
            (edges, "_LATEST_US", BIN_US // 4),
            (segments, "_AGAIN_US", BIN_US),
            (segments, "_LONGEST_SLEEP_S", BIN_US / 1e6),
            (segments, "_LOOK_S", BIN_US / 1e6),
            (starting, "named_as_begun", _named_as_planned),
            (starting, "check_begun_file", lambda stream, directory: None),
            (starting, "first_witnessed", lambda directory, stream: self.first_row(stream)),
            (asyncio, "to_thread", _at_once),
            *self.wrong,
        ):
            patches.enter_context(patch.object(place, name, part))
        return patches

    async def run(self, schedule: Schedule, ports: Ports) -> None:
        """Run a worker as ``wiring/workers.py`` does, over the given ports."""
        elsewhere = set[str]()
        while True:
            with suppress(OvertakenError):
                return await self._run(schedule, ports, elsewhere)

    async def _run(self, schedule: Schedule, ports: Ports, elsewhere: set[str]) -> None:
        schedule, plan, settings = await self._started(schedule, ports, elsewhere)
        owner = ports.make_nonce() if schedule.workers > 1 else None
        running = _Running(self, schedule, replace(ports, source=SharedListing(ports.source)), owner)
        running.begin(plan, settings)
        await running.pipeline.agree()

        async def keep_joining() -> None:
            nonlocal schedule, plan
            while True:
                await until_one_ends(
                    plan.until_next(running.settings, ports.wall),
                    self._noted(elsewhere, until_begun_elsewhere(running.settings, ports.store)),
                )
                schedule, plan, settings = await self._started(schedule, ports, elsewhere)
                running.begin(plan, settings)

        await until_all_end(running.pipeline.run(), keep_joining())

    async def _started(
        self, schedule: Schedule, ports: Ports, elsewhere: set[str]
    ) -> tuple[Schedule, SegmentPlan, Settings]:
        """Store what is due; return the schedule, the plan, and the settings of what is then to run."""
        while True:
            now_us = await ports.wall.now_us()
            configured, witnessed = self._settings(schedule), self.witnessed(ports)
            plan = await starting.allowed_segments(
                *(configured, ports.store, self.outside, now_us, witnessed, elsewhere)
            )
            if any("no bin begins where an epoch" in line for line in plan.refused):
                schedule = self.put_back(schedule)  # after a loss, epochs may end inside longer bins for ever
                continue
            await starting.check_measured_before(
                *(plan.checked, ports.store, ports.witnesses, self.outside, now_us)
            )
            may_store_due = await starting.may_store_due(plan, ports.store, ports.keys)
            settings = await plan.store_due(ports.store) if may_store_due else None
            if settings is not None:
                return schedule, plan, settings
            await asyncio.sleep(BIN_US / 4e6)

    async def _noted(self, elsewhere: set[str], begun: Awaitable[set[str]]) -> None:
        elsewhere.update(await begun)

    def witnessed(self, ports: Ports) -> Witnessed:
        """Return what a start asks about generations that have released."""
        return OneWitness(ports.witnesses[STREAM])

    def _settings(self, schedule: Schedule) -> Settings:
        """Return a configuration as a file has it."""
        streams = [_stream(schedule)]
        if self.edge_us is not None:
            declared = _stream(self.others[AFTER]).declared
            time = structs.replace(declared.time, first_us=self.edge_us)
            declared = structs.replace(declared, successor_of=STREAM, time=time)
            following = replace(streams[0], name=AFTER, declared=declared)
            streams = [replace(streams[0], until_us=self.edge_us), following]
        return Settings(
            file=Path("app.yaml"),
            redis=RedisSettings("redis://unused", None, None, None),
            api=ApiSettings("127.0.0.1", 0),
            state_dir=Path("state"),
            noise_key_file=None,
            publish_every_us=schedule.publish_every_us,
            streams=tuple(streams),
        )


class _Running:
    """The loops of a worker, which segments join."""

    pipeline: loops.Pipeline

    def __init__(
        self, world: StartedByGenerations, schedule: Schedule, ports: Ports, owner: str | None
    ) -> None:
        self.settings = world._settings(schedule)
        self._world, self._schedule, self._ports, self._owner = world, schedule, ports, owner
        self._measuring: list[Stream] = []
        self._names = set[str]()

    def begin(self, plan: SegmentPlan, settings: Settings) -> None:
        """Run these streams. Those that run already go on."""
        self.settings = settings
        new = [one for one in settings.streams if one.name not in self._names]
        is_first = not self._names
        self._names |= settings.names
        self._measuring += [self._stream(one) for one in new]
        streams = [
            replace(self._stream(one), measuring=self._measuring, begins=one.name in plan.begun)
            for one in new
        ]
        if is_first:
            self.pipeline = loops.Pipeline.over(self._ports, streams)
            return
        for stream in streams:
            self.pipeline.join(stream)
        for one in settings.streams:
            if one.until_us is not None:
                self.pipeline.by_name[one.name].end_at(one.until_us)

    def _stream(self, one: StreamSettings) -> Stream:
        store = self._ports.store
        return Stream(
            strategy=planned(one),
            publish_every_us=self._schedule.publish_every_us,
            witness_is_public=self._schedule.witness_is_public,
            ledger=ledger_of(one, self.settings, store, self._world.outside, self._names),
            lease=None if self._owner is None else Lease(store, one.name, self._owner),
            until_us=one.until_us,
        )


def _stream(schedule: Schedule) -> StreamSettings:
    declared = schedule.strategy.declared
    declared = structs.replace(declared, tree=structs.replace(declared.tree, release=schedule.release))
    return StreamSettings(STREAM, SourceSettings(Path("log"), "earliest"), declared, accept=ACCEPTED)


async def _named_as_planned(stream: StreamSettings, strategy: Any, settings: Settings) -> Any:
    return strategy


async def _at_once(call: Any, *arguments: Any) -> Any:
    """Call at once, and let other tasks run: a simulated loop has no threads."""
    await asyncio.sleep(0)
    return call(*arguments)


class Observed(Observer):
    """Also checks what holds between a stream and the one that goes on where it ends."""

    world: EdgeWorld
    before: Observed | None = None
    until_us: int | None = None  # where it was once stored that it ends
    taken: frozenset[Place] = frozenset()  # that it took over before the store was set back

    async def _after_open_epoch(self, args: tuple[Any, ...], reply: Reply) -> None:
        record: EpochRecord = args[2]
        self.strategies |= by_hash((await self._state()).texts)
        declared = self.strategies[record.strategy_hash].declared
        if any(record.epoch <= one.epoch for one in self.history.epochs):
            raise Broken(f"{self.stream}: epoch {record.epoch} opens a second time")
        if self.before is not None:
            if not self.history.epochs:
                # A worker with other settings may have put it into the ledger, and died.
                self.first_epoch = record.epoch
                alike = [one for one in self.world.both if _facts(one.strategy.declared) == _facts(declared)]
                self.schedule = replace(alike[0], name=self.stream)
            if self.first_us not in (None, declared.time.first_us) and self.watch.rows:
                raise Broken(f"{self.stream} begins at {self.first_us} and at {declared.time.first_us}")
            self.first_us = declared.time.first_us
            end_us = await self.before.stored_end_us()
            if end_us is None or end_us != self.first_us:
                raise Broken(f"{self.stream} opens at {self.first_us}, the one before ends at {end_us}")
            if record.first_bin * self.schedule.bin_us < end_us:
                raise Broken(f"{self.stream} opens before its edge")
        await super()._after_open_epoch(args, reply)

    async def _after_end_epoch(self, args: tuple[Any, ...], reply: Reply) -> None:
        if args[3] != ENDED:
            await super()._after_end_epoch(args, reply)
        elif not (state := await self._state()).has_ended:
            raise Broken(f"{self.stream} ends at row {args[2]}, and its end is {state.until_bin}")

    async def stored_end_us(self) -> int | None:
        """Return where the store ends the stream; None: nowhere."""
        state = await self.world.store.load(self.stream)
        return None if state is None or state.until_bin is None else state.until_bin * self.schedule.bin_us

    async def _after_release(self, args: tuple[Any, ...], reply: Reply) -> None:
        await super()._after_release(args, reply)
        end_us, last_us = await self.stored_end_us(), (args[1].last_bin + 1) * self.schedule.bin_us
        if end_us is not None and last_us > end_us:
            raise Broken(f"{self.stream} released bin {args[1].last_bin}, and ends at {end_us}")

    async def visible_bin(self) -> int:
        """Return the last visible bin of the log, as for a stream alone. An ended stream reads no more."""
        state = await self.world.store.load(self.stream)
        if state is not None and state.stopped and state.has_ended:
            public = await self.reader.public_state(self.stream)
            return MANY * MANY if public is not None and public.visible_seq == state.seq else -1
        bin = await super().visible_bin()
        return bin if bin in (-1, MANY * MANY) else (bin + 1) * self.schedule.bin_us // BIN_US - 1

    async def before_restore(self) -> None:
        """Note which records were counted, by all streams."""
        await super().before_restore()
        self.taken |= {place for place in self.measured if self.takes_over(*place)}
        self.world.check_once()

    def on_time(self, end_us: int | None) -> Iterator[Place]:
        """Yield the records that must count, because they arrived while their own bins were open."""
        rules, first_bin = self._rules(), self.history.epochs[0].first_bin
        bins = range(first_bin, max(self.history.released.values(), default=0) + 1)
        for partition, entries in self.world.log.partitions.items():
            for position, entry in enumerate(entries):
                counts = entry.kind is Kind.EVENT and rules.place(entry) is not None
                fits = entry.time_us // rules.bin_us in bins and self.counts_at(entry.time_us, end_us)
                if counts and fits and is_on_time(entry, rules):
                    yield partition, position

    def takes_over(self, partition: str, position: int) -> bool:
        """Return whether a record was late for the last bin of the segment before, so that it counts here."""
        if (partition, position) in self.taken:
            return True
        own = self.world.log.partitions[partition][position].time_us // self.schedule.bin_us
        history = self.history.partitions.get(partition)
        return history is not None and is_taken_over(own, position, history, self._rules())

    async def late_before(self) -> list[Place]:
        """Return the records that must count here or later: the last cuts of the segment before say which."""
        rules, before = self._rules(), self.before
        state = None if before is None else await self.world.store.load(before.stream)
        if before is None or state is None or rules.begins_bin is None or rules.late != "next_bin":
            return []
        # What its total stopped, and an end that was stored too late, hand nothing over (decision 0058).
        if state.late_from is None or not state.late_from.keys() >= state.partitions.keys():
            return []
        if not (state.stopped and state.has_ended and state.until_bin is not None):
            return []
        found = list[Place]()
        for partition, history in before.history.partitions.items():
            here = self.history.partitions.get(partition)
            if here is None or floor_at(here.start, here) > rules.begins_bin:
                continue
            last = [cut.position for cut in history.cuts if cut.bin >= state.until_bin - 1]
            first_us = max(bin for _, bin in history.floors) * before.schedule.bin_us
            for position, entry in enumerate(self.world.log.partitions[partition]):
                is_late = position >= min(last, default=history.start) and first_us <= entry.time_us
                counts = entry.kind is Kind.EVENT and rules.place(entry) is not None
                if is_late and counts and entry.time_us < rules.begins_bin * rules.bin_us:
                    found.append((partition, position))
        return found

    def counts_at(self, time_us: int, end_us: int | None) -> bool:
        """Return whether a time is between the stream's first instant and an end."""
        return (self.first_us or 0) <= time_us and (end_us is None or time_us < end_us)


def _facts(declared: Declaration) -> tuple[object, ...]:
    """Return what differs between the two settings of a schedule."""
    time, privacy = declared.time, declared.privacy
    arrival = time.grace_us, time.max_ahead_bins, declared.late
    return time.bin_us, time.epoch_bins, privacy.epsilon, privacy.unit, declared.keys, arrival


class EdgeWorld(World):
    """A world in which streams end at an edge and others go on there."""

    pipeline: StartedByGenerations

    def __init__(
        self, schedule: Schedule, other: Schedule, pipeline: StartedByGenerations, trace: Trace | None = None
    ) -> None:
        super().__init__(schedule, trace=trace, pipeline=pipeline)
        self.both = schedule, other
        pipeline.put_back = self._put_back
        pipeline.first_row = self._first_row
        if pipeline.edge_us is not None:
            pipeline.others[AFTER] = other
            names = [STREAM, AFTER]
        else:
            names = [generation(STREAM, number) for number in range(1, MOST)]
        settings = [replace(self.both[number % 2], name=name) for number, name in enumerate(names)]
        self.seen = {one.name: Observed(self, one) for one in settings}
        self.observers = dict(self.seen)
        self.observer = self.observers[STREAM]
        for before, following in pairwise(names):
            self.seen[following].before = self.seen[before]

    async def _after(self, port: str, method: str, args: tuple[Any, ...], reply: Any) -> None:
        await super()._after(port, method, args, reply)
        if port == "store" and method == "reserve" and reply is Reply.DONE and not self.observer.restored:
            entry: LedgerEntry = args[0]
            before = self.seen.get(entry.successor_of or "")
            if before is not None and await before.stored_end_us() is None:
                raise Broken(f"{entry.stream} is in the ledger, and {before.stream} has no stored end")

    async def _configure(self, number: int) -> None:
        """Give one worker the other settings. It reads them at its next start."""
        if self.pipeline.edge_us is None and await self.store.load(STREAM) is not None:
            self.configured[number] = self.both[self.configured[number] is self.both[0]]
            self._strike(self.lives[number], self.rng.choice([Deed.KILL, Deed.STOP]))

    def _first_row(self, stream: str) -> bytes | None:
        rows = self.witness.kept.get(stream)
        return rows[0].row if rows else None

    def _put_back(self, refused: Schedule) -> Schedule:
        """Give all workers the settings that were not refused, and return these."""
        self.configured = [self.both[refused is self.both[0]]] * len(self.lives)
        return self.configured[0]

    async def _would_forget(self, backup: MemoryStore) -> bool:
        """Return whether only a ledger outside would know a stream or its last epoch: workers refuse this."""
        entries = [] if self.pipeline.outside is None else await self.pipeline.outside.entries()
        last = dict.fromkeys([STREAM, *(entry.stream for entry in entries)], -1)
        for name in last:
            head, state = await self.witness.head(name), await backup.load(name)
            if head is None and state is None:
                return True
            in_witness = -1 if head is None else json.loads(head[1])["epoch"]
            last[name] = max(in_witness, -1 if state is None else state.epoch.epoch)
        return any(entry.epoch > last[entry.stream] for entry in entries)

    async def _settle(self) -> None:
        """Give all workers one configuration; wait without faults until the log is counted and visible."""
        for number, life in enumerate(self.lives):
            if self.configured[number] is not self.configured[0]:
                self.configured[number] = self.configured[0]
                life.end()
        last_bin = FIRST_BIN + self.schedule.bins + 2
        for _ in range(4 * PATIENCE_BINS):
            await asyncio.sleep(BIN_US / 4e6)
            begun = [one for one in self.seen.values() if await self.store.load(one.stream) is not None]
            bins = [await one.visible_bin() for one in begun]
            if last_bin <= min(bins, default=-1) < MANY * MANY:
                await self._check_ends(begun)
                return
        raise Broken(f"stuck: bin {last_bin} is not visible {PATIENCE_BINS} bins after the last fault")

    async def _check_ends(self, begun: Sequence[Observed]) -> None:
        """Check that each event counts in one stream, by its own time, and that none is left out."""
        self.check_once()
        lossy = any(one.restored or one.noise_was_lost for one in begun)
        for one in begun:
            end_us = await one.stored_end_us()
            for partition, position in one.measured:
                time_us = self.log.partitions[partition][position].time_us
                if not one.counts_at(time_us, end_us):
                    if one.takes_over(partition, position):
                        continue
                    raise Broken(
                        f"{one.stream} counts an event of {time_us}, from {one.first_us} to {end_us}"
                    )
            left_out = [] if lossy else [place for place in one.on_time(end_us) if place not in one.measured]
            late = [] if lossy else await one.late_before()
            left_out += [place for place in late if not self._is_measured(place)]
            if left_out:
                raise Broken(f"{one.stream} does not count the events at {left_out}")

    def _is_measured(self, place: Place) -> bool:
        return any(place in one.measured for one in self.seen.values())

    def check_once(self) -> None:
        """Check that no event was ever released by two streams."""
        counted: dict[Place, str] = {}
        for one in self.seen.values():
            one._check_measured_once()
            for place in one.measured:
                if counted.setdefault(place, one.stream) != one.stream:
                    raise Broken(f"record {place} was released by {counted[place]} and by {one.stream}")


def drawn(seed: int, changes: Sequence[dict[str, Any]] = CHANGES) -> tuple[Schedule, Schedule, int]:
    """Return two settings of a drawn schedule, and an instant at which a successor could begin."""
    schedule, rng = draw_schedule(seed), random.Random(f"generations {seed}")
    plain = replace(schedule, keys=1, buckets=1, window=0, sums=False, sides=False, over_epochs=False)
    plain = replace(plain, total=False, sibling=None, approximate=False, bins=rng.randint(10, 18))
    facts = rng.choice(changes)
    if facts == {"epsilon": 2, "keys": 3}:
        plain = replace(plain, keys=3)
    if "max_events" in facts:
        # What a restored store forgets may have used up a user's cap, or not (test_caps.py).
        kept = tuple(action for action in plain.actions if action.deed is not Deed.RESTORE)
        plain = replace(plain, max_events=1, actions=kept)
    if facts.get("bin_us") == 2 * BIN_US:
        plain = replace(plain, branching=(3,), horizon=3)  # every other epoch is cut short for them
    if facts.get("bin_us") == BIN_US // 2:
        facts = facts | {"branching": (*plain.branching, 2), "horizon": 2 * plain.horizon}
    times = [rng.randrange(plain.bins * BIN_US) for _ in range(rng.choice([1, 1, 2, 3]) * plain.workers)]
    deeds = [*plain.actions, *(Action(time, Deed.CONFIGURE) for time in times)]
    plain = replace(plain, actions=tuple(sorted(deeds, key=lambda action: action.after_us)))
    return plain, replace(plain, **facts), (FIRST_BIN + rng.randrange(2, plain.bins - 2, 2)) * BIN_US
