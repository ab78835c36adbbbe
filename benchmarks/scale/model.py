"""A linear model of costs: each cost is a sum of what workers, streams, events and closings cost.

``work`` and ``held`` count what the service does, by its own rules: how often a reader reads, what one call
to the store holds, how Redis keeps a hash. Fitted are only the costs of each thing, by least squares of
relative errors with coefficients of at least 0 (NNLS). So a small point says as much as a large one, and
nothing can cost less than nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

Row = Mapping[str, float]
READ_EVERY_S, READ_S_PER_STREAM = 0.05, 0.005  # the longer one is between two reads (loops/ingest.py)
READ_TIMEOUT_S = 0.1  # for how long a read waits for an event (loops/ingest.py)
# At a closing instant a reader does not pause until it has passed every cut. This takes about so many rounds
# of its partitions, observed as calls to the store (`INFO commandstats`).
ROUNDS_TO_CUT = 3
RECORDS_OF_PIECE = 40_000  # at most, while events wait: two pieces of kafka_columns.MOST_RECORDS
CELLS_OF_CALL = 5_000  # a call that could hold more is split (LARGEST_APPLY_CELLS)
LISTED = 512  # cells that Redis keeps as a list, which it searches from its start: hash-max-listpack-entries
AHEAD = 10_000_000  # draws of an epoch; the noise of a stream that needs more is not drawn ahead
THREADS = 4  # that draw noise ahead (loops/noise_ahead.py)
NUMBERS_AT_ONCE = 1_000_000  # that each of them draws and decodes (dphist/product/published.py)
COSTS = {  # what each thing takes: seconds of processor time, or MB
    "cpu_s": (
        *("worker_second", "poll", "event", "event_with_key", "piece", "piece_with_key"),
        *("call", "slice", "cell_new", "closing", "closing_of_worker", "closing_of_key"),
    ),
    "redis_cpu_s": (
        *("second", "worker_second", "piece", "call", "slice"),
        *("cell", "cell_new", "cell_passed", "cut"),
    ),
    "worker_mb": ("process", "stream", "key_of_stream", "noise_ahead", "drawing"),
    "redis_mb": (
        *("process", "worker", "stream_with_rows", "partition_of_stream"),
        *("key_of_stream", "cell_open", "noise_ahead"),
    ),
}


def work(row: Row) -> dict[str, float]:
    """Return how often each thing that costs processor time was done in a measurement."""
    streams, keys = row["streams"], row["keys"]
    pieces, together = pieces_of(row)
    polls = polls_of(row, pieces)
    # All that one read brings for a stream is one call, unless this has too many cells.
    slices, calls = pieces, min(polls, pieces)
    if keys > CELLS_OF_CALL:
        slices *= math.ceil(together / CELLS_OF_CALL)
        calls *= math.ceil(row["read"] / calls / CELLS_OF_CALL)
    cells = slices * distinct(keys, row["read"] / slices)
    bins = row["seconds"] / row["bin_s"] if row["bin_s"] else 1.0
    return {
        "second": row["seconds"],
        "worker_second": row["workers"] * row["seconds"],
        "poll": polls,
        "event": row["read"],
        "event_with_key": row["read"] if keys > 1 else 0.0,
        "piece": pieces,
        "piece_with_key": pieces if keys > 1 else 0.0,
        "call": calls * streams,
        "slice": slices * streams,
        "cell": cells * streams,
        "cell_new": bins * distinct(keys, row["read"] / bins) * streams,
        "cell_passed": passed(keys, cells / bins) * bins * streams,
        "closing": row["closings"],
        "closing_of_worker": row["closings"] * row["workers"],  # one worker releases, and each looks
        "cut": row["closings"] * row["partitions"],
        "closing_of_key": row["closings"] * keys,
    }


def pieces_of(row: Row) -> tuple[float, float]:
    """Return how many pieces of partitions were read, by all workers, and how many events each held.

    A read returns a piece of each partition that has events, up to ``RECORDS_OF_PIECE`` together.
    """
    partitions = row["partitions"]
    if not row["bin_s"]:
        of_partition = math.ceil(row["events"] / partitions / RECORDS_OF_PIECE)
        pieces = partitions * of_partition * row["read"] / row["events"]
        return pieces, row["read"] / pieces
    per_s, own = row["events"] / _readers(row), row["partitions"] / _readers(row)
    most = max(
        own / read_every_s(row["streams"]) + ROUNDS_TO_CUT * own / row["bin_s"], per_s / RECORDS_OF_PIECE
    )
    pieces = min(most, per_s) * _readers(row) * row["seconds"]  # no piece is empty
    return pieces, row["read"] / pieces


def polls_of(row: Row, pieces: float) -> float:
    """Return how often all workers asked for events. A read costs, however little it brings.

    Reads begin at multiples of ``read_every_s``. One that finds no event waits for the first, and the next
    read begins at the multiple after it. So a quiet topic is read less often.
    """
    if not row["bin_s"]:
        return pieces  # a full piece is all that one read returns
    every_s, per_s = read_every_s(row["streams"]), row["events"] / _readers(row)
    multiples = range(2, 2 + int(READ_TIMEOUT_S / every_s + 1e-9))
    between_s = every_s * (1 + sum(math.exp(-per_s * every_s * multiple) for multiple in multiples))
    at_cuts = min(ROUNDS_TO_CUT / row["bin_s"], per_s)
    return (1 / between_s + at_cuts) * _readers(row) * row["seconds"]


def _readers(row: Row) -> float:
    return min(row["workers"], row["partitions"])  # a worker without a partition reads nothing


def read_every_s(streams: float) -> float:
    """Return the seconds between two reads that bring few events."""
    return max(READ_EVERY_S, READ_S_PER_STREAM * streams)


def distinct(keys: float, events: float) -> float:
    """Return how many keys so many events have in the mean."""
    return keys * -math.expm1(-events / keys)


def passed(keys: float, cells: float) -> float:
    """Return how many cells Redis passes in the list of one bin of a stream that is written so many cells.

    A cell that is there is found after half of the list in the mean, a new one after all of it. The list
    becomes a hash table with its cell ``LISTED`` + 1.
    """
    if keys > LISTED:
        cells = min(cells, -keys * math.log1p(-LISTED / keys))
    return cells * keys / 2 - distinct(keys, 2 * cells) * keys / 4


def cells_of_bin(row: Row) -> float:
    """Return how many cells of a bin have events when it closes, of one stream."""
    return distinct(row["keys"], row["events"] * (row["bin_s"] or 1.0))  # events that wait are in one bin


def numbers_ahead(keys: float, epoch_bins: float) -> float:
    """Return how many numbers of noise one stream stores for an epoch, 0 if it draws at each closing.

    One for each key and bin. A stream without keys releases nodes, too, about one more for each bin.
    """
    return max(keys, 2) * epoch_bins if keys * epoch_bins <= AHEAD else 0.0


def held(row: Row) -> dict[str, float]:
    """Return what takes memory in one process. Rows are the bins that were released so far."""
    of_bin = cells_of_bin(row)
    numbers = numbers_ahead(row["keys"], row["epoch_bins"])
    return {
        "process": 1.0,
        "worker": row["workers"],
        "stream": row["streams"],
        # Redis allocates 4 KiB at once for the last rows of a stream, however few they are.
        "stream_with_rows": row["streams"] if row["rows"] else 0.0,
        "partition_of_stream": row["streams"] * row["partitions"],
        "key_of_stream": row["streams"] * row["keys"],
        "row": row["rows"],
        "key_of_row": row["rows"] * row["keys"],
        "cell_open": row["streams"] * of_bin if of_bin > LISTED else 0.0,  # cells of a list take little
        # Streams whose epochs open together draw together, and each holds its numbers until all are stored.
        # At a first start the first worker begins to draw for every stream, before others take their share.
        "noise_ahead": row["streams"] * numbers,
        "drawing": min(row["streams"], THREADS) * min(numbers, NUMBERS_AT_ONCE),
    }


def fit(rows: Sequence[Row], kept: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the cost of each thing: seconds of processor time, or MB.

    Args: kept, MB of Redis of a row and of a key of a row, measured where rows are many (``kept.py``).
    """
    costs = {}
    for what, names in COSTS.items():
        done = [_done(what, row) for row in rows]
        given = kept if what == "redis_mb" else {}
        measured = [row[what] - _of(given, things) for row, things in zip(rows, done, strict=True)]
        costs[what] = _fitted(names, done, measured) | dict(given)
    return costs


def _done(what: str, row: Row) -> dict[str, float]:
    return work(row) if what.endswith("cpu_s") else held(row)


def _fitted(
    names: Sequence[str], rows: Sequence[Mapping[str, float]], measured: Sequence[float]
) -> dict[str, float]:
    matrix = np.array([[row[name] for name in names] for row in rows])
    relative = matrix / np.array(measured)[:, None]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0
    costs, _ = nnls(relative / scale, np.ones(len(rows)))
    return {name: float(f"{cost:.4g}") for name, cost in zip(names, costs / scale, strict=True)}


def _of(costs: Mapping[str, float], done: Mapping[str, float]) -> float:
    return sum(cost * done[name] for name, cost in costs.items())


def check(costs: Mapping[str, Mapping[str, float]], rows: Sequence[Row]) -> list[dict[str, float]]:
    """Return, for each measurement that was not fitted, predicted over measured cost."""
    table = []
    for row in rows:
        names = ("workers", "streams", "keys", "bin_s", "events", "partitions")
        ratios = {what: round(_of(costs[what], _done(what, row)) / row[what], 3) for what in COSTS}
        table.append({name: row[name] for name in names} | {"behind": row.get("behind", 0.0)} | ratios)
    return table
