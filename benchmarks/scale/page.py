"""The figures of docs/how-to/sizing.md, from the results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale.sizing import table

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sizing.md"
FORM, LOADS, CHECK, RATIOS = '<div class="sizing"', "| events/s |", "On ", "| measured |"
QUANTITIES = {
    "cpu_s": "the processor time of the workers",
    "worker_mb": "the memory of a worker",
    "redis_mb": "the memory of Redis",
    "redis_cpu_s": "the processor time of Redis",
}
LEAST, MOST = 0.75, 1.25  # the goal


def written(page: str, result: Mapping[str, Any]) -> str:
    """Return the page with the figures of a result in place of those that it has.

    Raises: ValueError if the page lacks one of the four blocks.
    """
    costs = result["costs"]
    new = {
        FORM: f"{FORM} data-costs='{json.dumps(costs)}'></div>",
        LOADS: "\n".join(table(costs)),
        CHECK: _check(result["check"], result.get("redis_memory", "resident memory")),
        RATIOS: "\n".join(_ratios(result["check"])),
    }
    blocks = page.split("\n\n")
    for start, text in new.items():
        places = [place for place, block in enumerate(blocks) if block.startswith(start)]
        if len(places) != 1:
            raise ValueError(f"{PAGE.name}: {len(places)} blocks begin with {start!r}, not one")
        blocks[places[0]] = text
    return "\n\n".join(blocks)


def _check(rows: Sequence[Mapping[str, Any]], memory: str) -> str:
    said = []
    for what, name in QUANTITIES.items():
        ratios = [row[what] for row in rows]
        said.append(f"{min(ratios):.2f} to {max(ratios):.2f} times {name}")
    missed = sum(not _keeps(row[what]) for row in rows for what in QUANTITIES)
    goal = f"The goal is {LEAST} to {MOST}: {missed} of {len(rows) * len(QUANTITIES)} ratios miss it"
    goal += ", in bold here." if missed else "."
    first = f"On {len(rows)} measurements that were not used for fitting, the model says"
    which = f"The memory of Redis is its {memory} here."
    return f"{first} {', '.join(said[:-1])}, and {said[-1]}. {goal} {which}{_delays(rows)}"


def _delays(rows: Sequence[Mapping[str, Any]]) -> str:
    found = [row["delay"] for row in rows if row["delay"] is not None]
    if not found:
        return " No delay was measured with them."
    said = f" The bound on the delay is {min(found):.1f} to {max(found):.1f} times the measured mean delay"
    return f"{said}; below 1 it did not hold." if min(found) < 1 else f"{said}."


def _ratios(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = ("workers' processor time", "a worker's memory", "Redis' memory", "Redis' processor time")
    yield f"{RATIOS} {' | '.join(names)} | most delay |"
    yield "|---" * (2 + len(QUANTITIES)) + "|"
    for row in rows:
        cells = [f"{row[what]:.2f}" if _keeps(row[what]) else f"**{row[what]:.2f}**" for what in QUANTITIES]
        delay = "" if row["delay"] is None else f"{row['delay']:.1f}"
        yield f"| {_point(row)} | {' | '.join(cells)} | {delay} |"


def _keeps(ratio: float) -> bool:
    return LEAST <= round(ratio, 2) <= MOST


def _point(row: Mapping[str, float]) -> str:
    counted = {"worker": row["workers"], "stream": row["streams"], "key": row["keys"]}
    things = [f"{count:,} {thing}{'s' * (count != 1)}" for thing, count in counted.items()]
    events = f"{row['events']:,} events"
    how = f"{events}/s, {row['bin_s']} s bins" if row["bin_s"] else f"{events} that wait"
    partitions = row["partitions"]
    return ", ".join([*things, how, f"{partitions} partition{'s' * (partitions != 1)}"])
