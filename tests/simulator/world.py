"""One schedule: real loops over a simulated log, store, witness and clock, with the seed's faults."""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from stream_app.core.kinds import pages as noise_pages
from stream_app.core.records import PublicState
from stream_app.loops.clocks import LiveClock
from stream_app.loops.stream import Ports
from stream_app.ports import OperatorError
from tests.models.memory import MemoryStore
from tests.simulator.checks import Broken, History
from tests.simulator.faults import FaultyPort, Life, SimulatedOutage, Stalls, Weather
from tests.simulator.finding import FindingObserver
from tests.simulator.given_noise import RememberedNoise
from tests.simulator.log import Log, LogSource, draw_log
from tests.simulator.loop import SimulatedLoop, simulate
from tests.simulator.memory_sinks import MemoryDeadLetters, MemoryKeys, MemoryLedger, MemoryWitness
from tests.simulator.observer import Observer
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import (
    BIN_US,
    FIRST_BIN,
    START_US,
    Action,
    Deed,
    Schedule,
    draw_schedule,
)
from tests.simulator.totals import check_total, ends_for_its_total

Trace = Callable[[str], None]
# A calm pipeline needs a bin or two to catch up; after this many it is stuck.
PATIENCE_BINS = 40


class World:
    """Everything in one run that outlives the workers.

    Args: the schedule; its log, or a neighbouring log; where readable lines go; how workers are built.
    """

    def __init__(
        self,
        schedule: Schedule,
        log: Log | None = None,
        trace: Trace | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.schedule = schedule
        self.rng = random.Random(f"world {schedule.seed}")
        self.log = log or draw_log(schedule.log_plan, random.Random(f"log {schedule.seed}"))
        self.pipeline = pipeline or Pipeline()
        self.pipeline.outside = MemoryLedger() if schedule.ledger_outside else None
        self.store = self.pipeline.store(self.now_us)
        self.witness = MemoryWitness()
        self.dead_letters = MemoryDeadLetters()
        self.keys = MemoryKeys()
        self.observers = {
            stream.name: (FindingObserver if stream.finding else Observer)(self, stream)
            for stream in schedule.streams
        }
        self.observer = self.observers[schedule.name]
        self.weather = Weather(
            random.Random(f"weather {schedule.seed}"),
            schedule.fault_rate,
            schedule.longest_delay_us / 1e6,
            schedule.faults,
            schedule.struck,
        )
        self.stalls = Stalls(
            random.Random(f"stalls {schedule.seed}"),
            schedule.stall_rate,
            schedule.longest_stall_us / 1e6,
            schedule.struck,
        )
        self.zombies: set[asyncio.Task[None]] = set()
        self.lives: list[Life] = [Life(f"worker {number}", alive=False) for number in range(schedule.workers)]
        self.sources: list[LogSource] = []
        self.configured = [schedule] * schedule.workers
        self._trace = trace
        self._clock_ahead_us = 0
        self._down_until_us = 0
        self._backup: tuple[MemoryStore, dict[str, History]] | None = None
        self._starts = 0
        self._nonces = random.Random(f"nonces {schedule.seed}")

    def now_us(self) -> int:
        """Return the clock's time: the loop's time plus the jumps so far."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        return START_US + loop.now_us + self._clock_ahead_us

    def trace(self, line: str) -> None:
        """Write a readable line with the current time in bins."""
        if self._trace is not None:
            self._trace(f"{(self.now_us() - START_US) / BIN_US:8.3f}  {line}")

    async def reader_state(self) -> PublicState | None:
        """Return what readers know of the schedule's own stream."""
        return await self.store.reader().public_state(self.schedule.name)

    async def run(self) -> str:
        """Run the schedule to its end and return what happened, in one line."""
        workers = [asyncio.create_task(self._supervise(number)) for number in range(self.schedule.workers)]
        story = asyncio.create_task(self._story())
        try:
            # A worker never returns. So the first task that ends is the story, or a worker that broke a rule.
            await asyncio.wait([story, *workers], return_when=asyncio.FIRST_COMPLETED)
            for task in (story, *workers):
                if task.done():
                    task.result()
        finally:
            self._kill_all()
            for task in (story, *workers):
                task.cancel()
            await asyncio.gather(story, *workers, return_exceptions=True)
        for observer in self.observers.values():
            await observer.check_end()
        return self.observer.summary()

    async def _story(self) -> None:
        """Carry out the deeds until the log ends, then wait without faults until everything is visible."""
        for action in self.schedule.actions:
            await asyncio.sleep(max(0.0, action.after_us / 1e6 - asyncio.get_running_loop().time()))
            self.trace(f"{action.deed}")
            await self._do(action)
        await asyncio.sleep(max(0.0, self.schedule.bins * BIN_US / 1e6 - asyncio.get_running_loop().time()))
        self.weather.rate = self.stalls.rate = 0.0
        await self._settle()

    async def _supervise(self, number: int) -> None:
        """Keep one worker running, as a process supervisor does."""
        while True:
            wait_us = max(0, self._down_until_us - self.now_us())
            await asyncio.sleep(wait_us / 1e6 + self.rng.random() * BIN_US / 4e6)
            if self._down_until_us > self.now_us():
                continue
            life = Life(f"worker {number}.{self._starts}")
            self._starts += 1
            self.trace(f"{life.name}: starts")
            life.task = asyncio.create_task(
                self.pipeline.run(self.configured[number], self._ports(number, life))
            )
            self.lives[number] = life
            await asyncio.wait([life.task])
            failure = None if life.task.cancelled() else life.task.exception()
            if self._refuses_lost_noise(failure):
                self._hand_over()  # like a consumer group does when a worker ends
            elif self.schedule.allowed is not None and ends_for_its_total(failure):
                self.trace(f"{life.name}: {failure}")
                return  # an operator must act: the schedule ends here
            elif failure is not None and not isinstance(failure, SimulatedOutage):
                raise failure
            life.alive = False
            self.trace(f"{life.name}: ended")

    def _refuses_lost_noise(self, failure: BaseException | None) -> bool:
        """Return whether a worker ended because it cannot read noise that is lost.

        Until another worker has ended the epoch, it takes lost noise for noise whose keys it lacks.
        """
        refused = isinstance(failure, OperatorError) and "cannot read its stored noise" in str(failure)
        return refused and self.observer.noise_was_lost

    def _ports(self, number: int, life: Life) -> Ports:
        """Return a new worker's ports, with faults in each call."""
        source = self._make_source(random.Random(f"batches {self.schedule.seed} {life.name}"))
        source.assigned = self._share_of(number)
        self.sources.append(source)

        def faulty(name: str, inner: Any) -> Any:
            return FaultyPort(
                name,
                inner,
                life,
                self.weather,
                self.stalls,
                after=self._after,
                trace=self.trace,
                zombies=self.zombies,
            )

        store, faulty_source = faulty("store", self.store), faulty("source", source)
        clock = self.pipeline.make_clock(store, source)
        return Ports(
            store=store,
            source=faulty_source,
            clock=clock,
            wall=LiveClock(store) if clock.virtual else clock,
            make_nonce=lambda: f"{self._nonces.randrange(2**64):016x}",
            witnesses=dict.fromkeys(self.observers, faulty("witness", self.witness)),
            dead_letters=faulty("dead letters", self.dead_letters),
            noise={
                name: RememberedNoise(self.rng.randrange(2**32), observer.draws)
                for name, observer in self.observers.items()
            },
            keys=faulty("keys", self.keys),
        )

    async def _after(self, port: str, method: str, args: tuple[Any, ...], reply: Any) -> None:
        """Pass an effect to the observer of its stream."""
        observer = self.observers.get(args[0]) if args and isinstance(args[0], str) else None
        if observer is not None:
            await observer.after(port, method, args, reply)
        if self.schedule.allowed is not None and port == "store":
            await check_total(self, method, args, reply)

    def _make_source(self, rng: random.Random) -> LogSource:
        """Return a new worker's consumer of the log."""
        return LogSource(
            self.log,
            self.now_us,
            rng,
            largest_batch=self.schedule.largest_batch,
            exact_cuts=self.schedule.exact_cuts,
        )

    def _share_of(self, number: int) -> set[str]:
        """Return the partitions that one worker owns."""
        return {
            name for place, name in enumerate(self.log.partitions) if place % self.schedule.workers == number
        }

    async def _do(self, action: Action) -> None:
        deed = action.deed
        if deed in (Deed.KILL, Deed.STOP, Deed.STALL):
            self._strike(self.rng.choice(self.lives), deed)
        elif deed is Deed.OUTAGE:
            self._down_until_us = self.now_us() + self.rng.randrange(4 * BIN_US)
            self._kill_all()
        elif deed is Deed.HANDOVER:
            self._hand_over()
        elif deed is Deed.BACKUP:
            histories = {name: observer.history for name, observer in self.observers.items()}
            self._backup = (self.store.copy(), copy.deepcopy(histories))
        elif deed is Deed.RESTORE:
            await self._restore()
        elif deed is Deed.LEAP:
            self._clock_ahead_us += self.rng.randrange(2 * BIN_US)
        elif deed is Deed.LOSE_NOISE:
            self._lose_noise()
        elif deed is Deed.CONFIGURE:
            await self._configure(self.rng.randrange(self.schedule.workers))
        elif deed is Deed.CUT_OFF:
            self.weather.cut_off()

    async def _configure(self, number: int) -> None:
        """Give one worker the stream's other settings, where a schedule has them."""
        raise NotImplementedError

    def _hand_over(self) -> None:
        """Give every worker every partition. So an old owner still acts after a hand-over."""
        for source in self.sources:
            source.assigned = set(self.log.partitions)

    def _strike(self, life: Life, deed: Deed) -> None:
        """Carry out a deed that hits one worker."""
        if deed is Deed.KILL:
            life.kill()
        elif deed is Deed.STALL:
            life.stand_still(self.rng.random() * self.stalls.longest_s)
        else:
            life.end()

    async def _restore(self) -> None:
        """Set the store back to the backup. No worker is connected, and no old call arrives later."""
        if self._backup is None or await self._would_forget(self._backup[0]):
            return
        self._kill_all()
        await self._set_back(*self._backup)

    async def _set_back(self, store: MemoryStore, histories: dict[str, History]) -> None:
        for zombie in list(self.zombies):
            zombie.cancel()
        for name, observer in self.observers.items():
            await observer.before_restore()
            observer.history = copy.deepcopy(histories[name])
        self.store.restore(store)

    async def _would_forget(self, backup: MemoryStore) -> bool:
        """Return whether only a ledger would know a stream, so that its workers would refuse to run."""
        return self.schedule.ledger_outside and any(
            [
                await backup.load(name) is None and await self.witness.head(name) is None
                for name in self.observers
            ]
        )

    def _lose_noise(self) -> None:
        """Lose all stored noise: its keys, its pages, or one bit of each page."""
        for observer in self.observers.values():
            observer.noise_was_lost = True
        kept = self.store.noise.values()
        for life in self.lives:
            life.kill()  # a worker keeps the page that it has read
        match self.rng.choice(["keys", "pages", "bits"]):
            case "keys":
                self.keys.kept.clear()
            case "pages":
                for pages in kept:
                    pages.clear()
            case "bits":
                for pages in kept:
                    pages.update({key: bytes([data[0] ^ 1]) + data[1:] for key, data in pages.items()})

    def _kill_all(self) -> None:
        for life in self.lives:
            life.kill()

    async def _settle(self) -> None:
        """Wait without faults until the whole log is counted and visible."""
        last_bin = FIRST_BIN + self.schedule.bins + 2
        for _ in range(4 * PATIENCE_BINS):
            await asyncio.sleep(BIN_US / 4e6)
            if min([await observer.visible_bin() for observer in self.observers.values()]) >= last_bin:
                return
        raise Broken(f"stuck: bin {last_bin} is not visible {PATIENCE_BINS} bins after the last fault")


def run_schedule(
    seed: int, trace: Trace | None = None, pipeline: Pipeline | None = None, schedule: Schedule | None = None
) -> str:
    """Run one seed and return what happened in one line. Raises: AssertionError for a broken rule."""
    world = World(schedule or draw_schedule(seed), trace=trace, pipeline=pipeline)
    return run_world(world)


def assert_caught(
    mutant: type[Pipeline], shape: Callable[[Schedule], Schedule], words: str, seeds: Sequence[int]
) -> None:
    """Check that one of the drawn schedules breaks a rule under a mutant. Args: words, of the broken rule."""
    heard = Counter[str]()
    for seed in seeds:
        try:
            run_schedule(seed, pipeline=mutant(), schedule=shape(draw_schedule(seed)))
        except (AssertionError, ValueError) as broken:
            if words in str(broken):
                return
            heard[str(broken)] += 1
    raise AssertionError(
        f"{mutant.__name__} lived through {len(seeds)} schedules; heard {heard.most_common(3)}"
    )


def run_world(world: World) -> str:
    """Run a world and return what happened in one line. Raises: AssertionError for a broken rule."""
    with (
        patch.object(noise_pages, "BINS_PER_PAGE", 2),
        world.pipeline.patched(),
    ):
        return simulate(world.schedule.seed, world.run())


def cells_of(world: World) -> Counter[tuple[int, int]]:
    """Return the exact counts of all sealed (bin, cell) of a finished world, except zeros."""
    sealed = world.observer.history.sealed.items()
    return Counter({(bin, cell): n for bin, counts in sealed for cell, n in enumerate(counts) if n})


__all__ = ["World", "cells_of", "run_schedule", "run_world"]
