"""Repeated measurements of one point: a single one is as noisy as the processors of a virtual machine.

A machine is slow for minutes, so the repeats of a point lie passes over all points apart. The model is fitted
to medians and checked against medians. How much repeats differ says how well a figure can be checked at all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
FIGURES = (
    *("seconds", "cpu_s", "redis_cpu_s", "read", "closings", "rows"),
    *("delay_s", "behind", "worker_mb", "redis_mb"),
)


def joined(row: Row, found: Mapping[str, Any]) -> Row:
    """Return a point's row with one more measurement: all of them in ``repeats``, and their medians."""
    repeats = [*row.get("repeats", []), {name: found[name] for name in (*FIGURES, "load") if name in found}]
    point = {name: value for name, value in found.items() if name not in (*FIGURES, "load")}
    names = [name for name in FIGURES if name in found]
    return point | {name: _median([one[name] for one in repeats]) for name in names} | {"repeats": repeats}


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def noise(rows: Iterable[Mapping[str, Any]], what: str) -> float | None:
    """Return the standard deviation of one measurement's logarithm, over all points; None without repeats.

    Roughly the relative error of a figure that was measured once.
    """
    squares, freedom = 0.0, 0
    for row in rows:
        logs = [math.log(one[what]) for one in row["repeats"] if one.get(what)]
        if len(logs) > 1:
            squares += statistics.variance(logs) * (len(logs) - 1)
            freedom += len(logs) - 1
    return math.sqrt(squares / freedom) if freedom else None
