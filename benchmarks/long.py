"""How long an answer over HTTP takes in an epoch of 2^20 bins; JSON under results/.

    python -m benchmarks.long

The API serves two streams over a memory store and a real socket, one causal and one anticipating. Each has an
epoch of 2^20 bins, of which 100,000 are released. One client asks for counts of random ranges one by one,
each with its variance and exact interval.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from dphist.tree.design import Release
from stream_app.core.instants import format_instant
from tests.stream_app.api.browsing import Backstage
from tests.stream_app.published import FIRST_BIN, Published

RESULTS = Path(__file__).parent / "results" / "long.json"
EPOCH_BINS, BINS, QUESTIONS, BIN_US = 2**20, 100_000, 1_000, 3_600_000_000


def release(behind: Backstage, kind: Release) -> None:
    """Release the bins of a stream of that name."""
    stream = Published(behind.store, name=kind, source=kind, epoch_bins=EPOCH_BINS, release=kind)
    behind.run(stream.open(), timeout_s=600)
    counts = np.random.default_rng(11).poisson(40, BINS).tolist()
    for start in range(0, BINS, 5_000):
        behind.run(stream.close(counts[start : start + 5_000], show=False), timeout_s=600)
    behind.run(stream.show(), timeout_s=600)


def asked(address: str, kind: Release, bins: int, questions: int) -> dict[str, float]:
    """Ask for counts of random ranges from a separate process; return milliseconds."""
    with httpx.Client(base_url=address, timeout=60) as client:
        client.get(f"/v1/streams/{kind}/count").raise_for_status()  # makes the service read the visible rows
        return _asked(client, kind, bins, questions)


def _asked(client: httpx.Client, kind: Release, bins: int, questions: int) -> dict[str, float]:
    draw, times_ms = np.random.default_rng(12), []
    for _ in range(questions):
        first, last = sorted(draw.choice(bins, 2, replace=False).tolist())
        query = {
            "start": format_instant((FIRST_BIN + first) * BIN_US),
            "end": format_instant((FIRST_BIN + last) * BIN_US),
        }
        began = time.perf_counter()
        client.get(f"/v1/streams/{kind}/count", params=query).raise_for_status()
        times_ms.append(1e3 * (time.perf_counter() - began))
    median, high = np.percentile(times_ms, [50, 99])
    return {"median_ms": round(float(median), 2), "p99_ms": round(float(high), 2)}


def measured() -> dict[str, Any]:
    """Measure both kinds."""
    behind = Backstage()
    kinds: tuple[Release, ...] = ("causal", "anticipating")
    try:
        for kind in kinds:
            release(behind, kind)
        found: dict[str, Any] = {"epoch_bins": EPOCH_BINS, "released_bins": BINS, "questions": QUESTIONS}
        found |= {"processors": os.cpu_count(), "load_average": [round(one, 1) for one in os.getloadavg()]}
        address = behind.start()
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as reader:
            for kind in kinds:
                found[kind] = reader.submit(asked, address, kind, BINS, QUESTIONS).result()
                print(f"{kind:14}", found[kind], flush=True)
    finally:
        behind.close()
    return found


def main() -> None:
    """Measure, print, write."""
    RESULTS.write_text(json.dumps(measured(), indent=1) + "\n")


if __name__ == "__main__":
    main()
