"""Workers that share a stream and have a witness each, as they have without an output topic.

Copies of the store are put back while all workers run, or while they start again. One witness is mostly
behind the others. No worker may release a bin again of which readers have seen a row.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stream_app.core.records import WitnessRow
from stream_app.loops.stream import Ports
from tests.models.memory import MemoryStore
from tests.simulator.checks import Broken
from tests.simulator.conditions import EVERYTHING
from tests.simulator.faults import Fault, FaultyPort, Life, SimulatedOutage
from tests.simulator.memory_sinks import MemoryWitness
from tests.simulator.observer import Observer
from tests.simulator.pipeline import Pipeline
from tests.simulator.schedule import BIN_US, Action, Deed, Schedule, draw_schedule
from tests.simulator.world import Trace, World, run_world

DEEDS = [Deed.KILL, Deed.STOP, Deed.RESTORE, Deed.RESTORE, Deed.BACKUP]
# A worker that does not answer for as long as another one waits counts as lost. So no fault takes that long.
SHORT = (Fault.LOST_CALL, Fault.LOST_REPLY, Fault.DELAYED, Fault.REPEATED, Fault.CRASH_AFTER)


def apart(seed: int) -> Schedule:
    """Return a schedule of two or three workers with a witness each."""
    rng = random.Random(f"apart {seed}")
    drawn = draw_schedule(seed)
    plain = replace(drawn, sums=False, where=EVERYTHING, sibling=None, stall_rate=0.0, ledger_outside=False)
    last_us = drawn.bins * BIN_US
    deeds = [Action(rng.randrange(BIN_US, 5 * BIN_US), Deed.BACKUP)]
    deeds += [Action(rng.randrange(BIN_US, last_us), rng.choice(DEEDS)) for _ in range(rng.choice([2, 5]))]
    return replace(
        plain,
        workers=rng.choice([2, 2, 3]),
        witness_is_public=False,
        fault_rate=rng.choice([0.0, 0.0, 0.02, 0.1]),
        faults=SHORT,
        longest_delay_us=min(drawn.longest_delay_us, BIN_US // 10),
        actions=tuple(sorted(deeds, key=lambda action: action.after_us)),
    )


class AllWitnesses(MemoryWitness):
    """The rows of several witnesses, as one. Args: parts, the witnesses."""

    def __init__(self, parts: Sequence[MemoryWitness]) -> None:
        self.parts = parts

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        """Return the last row of all."""
        heads = [await part.head(stream) for part in self.parts]
        return max((head for head in heads if head is not None), default=None)

    async def rows(self, stream: str, after_seq: int) -> list[WitnessRow]:
        """Return the rows of all, in order; if several have a row, it comes several times."""
        parts = [await part.rows(stream, after_seq) for part in self.parts]
        return sorted(row for rows in parts for row in rows)


class ApartObserver(Observer):
    """Checks that all witnesses have the same value of each row."""

    async def after(self, port: str, method: str, args: tuple[Any, ...], reply: Any) -> None:
        """Check one effect."""
        if (port, method) == ("witness", "append"):
            await self._see_written(args[1])
        else:
            await super().after(port, method, args, reply)

    async def _see_written(self, rows: Sequence[WitnessRow]) -> None:
        self.watch.see_rows((row[:2] for row in rows), "witness")
        opened = {epoch.epoch for epoch in self.history.epochs}  # rows of others were put back after a loss
        self._check_values([row for row in rows if json.loads(row.row)["epoch"] in opened])
        state = await self.world.store.load(self.stream)
        if state is None or rows[-1].seq > state.seq:
            raise Broken(f"a witness gets row {rows[-1].seq}, which the store has not released")


class Connection(FaultyPort):
    """A loop's connection to the store. When the store is set back, calls under way and the next one fail."""

    def __init__(self, port: str, inner: Any, *parts: Any, **options: Any) -> None:
        super().__init__(port, inner, *parts, **options)
        self._server: int = inner.servers_met

    @property
    def servers_met(self) -> int:
        """The servers that this connection has noticed."""
        return self._server

    async def _call(self, method: str, target: Any, args: tuple[Any, ...]) -> Any:
        began = self._server

        async def on_this_server(*given: Any) -> Any:
            if began != self._inner.servers_met:
                self._server = self._inner.servers_met
                raise SimulatedOutage(f"store.{method}: another server process answers")
            return await target(*given)

        return await super()._call(method, on_this_server, args)


class ApartWorld(World):
    """A world whose workers have a witness each. Args: as of ``World``."""

    def __init__(
        self, schedule: Schedule, trace: Trace | None = None, pipeline: Pipeline | None = None
    ) -> None:
        super().__init__(schedule, trace=trace, pipeline=pipeline)
        self._own = [MemoryWitness() for _ in range(schedule.workers)]
        self.witness = AllWitnesses(self._own)
        self.observers = {schedule.name: ApartObserver(self, schedule)}
        self.observer = self.observers[schedule.name]

    def _ports(self, number: int, life: Life) -> Ports:
        everyones, self.witness = self.witness, self._own[number]
        ports = super()._ports(number, life)
        self.witness = everyones

        def connect() -> Any:
            options = {"after": self._after, "trace": self.trace, "zombies": self.zombies}
            return Connection("store", self.store, life, self.weather, self.stalls, **options)

        return replace(ports, store=connect(), new_store=connect)

    async def _restore(self) -> None:
        """Set the store back; half of the time all workers live on."""
        alive = self.rng.random() < 0.5
        if alive and self._backup is not None and not await self._would_forget(self._backup[0]):
            await self._set_back(*self._backup)
        else:
            await super()._restore()

    async def _would_forget(self, backup: MemoryStore) -> bool:
        """Return whether a copy is older than the stream, which a worker without rows begins at once."""
        return await backup.load(self.schedule.name) is None


def run_apart(seed: int, trace: Trace | None = None, pipeline: Pipeline | None = None) -> str:
    """Run one seed and return what happened in one line. Raises: AssertionError for a broken rule."""
    return run_world(ApartWorld(apart(seed), trace, pipeline))
