"""A worker that runs over a roll-over in a separate process and, at a chosen call, kills itself or Redis."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from dphist.arrays import Int64Array
from dphist.noise import Scale, SystemNoise
from stream_app.core.kinds import pages as noise_pages
from stream_app.core.records import Cut
from stream_app.core.strategy import Strategy
from stream_app.loops.closer import Closer
from stream_app.loops.stream import Ports, Stream
from stream_app.sinks.witness_file import WitnessFile
from stream_app.state.redis_store import RedisStore
from stream_app.vault.key_files import KeyFiles
from tests.simulator.memory_sinks import MemoryDeadLetters
from tests.stream_app.declared import BIN_US, FIRST_BIN, design_of, strategy_of

# Noise so wide that two drawings never agree by chance; four bins in an epoch, two in a page.
DESIGN = replace(design_of((2, 2), Fraction(1, 10**6)), release="anticipating")
BINS = 5

Victim = Literal["worker", "redis"]


@dataclass(frozen=True)
class Death:
    """Which process dies after which call.

    Calls count from the end of the quiet bins; 0 means before any call.
    """

    victim: Victim
    call: int
    redis_pid: int = 0
    quiet_bins: int = 4


def strategy(stream: str) -> Strategy:
    """Return the stream's strategy, with a separate source and a range in the past: real time is unused."""
    return strategy_of(DESIGN, stream=stream, bins=BINS, source=f"file:{stream}")


class RecordedNoise:
    """The system's noise. Every draw is written to a file before it is used, so a kill hides no draw."""

    private = True

    def __init__(self, file: Path) -> None:
        self.file = file

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        drawn = SystemNoise().discrete_laplace(scale, shape)
        with self.file.open("a") as file:
            file.write(json.dumps(drawn.tolist()) + "\n")
        return drawn

    def select(self, scores: Any, scale: Scale) -> int:
        raise AssertionError("nothing here selects")


class HandClock:
    """A clock that moves only when a test sets it or a loop sleeps."""

    virtual = True
    time_us = 0

    async def now_us(self) -> int:
        return self.time_us

    async def sleep_until_us(self, instant_us: int) -> None:
        self.time_us = max(self.time_us, instant_us)


class OnePartition:
    """A source with one partition and no events."""

    async def partitions(self) -> list[str]:
        return ["0"]


class Deadly:
    """Wraps a store or keys. After a chosen call, counted over both, a process is killed."""

    def __init__(self, inner: Any, death: Death | None, calls: list[int]) -> None:
        self._inner, self._death, self._calls = inner, death, calls

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            if self._death is not None and self._death.call == self._calls[0] == 0:
                _kill(self._death)
            reply = await getattr(self._inner, name)(*arguments)
            self._calls[0] += 1
            if self._death is not None and self._calls[0] == self._death.call:
                _kill(self._death)
            return reply

        return call


def _kill(death: Death) -> None:
    if death.victim == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    # The whole process group, because a child that rewrites the log would keep the server's lock for five
    # seconds.
    os.killpg(death.redis_pid, signal.SIGKILL)


def run(url: str, directory: str, stream: str, death: Death | None) -> None:
    """Release the range until a process dies.

    The exit status is 0 if all is released, 3 if Redis was gone, 4 if there was no such call.
    """
    noise_pages.BINS_PER_PAGE = 2
    try:
        calls = asyncio.run(_release_all(url, Path(directory), stream, death))
    except OSError:
        os._exit(3)
    if death is not None and calls < death.call:
        os._exit(4)  # there is no such call, so every call has been tried


async def _release_all(url: str, directory: Path, stream: str, death: Death | None) -> int:
    declared, clock, calls = strategy(stream), HandClock(), [0]
    loud = FIRST_BIN + (death.quiet_bins if death is not None else 0)
    store, keys = RedisStore(url), KeyFiles(directory / "keys")
    # Calls are counted from the end of the quiet bins on.
    own_store, own_keys = (Deadly(inner, death, calls) for inner in (store, keys))
    witness = WitnessFile(directory / "witness")
    closer: Closer | None = None
    clock.time_us = FIRST_BIN * BIN_US
    for bin in range(FIRST_BIN, FIRST_BIN + BINS):
        quiet = bin < loud
        if closer is None or bin == loud:
            ports = Ports(
                store=store if quiet else own_store,
                source=OnePartition(),  # type: ignore[arg-type]
                clock=clock,
                wall=clock,
                witnesses={stream: witness},
                dead_letters=MemoryDeadLetters(),
                noise={stream: RecordedNoise(directory / "draws")},
                keys=keys if quiet else own_keys,
            )
            closer = Closer(ports, Stream(strategy=declared))
            await closer.reconcile()
        if bin == FIRST_BIN:
            cuts = [Cut(FIRST_BIN + BINS - 1, 0)]
            await store.take_cuts(stream, declared.hash, "0", FIRST_BIN - 1, cuts)
        clock.time_us = (bin + 1) * BIN_US
        await closer.close_due()
        await closer.publisher.publish()
    await store.close()
    witness.close()
    return calls[0]
