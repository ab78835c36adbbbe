"""How long after its closing instant a cut is taken, while a file grows as fast as it can be counted.

    python -m benchmarks.cuts [SECONDS]

This delay bounds how much two neighbouring logs can differ: a late record that arrives within it may be on
either side of the cut. Prints and stores milliseconds: median, 99th percentile and worst.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dphist import SystemNoise
from stream_app.loops.clocks import LiveClock
from stream_app.loops.stream import Ports, Stream
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping
from stream_app.sinks.witness_file import WitnessFile
from stream_app.sources.decode import TimeField
from stream_app.sources.file import FileSource
from stream_app.state.embedded import EmbeddedRedis
from stream_app.state.redis_store import RedisStore
from stream_app.vault.key_files import KeyFiles
from stream_app.wiring.pipeline import Pipeline
from tests.stream_app.declared import STREAM, strategy_of

RESULTS = Path(__file__).parent / "results" / "cuts.json"
BIN_US = 200_000
WRITER = """
import sys, time
pause = float(sys.argv[2])
with open(sys.argv[1], "ab", buffering=0) as file:
    while True:
        now = time.time()
        file.write((b'{"at": %d}\\n' % int(now * 1e6)) * 5000)
        time.sleep(pause)
"""


class _Timed(FileSource):
    """A file that notes the time from a requested instant until it is asked where it ends."""

    delays_ms: list[float]

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        self.delays_ms.append(time.time() * 1e3 - instants_us[-1] / 1e3)
        return await super().positions_at(partitions, instants_us)


async def measured(seconds: float, pause_s: float | None) -> dict[str, float]:
    """Return the delays of all cuts in some seconds.

    Args: pause_s, between two writes; None for a file that does not grow.
    """
    with TemporaryDirectory() as name, EmbeddedRedis(Path(name) / "redis") as server:
        directory = Path(name)
        path = directory / "events.ndjson"
        path.touch()
        first_us = int(time.time() * 1e6) // BIN_US * BIN_US
        strategy = strategy_of(bin_us=BIN_US, first_us=first_us, format="us")
        stores = [RedisStore(server.worker_url) for _ in range(3)]
        clock = LiveClock(stores[0])
        source = _Timed(path, "ndjson", TimeField("at", "us"), directory / "notes")
        source.delays_ms = []
        letters = DeadLetterFiles(directory / "letters", Keeping(60, 10**6, content=True))
        witness = WitnessFile(directory / "witness")
        keys = KeyFiles(directory / "keys")
        ports = Ports(
            store=stores[0],
            source=source,
            clock=clock,
            wall=clock,
            witnesses={STREAM: witness},
            dead_letters=letters,
            noise={STREAM: SystemNoise()},
            keys=keys,
            new_store=iter(stores[1:]).__next__,
        )
        pipeline = Pipeline.over(ports, [Stream(strategy=strategy)])
        await pipeline.agree()
        writer = None
        if pause_s is not None:
            writer = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, path, str(pause_s))
        running = asyncio.create_task(pipeline.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if writer is not None:
            writer.kill()
            await writer.wait()
        state = await stores[0].load(STREAM)
        assert state is not None
        await asyncio.gather(*(store.close() for store in stores), source.close())
        letters.close()
        witness.close()
        delays = np.array(source.delays_ms[3:])
        return {
            "cuts": len(delays),
            "records_per_s": round(sum(p.position for p in state.partitions.values()) / 24 / seconds),
            "median_ms": round(float(np.median(delays)), 2),
            "p99_ms": round(float(np.quantile(delays, 0.99)), 2),
            "worst_ms": round(float(delays.max()), 2),
        }


def main() -> None:
    """Measure a quiet file and a busy one."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    results = {"quiet": asyncio.run(measured(seconds, None)), "busy": asyncio.run(measured(seconds, 0.01))}
    print(json.dumps(results, indent=1))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
