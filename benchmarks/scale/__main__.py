"""Measure what workers, streams, keys and events cost, fit a model, and check it against other points.

    python -m benchmarks.scale [--seconds 8] [--first N] [--again]      (make bench-scale)
    python -m benchmarks.scale --fit          fit the measurements that are in the results again

Writes results/scale.json and the figures of docs/how-to/sizing.md.

One broker serves all points; each point has a Redis and workers of its own. Costs are seconds of processor
time, because a laptop's two cores run everything at once: how long something takes says little here. Points
that are already in the results, measured at the same commit, are not measured again: ``--again`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, machine
from benchmarks.scale.cell import measured
from benchmarks.scale.kept import kept
from benchmarks.scale.model import fit
from benchmarks.scale.page import PAGE, written
from benchmarks.scale.points import FITTED, HELD_OUT, Point
from benchmarks.scale.queueing import checked
from deploy.kafka import broker

RESULTS = Path(__file__).parents[1] / "results" / "scale.json"


def main() -> None:
    """Measure, fit and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="of each live point")
    parser.add_argument("--again", action="store_true", help="measure known points again")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--first", type=int, default=None, help="measure so many points of each set only")
    parser.add_argument("--fit", action="store_true", help="measure nothing: fit what is in the results")
    asked = parser.parse_args()
    if asked.fit:
        _store(asked.output, _fitted(json.loads(asked.output.read_text())))
        return
    known = json.loads(asked.output.read_text()) if asked.output.exists() and not asked.again else {}
    if known.get("commit") != commit():
        known = {}
    found = {name: list(known.get(name, [])) for name in ("fitted", "held_out")}
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        cluster = broker.start(Path(folder) / "kafka")
        try:
            for name, points in (("fitted", FITTED), ("held_out", HELD_OUT)):
                for point in points[: asked.first]:
                    if not any(_is_of(point, row) for row in found[name]):
                        found[name].append(
                            _measure(point, Path(folder), cluster.bootstrap_servers, asked.seconds)
                        )
                        _write(asked.output, found, known)
            if "kept" not in known:
                known["kept"] = kept(Path(folder))
        finally:
            cluster.stop()
    _write(asked.output, found, known)


def _measure(point: Point, folder: Path, servers: str, seconds: float) -> dict[str, float]:
    own = folder / "-".join(str(getattr(point, name)) for name in Point.__slots__)
    own.mkdir()
    row = measured(point, own, servers, seconds)
    row = {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
    print(json.dumps(row | {"load": round(os.getloadavg()[0], 1)}), flush=True)
    return row


def _is_of(point: Point, row: dict[str, float]) -> bool:
    return all(row[key] == getattr(point, key) for key in Point.__slots__)


def _write(output: Path, found: dict[str, list[dict[str, float]]], known: dict[str, Any]) -> None:
    result: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.scale", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "redis_memory": "allocated memory (`used_memory`)",
    }
    result |= found
    if "kept" in known:
        result["kept"] = known["kept"]
    if "kept" in known and len(found["fitted"]) >= len(FITTED):
        result = _fitted(result)
    _store(output, result)


def _fitted(result: dict[str, Any]) -> dict[str, Any]:
    costs = fit(result["fitted"], result["kept"])
    return result | {"costs": costs, "check": checked(costs, result["held_out"])}


def _store(output: Path, result: dict[str, Any]) -> None:
    output.write_text(json.dumps(result, indent=1) + "\n")
    if output == RESULTS and "check" in result:
        PAGE.write_text(written(PAGE.read_text(), result))


if __name__ == "__main__":
    main()
