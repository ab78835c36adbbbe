"""The figures of docs/how-to/sizing.md, from the results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale.points import DELAYS, WAITING, Point
from benchmarks.scale.queueing import EVENTS
from benchmarks.scale.repeats import noise
from benchmarks.scale.sizing import table

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sizing.md"
FORM, EACH, LOADS = '<div class="sizing"', "Of its processor time", "| events/s |"
READ, LATE = "| events that wait |", "| load |"
CHECK, RATIOS = "On ", "| measured |"
QUANTITIES = {
    "cpu_s": "the processor time of the workers",
    "worker_mb": "the memory of a worker",
    "redis_mb": "the memory of Redis",
    "redis_cpu_s": "the processor time of Redis",
}
LEAST, MOST = 0.75, 1.25  # the goal


def written(page: str, result: Mapping[str, Any]) -> str:
    """Return the page with the figures of a result in place of those that it has.

    Raises: ValueError if the page lacks one of the seven blocks.
    """
    costs, check = result["costs"], result["check"]
    rows = [*result["fitted"], *result["known"], *result["fresh"]]
    checks = len(result["known"]) + len(result["fresh"])
    notes = [
        *_missing(result["missing"]),
        *_noise(rows[-checks:], rows),
        f"Measured on: {result['machine']}.",
    ]
    new = {
        FORM: f"{FORM} data-costs='{json.dumps(costs)}'></div>",
        EACH: _each(costs["cpu_s"]),
        LOADS: "\n".join(table(costs)),
        READ: "\n".join(_read(rows)),
        LATE: "\n".join(_delays(rows)),
        CHECK: " ".join([_checked(check, result["seed"]), *notes]),
        RATIOS: "\n".join(_ratios(check)),
    }
    blocks = page.split("\n\n")
    for start, text in new.items():
        places = [place for place, block in enumerate(blocks) if block.startswith(start)]
        if len(places) != 1:
            raise ValueError(f"{PAGE.name}: {len(places)} blocks begin with {start!r}, not one")
        blocks[places[0]] = text
    return "\n\n".join(blocks)


def _each(costs: Mapping[str, float]) -> str:
    plain, keyed = (1e6 * sum(costs[name] for name in EVENTS[:count]) for count in (1, 2))
    further_ms, key_us = 1e3 * costs["closing_of_worker"], 1e6 * costs["closing_of_key"]
    return (
        f"{EACH}, a worker spends {plain:.1f} s on a million events of a stream without keys, {keyed:.1f} s "
        f"with keys, {1e3 * costs['closing'] + further_ms:.1f} ms on a release of a stream, and {key_us:.1f} "
        f"microseconds more for each of its keys. Each other worker spends {further_ms:.1f} ms on the same "
        "release. Reads, calls to Redis and idle seconds come on top."
    )


def _read(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"{READ} a second | workers, a million events | Redis, a million events |"
    yield "|---|---|---|---|"
    for row in _of(rows, WAITING):
        each_s = (f"{1e6 * row[what] / row['read']:.2f} s" for what in ("cpu_s", "redis_cpu_s"))
        load = _point(row).replace(" that wait", "")
        yield f"| {load} | {row['read'] / row['seconds']:,.0f} | {' | '.join(each_s)} |"


def _of(rows: Sequence[Mapping[str, Any]], points: Sequence[Point]) -> Iterator[Mapping[str, Any]]:
    """Yield the measurements of some points, in the order of the points."""
    for point in points:
        yield from (row for row in rows if all(row[name] == getattr(point, name) for name in Point.__slots__))


def _delays(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"{LATE} mean delay | measured |"
    yield "|---|---|---|"
    for row in _of(rows, DELAYS):
        seen = [f"{one['delay_s']:.2f} s" for one in row["repeats"]]
        yield f"| {_point(row)} | {row['delay_s']:.2f} s | {', '.join(seen)} |"


def _checked(check: Mapping[str, Sequence[Mapping[str, Any]]], seed: int) -> str:
    fresh, known = check["fresh"], check["known"]
    return (
        f"On {len(fresh)} loads that a random generator chose (seed {seed}), the model says {_said(fresh)} "
        f"On {len(known)} more, which somebody chose, it says {_said(known)}"
    )


def _said(rows: Sequence[Mapping[str, Any]]) -> str:
    said = []
    for what, name in QUANTITIES.items():
        ratios = [row[what] for row in rows]
        said.append(f"{min(ratios):.2f} to {max(ratios):.2f} times {name}")
    every = [row[what] for row in rows for what in QUANTITIES]
    missed = sum(not _keeps(ratio) for ratio in every)
    goal = f"{missed} of {len(every)} ratios miss the goal of {LEAST} to {MOST}"
    return f"{', '.join(said[:-1])}, and {said[-1]}: {goal}{', in bold here' if missed else ''}."


def _missing(points: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if points:
        yield f"Not measured, because the machine did not keep up: {'; '.join(map(_point, points))}."


def _noise(checked: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    counts = sorted({len(row["repeats"]) for row in checked})
    found = {what: noise(rows, what) for what in QUANTITIES}
    spread = [f"{of:.0%} for {QUANTITIES[what]}" for what, of in found.items() if of is not None]
    if spread:
        times = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        yield f"Each of these loads was measured {times} times, and each figure is the median."
        yield f"A single measurement has a standard deviation of {', '.join(spread[:-1])}, and {spread[-1]}."
    else:
        yield "Each load was measured once, so nobody knows how well these figures can be checked."


def _ratios(check: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    names = (
        "workers' processor time",
        "a worker's memory",
        "Redis' memory",
        "Redis' processor time",
    )
    yield f"{RATIOS} chosen | {' | '.join(names)} |"
    yield "|---" * (2 + len(QUANTITIES)) + "|"
    for chosen, rows in (("at random", check["fresh"]), ("by hand", check["known"])):
        for row in rows:
            yield f"| {_point(row)} | {chosen} | {' | '.join(_ratio(row[what]) for what in QUANTITIES)} |"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if _keeps(ratio) else f"**{ratio:.2f}**"


def _keeps(ratio: float) -> bool:
    return LEAST <= round(ratio, 2) <= MOST


def _point(row: Mapping[str, float]) -> str:
    counted = {"worker": row["workers"], "stream": row["streams"], "key": row["keys"]}
    things = [f"{count:,} {thing}{'s' * (count != 1)}" for thing, count in counted.items()]
    events = f"{row['events']:,} events"
    how = f"{events}/s, {row['bin_s']} s bins" if row["bin_s"] else f"{events} that wait"
    partitions = row["partitions"]
    said = [*things, how, f"{partitions} partition{'s' * (partitions != 1)}"]
    if row.get("behind", 0.0) > 1:
        said.append(f"released {row['behind']:.0f} bins late")
    return ", ".join(said)
