"""Exact answers and their intervals: one at a time, and 11,000 in one table.

A single range is a table of one row. A series is a table of all its points. Each round asks for new ranges.
Times are processor times, because the machine may do other work.

Run with ``python -m benchmarks.exact_answers``; results go to ``benchmarks/results/exact_answers.json``.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from dphist.arrays import Int64Array
from dphist.laws.interval import half_width, half_widths
from dphist.laws.law import LawTable, WeightedNoise
from dphist.planning.tree import plan_tree
from dphist.tree.design import TreeDesign
from dphist.tree.forest_laws import forest_errors
from dphist.tree.published_laws import published_law, published_laws

RESULTS = Path(__file__).parent / "results" / "exact_answers.json"
CONFIDENCE = 0.95
POINTS = 11_000
RANGES = 300
LONG = 2**20
Law = Callable[[int, int], WeightedNoise]


def one_range(horizon: int, law_of: Law) -> dict[str, float]:
    """Time the law of one range, its variance and its interval, for ranges that are not cached."""
    draws = np.random.default_rng(7)
    edges = np.sort(draws.integers(0, horizon + 1, (RANGES, 2)), axis=1)
    edges[::3, 0] = 0
    edges[1::30, 1] = np.minimum(edges[1::30, 0] + 1, horizon)
    edges = edges[edges[:, 0] < edges[:, 1]]
    law_of(0, horizon)
    laws, answers = [], []
    for a, b in edges.tolist():
        start = time.thread_time()
        law = law_of(a, b)
        law.variance  # noqa: B018
        between = time.thread_time()
        half_width(law, CONFIDENCE)
        answers.append(time.thread_time() - start)
        laws.append(between - start)
    return {
        "ms": statistics.median(answers) * 1e3,
        "of_it_the_law_ms": statistics.median(laws) * 1e3,
        "p99_ms": float(np.quantile(answers, 0.99)) * 1e3,
    }


def series(
    horizon: int, tables: Callable[[Int64Array, Int64Array], LawTable], single: Law
) -> dict[str, dict[str, float]]:
    """Time the laws and half widths of 11,000 points in one table, and of single points in a loop."""
    measured = {}
    for kind, (starts, stops) in _points(horizon).items():
        start = time.thread_time()
        laws = tables(starts, stops)
        between = time.thread_time()
        half_widths(laws, CONFIDENCE)
        stop = time.thread_time()
        rows = np.random.default_rng(3).choice(len(starts), 500, replace=False)
        for a, b in zip(starts[rows].tolist(), stops[rows].tolist(), strict=True):
            single(a, b)
        one_by_one = (time.thread_time() - stop) * len(starts) / len(rows)
        measured[kind] = {
            "points": len(starts),
            "seconds": stop - start,
            "of_it_laws_seconds": between - start,
            "laws_one_by_one_to_side_by_side": one_by_one / (between - start),
        }
    return measured


def _points(horizon: int) -> dict[str, tuple[Int64Array, Int64Array]]:
    points = min(POINTS, horizon)
    stops = np.linspace(1, horizon, points).astype(np.int64)
    width, wide = max(1, horizon // points), horizon // 50
    bins = np.arange(points, dtype=np.int64) * width
    windows = np.linspace(0, horizon - wide, points).astype(np.int64)
    return {
        "running": (np.zeros_like(stops), stops),
        "bins": (bins, bins + width),
        "windows": (windows, windows + wide),
    }


def answers() -> Iterable[tuple[str, dict[str, float] | dict[str, dict[str, float]]]]:
    """Measure everything."""
    for horizon in (8_760, 2**16, LONG):
        design = plan_tree(horizon, 1, release="anticipating")
        yield f"range, anticipating, {horizon} bins", one_range(horizon, _published(design))
    yield f"range, causal, {LONG} bins", one_range(LONG - 12_345, _causal(plan_tree(LONG, 1), LONG - 12_345))
    for horizon in (POINTS, LONG):
        design = plan_tree(horizon, 1, release="anticipating")
        yield f"series, anticipating, {horizon} bins", _published_series(design)
        yield f"series, causal, {horizon} bins", _causal_series(plan_tree(horizon, 1))


def _published(design: TreeDesign) -> Law:
    return lambda a, b: published_law(design, a, b)


def _causal(design: TreeDesign, bins: int) -> Law:
    return lambda a, b: forest_errors(design, bins, np.array([a]), np.array([b])).laws.law(0)


def _published_series(design: TreeDesign) -> dict[str, dict[str, float]]:
    def laws(starts: Int64Array, stops: Int64Array) -> LawTable:
        return published_laws(design, starts, stops)

    return series(design.horizon, laws, _published(design))


def _causal_series(design: TreeDesign) -> dict[str, dict[str, float]]:
    bins = design.horizon

    def laws(starts: Int64Array, stops: Int64Array) -> LawTable:
        return forest_errors(design, bins, starts, stops).laws

    return series(bins, laws, _causal(design, bins))


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    """Measure everything, print it and write it to a file."""
    results: dict[str, object] = {"python": platform.python_version(), "numpy": np.__version__}
    for name, measured in answers():
        results[name] = _rounded(measured)
        print(name, results[name], flush=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
