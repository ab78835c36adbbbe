"""A linear model of costs: each cost is a sum of what workers, streams, events and closings cost.

Fitted by least squares of relative errors with coefficients of at least 0 (NNLS), so that a small point says
as much as a large one and nothing can cost less than nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

Row = Mapping[str, float]
READ_AT_ONCE = 2_000  # events that a worker decodes and applies at once
CPU = (
    "worker_second",
    "worker_second_of_stream",
    "event",
    "event_of_stream",
    "cell_of_stream",
    "closing",
    "closing_of_key",
)
MEMORY = ("process", "stream", "key_of_stream", "row", "key_of_row")


def work(row: Row) -> dict[str, float]:
    """Return how often each thing that costs processor time was done in a measurement."""
    workers, streams, keys = row["workers"], row["streams"], row["keys"]
    cells = row["read"] * min(1.0, keys / READ_AT_ONCE)
    return {
        "worker_second": workers * row["seconds"],
        "worker_second_of_stream": workers * row["seconds"] * streams,
        "event": row["read"],
        "event_of_stream": row["read"] * streams,
        "cell_of_stream": cells * streams,
        "closing": row["closings"],
        "closing_of_key": row["closings"] * keys,
    }


def held(row: Row) -> dict[str, float]:
    """Return what takes memory in one process. Rows are the bins that were released so far."""
    return {
        "process": 1.0,
        "stream": row["streams"],
        "key_of_stream": row["streams"] * row["keys"],
        "row": row["rows"],
        "key_of_row": row["rows"] * row["keys"],
    }


def fit(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the cost of each thing: seconds of processor time, and MB."""
    worked, kept = [work(row) for row in rows], [held(row) for row in rows]
    return {
        "cpu_s": _fitted(CPU, worked, [row["cpu_s"] for row in rows]),
        "redis_cpu_s": _fitted(CPU, worked, [max(row["redis_cpu_s"], 0.01) for row in rows]),
        "worker_mb": _fitted(MEMORY, kept, [row["worker_mb"] for row in rows]),
        "redis_mb": _fitted(MEMORY, kept, [row["redis_mb"] for row in rows]),
    }


def _fitted(
    names: Sequence[str], rows: Sequence[Mapping[str, float]], measured: Sequence[float]
) -> dict[str, float]:
    matrix = np.array([[row[name] for name in names] for row in rows])
    relative = matrix / np.array(measured)[:, None]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0
    costs, _ = nnls(relative / scale, np.ones(len(rows)))
    return {name: float(f"{cost:.4g}") for name, cost in zip(names, costs / scale, strict=True)}


def predicted(costs: Mapping[str, Mapping[str, float]], row: Row) -> dict[str, float]:
    """Return what a measurement should have cost."""
    done = {"cpu_s": work(row), "redis_cpu_s": work(row), "worker_mb": held(row), "redis_mb": held(row)}
    return {what: sum(costs[what][name] * amount for name, amount in done[what].items()) for what in done}


def check(costs: Mapping[str, Mapping[str, float]], rows: Sequence[Row]) -> list[dict[str, float]]:
    """Return, for each measurement that was not fitted, predicted over measured cost."""
    table = []
    for row in rows:
        said = predicted(costs, row)
        point = {name: row[name] for name in ("workers", "streams", "keys", "bin_s", "events")}
        ratios = {what: round(said[what] / max(row[what], 0.01), 3) for what in said}
        table.append(point | ratios)
    return table
