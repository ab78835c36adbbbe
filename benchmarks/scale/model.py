"""A linear model of costs: each cost is a sum of what workers, streams, events and closings cost.

Fitted by least squares of relative errors with coefficients of at least 0 (NNLS), so that a small point says
as much as a large one and nothing can cost less than nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

Row = Mapping[str, float]
READ_AT_ONCE = 20_000  # events that a worker counts at once (kafka_columns.py); fewer if fewer came in a turn
TURN_S = 0.02  # of a turn without events: fetch, exchange with Redis, waiting for more
LISTED = 512  # cells that Redis keeps as a list, which it searches from its start: hash-max-listpack-entries
AHEAD = 10_000_000  # draws of an epoch; the noise of a stream that needs more is not drawn ahead
CPU = (
    "worker_second",
    "worker_second_of_stream",
    "instant",
    "event",
    "event_of_stream",
    "cell_of_stream",
    "cell_passed",
    "closing",
    "closing_of_key",
    "closing_of_key_ahead",
)
MEMORY = ("process", "stream", "key_of_stream", "cell_open", "noise_ahead")


def work(row: Row) -> dict[str, float]:
    """Return how often each thing that costs processor time was done in a measurement."""
    workers, streams, keys = row["workers"], row["streams"], row["keys"]
    per_s = row["events"] / workers if row["bin_s"] else math.inf
    cells, of_bin = row["read"] * streams * cells_of_event(per_s, keys), cells_of_bin(row)
    of_key = "closing_of_key_ahead" if draws_ahead(keys, row["epoch_bins"]) else "closing_of_key"
    return dict.fromkeys(CPU, 0.0) | {
        "worker_second": workers * row["seconds"],
        "worker_second_of_stream": workers * row["seconds"] * streams,
        # At a closing instant each worker asks where its partitions end, once for all streams.
        "instant": workers * row["seconds"] / row["bin_s"] if row["bin_s"] else 0.0,
        "event": row["read"],
        "event_of_stream": row["read"] * streams,
        "cell_of_stream": cells,
        "cell_passed": cells * of_bin / 2 if of_bin <= LISTED else 0.0,
        "closing": row["closings"],
        of_key: row["closings"] * keys,
    }


def cells_of_event(per_s: float, keys: float) -> float:
    """Return how many cells a worker writes for each event: events of one key that come together share one.

    Args: per_s, events a second of one worker; infinite while it reads what has waited.
    """
    together = max(1.0, min(READ_AT_ONCE, per_s * TURN_S))
    return keys / together * -math.expm1(-together / keys)


def cells_of_bin(row: Row) -> float:
    """Return how many cells of a bin have events when it closes, of one stream."""
    per_bin = row["events"] * (row["bin_s"] or 1.0)  # of events that wait, all are in one bin
    return row["keys"] * -math.expm1(-per_bin / row["keys"])


def draws_ahead(keys: float, epoch_bins: float) -> bool:
    """Return whether a stream's noise is drawn before its epoch opens."""
    return keys * epoch_bins <= AHEAD


def held(row: Row) -> dict[str, float]:
    """Return what takes memory in one process. Rows are the bins that were released so far."""
    ahead = draws_ahead(row["keys"], row["epoch_bins"])
    of_bin = cells_of_bin(row)
    return {
        "process": 1.0,
        "stream": row["streams"],
        "key_of_stream": row["streams"] * row["keys"],
        "row": row["rows"],
        "key_of_row": row["rows"] * row["keys"],
        "cell_open": row["streams"] * of_bin if of_bin > LISTED else 0.0,  # cells of a list take little
        "noise_ahead": row["streams"] * row["keys"] * row["epoch_bins"] if ahead else 0.0,
    }


def fit(rows: Sequence[Row], kept: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the cost of each thing: seconds of processor time, and MB.

    Args: kept, MB of Redis of a row and of a key of a row, measured where rows are many (``kept.py``).
    """
    worked, things = [work(row) for row in rows], [held(row) for row in rows]
    return {
        "cpu_s": _fitted(CPU, worked, [row["cpu_s"] for row in rows]),
        "redis_cpu_s": _fitted(CPU, worked, [row["redis_cpu_s"] for row in rows]),
        "worker_mb": _fitted(MEMORY, things, [row["worker_mb"] for row in rows]),
        "redis_mb": _fitted(MEMORY, things, [row["redis_mb"] - _of(kept, held(row)) for row in rows])
        | dict(kept),
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
    return {what: _of(costs[what], done[what]) for what in done}


def _of(costs: Mapping[str, float], done: Mapping[str, float]) -> float:
    return sum(cost * done[name] for name, cost in costs.items())


def check(costs: Mapping[str, Mapping[str, float]], rows: Sequence[Row]) -> list[dict[str, float]]:
    """Return, for each measurement that was not fitted, predicted over measured cost."""
    table = []
    for row in rows:
        said = predicted(costs, row)
        point = {name: row[name] for name in ("workers", "streams", "keys", "bin_s", "events")}
        ratios = {what: round(said[what] / row[what], 3) for what in said}
        table.append(point | ratios)
    return table
