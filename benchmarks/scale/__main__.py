"""Measure what workers, streams, keys and events cost: processor time, memory, and delays of releases.

    python -m benchmarks.scale [--seconds 5]      (make bench-scale)

Writes results/scale.json and prints the tables of docs/how-to/sizing.md. One broker serves all loads; each
load has its own Redis and workers. Costs are processor time: two cores run everything at
once.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, machine
from benchmarks.scale.cell import measured
from benchmarks.scale.points import LIVE, WAITING, Point
from deploy.kafka import broker

RESULTS = Path(__file__).parents[1] / "results" / "scale.json"


def main() -> None:
    """Measure all loads, store what was found, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="how long each live load is measured")
    parser.add_argument("--first", type=int, default=None, help="measure this many loads of each kind only")
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args()
    result: dict[str, Any] = {
        "command": "python -m benchmarks.scale",
        "commit": commit(),
        "machine": machine(),
    }
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        cluster = broker.start(Path(folder) / "kafka")
        try:
            for name, points in (("waiting", WAITING), ("live", LIVE)):
                result[name] = rows = []
                for number, point in enumerate(points[: asked.first]):
                    own = Path(folder) / f"{name}-{number}"
                    own.mkdir()
                    found = measured(point, own, cluster.bootstrap_servers, asked.seconds)
                    row = {key: round(of, 3) if isinstance(of, float) else of for key, of in found.items()}
                    rows.append(row | {"load": os.getloadavg()[0]})
                    print(line(point, row), flush=True)
        finally:
            cluster.stop()
    asked.output.write_text(json.dumps(result, indent=1) + "\n")


def line(point: Point, found: dict[str, Any]) -> str:
    """Return a load's line of the table: the speed of reading or the delay, then the costs."""
    load = f"{_many(point.workers, 'worker')}, {_many(point.streams, 'stream')}, {_many(point.keys, 'key')}"
    memory = f"{found['worker_mb']:.0f} MB | {found['redis_mb']:.1f} MB"
    if point.live:
        load += f", {point.events:,} events/s, {point.bin_s} s bins, {point.partitions} partitions"
        busy = [found[name] / found["seconds"] for name in ("cpu_s", "redis_cpu_s")]
        return f"| {load} | {found['delay_s']:.2f} s | {busy[0]:.0%} | {busy[1]:.0%} | {memory} |"
    load += f", {point.events:,} events, {point.partitions} partitions"
    millions = found["read"] / 1e6
    costs = f"{found['cpu_s'] / millions:.2f} s | {found['redis_cpu_s'] / millions:.2f} s"
    return f"| {load} | {found['read'] / found['seconds']:,.0f} | {costs} | {memory} |"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


if __name__ == "__main__":
    main()
