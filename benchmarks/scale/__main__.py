"""Measure what workers, streams, keys and events cost, fit a model, and check it against other points.

    python -m benchmarks.scale [--seconds 5] [--minutes 23] [--seed 23] [--again]      (make bench-scale)
    python -m benchmarks.scale --fit          fit the measurements that are in the results again

Writes results/scale.json and the figures of docs/how-to/sizing.md; with --output, the results only.

One broker serves all points; each point has a Redis and workers of its own. Costs are seconds of processor
time, because a laptop's two cores run everything at once: how long something takes says little here. All
points are measured once, then those that check the model twice more, then the fitted ones again, and so on
until the time is over. Measurements that are already in the results, of the same commit, are not made again:
``--again`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

from benchmarks.machine import commit, machine
from benchmarks.scale.cell import measured
from benchmarks.scale.kept import kept
from benchmarks.scale.model import check, fit
from benchmarks.scale.page import PAGE, written
from benchmarks.scale.points import FITTED, KNOWN, SEED, Point, fresh
from benchmarks.scale.repeats import joined
from deploy.kafka import broker

RESULTS = Path(__file__).parents[1] / "results" / "scale.json"
SETS = ("fitted", "known", "fresh")
CHECKS = SETS[1:]
# The number of a repeat, and the sets that are measured then. The figures that the page states need three.
PASSES = ((0, SETS), (1, CHECKS), (2, CHECKS), (1, SETS[:1]), (3, CHECKS), (2, SETS[:1]), (4, CHECKS))
Rows = dict[str, list[dict[str, Any]]]


def main() -> None:
    """Measure, fit and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="of each live point")
    parser.add_argument("--minutes", type=float, default=23, help="after which only the first pass goes on")
    parser.add_argument("--seed", type=int, default=SEED, help="draws the points that nobody chose")
    parser.add_argument("--again", action="store_true", help="measure known points again")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--first", type=int, default=None, help="measure so many points of each set only")
    parser.add_argument("--fit", action="store_true", help="measure nothing: fit what is in the results")
    asked = parser.parse_args()
    if asked.fit:
        _store(asked.output, _fitted(json.loads(asked.output.read_text())))
        return
    points = {"fitted": FITTED, "known": KNOWN, "fresh": fresh(asked.seed)}
    known = json.loads(asked.output.read_text()) if asked.output.exists() and not asked.again else {}
    if known.get("commit") != commit():
        known = {}
    found: Rows = {name: [row for row in known.get(name, []) if _is_in(points[name], row)] for name in SETS}
    until_s = time.monotonic() + 60 * asked.minutes
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        cluster = broker.start(Path(folder) / "kafka")
        try:
            if "kept" not in known:
                known["kept"] = kept(Path(folder))
            for repeat, name, point in turns(points, asked.first):
                if repeat and time.monotonic() > until_s:
                    break
                own = Path(folder) / "-".join([str(repeat), *map(str, astuple(point))])
                _measure(point, repeat, found[name], own, cluster.bootstrap_servers, asked.seconds)
                missing = [asdict(one) for name in SETS for one in points[name] if not _has(found[name], one)]
                given = {"seed": asked.seed, "kept": known["kept"], "missing": missing}
                _write(asked.output, found, given)
        finally:
            cluster.stop()
    if asked.first is None:
        _store(asked.output, _fitted(json.loads(asked.output.read_text())))


def turns(points: Mapping[str, Sequence[Point]], first: int | None) -> Iterator[tuple[int, str, Point]]:
    """Yield what to measure, in order: the number of the repeat, the set, the point."""
    for repeat, names in PASSES:
        for name in names:
            for point in points[name][:first]:
                yield repeat, name, point


def _measure(
    point: Point, repeat: int, rows: list[dict[str, Any]], folder: Path, servers: str, seconds: float
) -> None:
    """Measure a point and put it into its row, unless the row has this repeat already."""
    place = next((place for place, row in enumerate(rows) if _is_of(point, row)), None)
    before = {} if place is None else rows.pop(place)
    if len(before.get("repeats", [])) <= repeat:
        folder.mkdir()
        try:
            found = measured(point, folder, servers, seconds) | {"load": os.getloadavg()[0]}
        except (TimeoutError, RuntimeError, SubprocessError) as failure:
            print(f"{point} was not measured: {failure}", file=sys.stderr, flush=True)
        else:
            rounded = {key: round(of, 3) if isinstance(of, float) else of for key, of in found.items()}
            print(json.dumps(rounded), flush=True)
            before = joined(before, rounded)
    if before:
        rows.insert(len(rows) if place is None else place, before)


def _has(rows: Sequence[dict[str, Any]], point: Point) -> bool:
    return any(_is_of(point, row) for row in rows)


def _is_in(points: Sequence[Point], row: dict[str, Any]) -> bool:
    return any(_is_of(point, row) for point in points)


def _is_of(point: Point, row: dict[str, Any]) -> bool:
    return all(row[key] == getattr(point, key) for key in Point.__slots__)


def _write(output: Path, found: Rows, given: dict[str, Any]) -> None:
    result: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.scale", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
    }
    _store(output, result | found | given)


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
