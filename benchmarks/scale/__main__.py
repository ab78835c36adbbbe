"""Measure what workers, streams, keys and events cost, fit a model, and check it against other points.

    python -m benchmarks.scale [--seconds 5] [--repeats 3] [--first N] [--again]      (make bench-scale)
    python -m benchmarks.scale --fit          fit the measurements that are in the results again

Writes results/scale.json and the figures of docs/how-to/sizing.md; with --output, the results only.

One broker serves all points; each point has a Redis and workers of its own. Costs are seconds of processor
time, because a laptop's two cores run everything at once: how long something takes says little here. All
points are measured once, then all again. Measurements that are already in the results, of the same commit,
are not made again: ``--again`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import astuple
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, machine
from benchmarks.scale.cell import measured
from benchmarks.scale.kept import kept
from benchmarks.scale.model import check, fit
from benchmarks.scale.page import PAGE, written
from benchmarks.scale.points import FITTED, FRESH, KNOWN, Point
from benchmarks.scale.repeats import joined
from deploy.kafka import broker

RESULTS = Path(__file__).parents[1] / "results" / "scale.json"
SETS = {"fitted": FITTED, "known": KNOWN, "fresh": FRESH}
Rows = dict[str, list[dict[str, Any]]]


def main() -> None:
    """Measure, fit and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="of each live point")
    parser.add_argument("--repeats", type=int, default=3, help="how often each point is measured")
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
    found: Rows = {name: list(known.get(name, [])) for name in SETS}
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        cluster = broker.start(Path(folder) / "kafka")
        try:
            if "kept" not in known:
                known["kept"] = kept(Path(folder))
            for repeat in range(asked.repeats):
                for name, points in SETS.items():
                    for point in points[: asked.first]:
                        own = Path(folder) / "-".join([str(repeat), *map(str, astuple(point))])
                        _measure(point, repeat, found[name], own, cluster.bootstrap_servers, asked.seconds)
                        _write(asked.output, found, known["kept"])
        finally:
            cluster.stop()
    if len(found["fitted"]) == len(FITTED):  # not with --first
        _store(asked.output, _fitted(json.loads(asked.output.read_text())))


def _measure(
    point: Point, repeat: int, rows: list[dict[str, Any]], folder: Path, servers: str, seconds: float
) -> None:
    """Measure a point and put it into its row, unless the row has this repeat already."""
    place = next((place for place, row in enumerate(rows) if _is_of(point, row)), None)
    before = {} if place is None else rows.pop(place)
    if len(before.get("repeats", [])) <= repeat:
        folder.mkdir()
        found = measured(point, folder, servers, seconds) | {"load": os.getloadavg()[0]}
        found = {key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()}
        print(json.dumps(found), flush=True)
        before = joined(before, found)
    rows.insert(len(rows) if place is None else place, before)


def _is_of(point: Point, row: dict[str, Any]) -> bool:
    return all(row[key] == getattr(point, key) for key in Point.__slots__)


def _write(output: Path, found: Rows, kept: dict[str, float]) -> None:
    result: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.scale", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
    }
    _store(output, result | found | {"kept": kept})


def _fitted(result: dict[str, Any]) -> dict[str, Any]:
    costs = fit(result["fitted"], result["kept"])
    ratios = {name: check(costs, result[name]) for name in ("known", "fresh")}
    return result | {"costs": costs, "check": ratios}


def _store(output: Path, result: dict[str, Any]) -> None:
    output.write_text(json.dumps(result, indent=1) + "\n")
    if output == RESULTS and "check" in result:
        PAGE.write_text(written(PAGE.read_text(), result))


if __name__ == "__main__":
    main()
