"""How long a range count over HTTP takes in a year of hours and in 2^20 bins; JSON under results/.

    python -m benchmarks.long

The API serves three streams over a memory store and a real socket. Two have an epoch of 2^20 bins, of which
100,000 are released; one of them is causal and one anticipating. The third is anticipating and has an epoch
of a year, like the demo. One client asks for counts of random ranges one by one, over a plain socket, each
with its variance and exact interval. No range is asked for twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.api import Asker
from dphist.tree.design import Release
from stream_app.core.instants import format_instant
from stream_app.wiring.process import exempt_live_objects
from tests.stream_app.api.browsing import Backstage
from tests.stream_app.published import FIRST_BIN, Published

RESULTS = Path(__file__).parent / "results" / "long.json"
EPOCH_BINS, BINS, QUESTIONS, BIN_US = 2**20, 100_000, 1_000, 3_600_000_000
YEAR_BINS = 8_784


def release(behind: Backstage, name: str, kind: Release, epoch_bins: int, bins: int) -> None:
    """Release the bins of a stream of that name."""
    stream = Published(behind.store, name=name, source=name, epoch_bins=epoch_bins, release=kind)
    behind.run(stream.open(), timeout_s=600)
    counts = np.random.default_rng(11).poisson(40, bins).tolist()
    for start in range(0, bins, 5_000):
        behind.run(stream.close(counts[start : start + 5_000], show=False), timeout_s=600)
    behind.run(stream.show(), timeout_s=600)


def asked(port: int, stream: str, bins: int, questions: int) -> dict[str, float]:
    """Ask for counts of random ranges from a separate process; return milliseconds."""
    times_ms = asyncio.run(_asked(port, f"/v1/streams/{stream}/count", bins, questions))
    median, high = np.percentile(times_ms, [50, 99])
    return {"median_ms": round(float(median), 2), "p99_ms": round(float(high), 2)}


async def _asked(port: int, path: str, bins: int, questions: int) -> list[float]:
    asker, draw, times_ms = Asker(port), np.random.default_rng(12), []
    assert await asker.ask(path) == 200  # makes the service read the visible rows
    for _ in range(questions):
        edges = sorted(draw.choice(bins, 2, replace=False).tolist())
        start, end = (format_instant((FIRST_BIN + edge) * BIN_US) for edge in edges)
        began = time.perf_counter()
        assert await asker.ask(f"{path}?start={start}&end={end}") == 200
        times_ms.append(1e3 * (time.perf_counter() - began))
    return times_ms


def measured() -> dict[str, Any]:
    """Measure all streams."""
    behind = Backstage()
    streams: dict[str, tuple[Release, int, int]] = {
        "causal": ("causal", EPOCH_BINS, BINS),
        "anticipating": ("anticipating", EPOCH_BINS, BINS),
        "year": ("anticipating", YEAR_BINS, min(BINS, YEAR_BINS)),
    }
    try:
        for name, (kind, epoch_bins, bins) in streams.items():
            release(behind, name, kind, epoch_bins, bins)
        found: dict[str, Any] = {"epoch_bins": EPOCH_BINS, "released_bins": BINS, "questions": QUESTIONS}
        found |= {"processors": os.cpu_count(), "load_average": [round(one, 1) for one in os.getloadavg()]}
        behind.start()
        exempt_live_objects()  # as the service does, here also for the objects of the memory store
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as reader:
            for name, (_, _, bins) in streams.items():
                found[name] = reader.submit(asked, behind.port, name, bins, QUESTIONS).result()
                print(f"{name:14}", found[name], flush=True)
    finally:
        behind.close()
    return found


def main() -> None:
    """Measure, print, write."""
    RESULTS.write_text(json.dumps(measured(), indent=1) + "\n")


if __name__ == "__main__":
    main()
