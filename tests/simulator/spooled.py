"""Schedules over a spool: requests are repeated, listeners die at any system call, and the power fails."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_app.core.incoming import RecordBatch
from stream_app.receiving import spool_writer
from stream_app.sources import lines
from stream_app.sources.decode import TimeField
from stream_app.sources.spool_log import SpoolSource
from tests.simulator.checks import Broken
from tests.simulator.log import FIELDS, draw_log
from tests.simulator.pipeline import Pipeline
from tests.simulator.receivers import Receiver, Trouble, deliver
from tests.simulator.schedule import BIN_US, START_US, Schedule, draw_schedule
from tests.simulator.spool import SpoolLog, draw_requests
from tests.simulator.world import Trace, World, run_world
from tests.stream_app.receiving.failing_disk import FailingDisk

SENT_WITHIN_S = 60.0  # after the last fault


def over_a_spool(schedule: Schedule) -> Schedule:
    """Return the schedule with one worker and one partition, as a spool has."""
    return replace(schedule, partitions=1, workers=1)


class SpoolReader(SpoolSource):
    """A worker's source. A spool has one partition, and one worker owns it."""

    assigned: Any = None

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        """Return the next batch. The time-out ends within a microsecond, the step of virtual time."""
        return await super().read(positions, timeout_s - 5e-7)


class SpooledWorld(World):
    """A world whose log is a spool in a directory."""

    def __init__(
        self,
        schedule: Schedule,
        directory: Path,
        disk: FailingDisk,
        trace: Trace | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        seed = schedule.seed
        drawn = draw_log(schedule.log_plan, random.Random(f"log {seed}")).partitions["0"]
        self._requests = draw_requests(drawn, random.Random(f"requests {seed}"))
        self._directory, self._disk = directory, disk
        self.held = SpoolLog(directory, self._requests, disk)
        super().__init__(schedule, self.held.log, trace, pipeline)
        self._trouble = Trouble(seed, disk)
        self._fates = random.Random(f"fates {seed}")
        self._receivers = [
            Receiver(directory, self.held, self._trouble, self.now_us)
            for _ in range(self._fates.choice([1, 1, 2]))
        ]
        self._senders: list[asyncio.Task[None]] = []

    def _make_source(self, rng: random.Random) -> Any:
        return SpoolReader(self._directory, TimeField("time", "us"), self._directory.parent / "notes", FIELDS)

    async def _after(self, port: str, method: str, args: tuple[Any, ...], reply: Any) -> None:
        await super()._after(port, method, args, reply)
        if port == "store" and method in ("apply", "apply_together"):
            for observer in self.observers.values():
                for partition in observer.history.partitions.values():
                    self.held.use(partition.position)

    async def _story(self) -> None:
        """Do what every world does, beside listeners, senders, and what befalls the listeners."""
        self._senders = [asyncio.create_task(self._send(number)) for number in range(len(self._requests))]
        beside = [asyncio.create_task(receiver.run()) for receiver in self._receivers]
        beside.append(asyncio.create_task(self._strike_receivers()))
        try:
            await super()._story()
        finally:
            for task in (*beside, *self._senders):
                task.cancel()
            await asyncio.gather(*beside, *self._senders, return_exceptions=True)
            for source in self.sources:
                await source.close()

    async def _settle(self) -> None:
        """Wait until everything is sent, counted and visible."""
        self._trouble.over = True
        try:
            await asyncio.wait_for(asyncio.gather(*self._senders), SENT_WITHIN_S)
        except TimeoutError:
            raise Broken(f"requests are not confirmed {SENT_WITHIN_S:.0f} s after the last fault") from None
        self.held.look(self.now_us())
        self.held.check()
        await super()._settle()

    async def _send(self, number: int) -> None:
        request = self._requests[number]
        await asyncio.sleep((request.at_us - START_US) / 1e6)
        await deliver(request, self._receivers, self.held, self._trouble)

    async def _strike_receivers(self) -> None:
        """Kill listeners now and then, and let the power fail."""
        for _ in range(self._fates.choice([0, 1, 3, 6])):
            await asyncio.sleep(self._fates.random() * self.schedule.bins * BIN_US / 3e6)
            if self._trouble.over:
                return
            if self._fates.random() < 0.5 or self._disk.is_in_doubt:
                self._fates.choice(self._receivers).die()
            else:
                self._fail_power()

    def _fail_power(self) -> None:
        """End all processes of the machine; keep of the files what was synced, and any part of the rest."""
        self.trace("the power fails")
        for receiver in self._receivers:
            receiver.die()
        self._kill_all()
        self._disk.fail_power(self._fates)
        self.held.look(self.now_us())
        self.held.check()


@contextmanager
def _small_spool(directory: Path, disk: FailingDisk, seed: int) -> Iterator[None]:
    """Return a context manager: short parts and batches, no threads, and a disk that can fail."""
    sizes = random.Random(f"sizes {seed}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", _at_once)
        patch.setattr(spool_writer, "PART_BYTES", sizes.choice([400, 3_000, 1 << 20]))
        patch.setattr(lines, "BATCH_BYTES", sizes.choice([300, 2_000, 1 << 20]))
        disk.install(patch)
        yield


async def _at_once(call: Callable[..., Any], *arguments: Any) -> Any:
    await asyncio.sleep(0)
    return call(*arguments)


def run_spooled(
    seed: int, trace: Trace | None = None, pipeline: Pipeline | None = None, schedule: Schedule | None = None
) -> str:
    """Run one seed over a spool; return what happened in one line. Raises: AssertionError."""
    schedule = over_a_spool(schedule or draw_schedule(seed))
    with tempfile.TemporaryDirectory(prefix="spool-") as name:
        directory = Path(name) / "spool"
        disk = FailingDisk(directory)
        with _small_spool(directory, disk, seed):
            world = SpooledWorld(schedule, directory, disk, trace, pipeline)
            return run_world(world)


__all__: Sequence[str] = ["SpooledWorld", "over_a_spool", "run_spooled"]
