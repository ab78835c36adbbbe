"""Exact answers and their intervals: one alone, and 11,000 side by side, against the general paths.

One range goes through floats and few small arrays (``one_node_law.py``, ``one_interval.py``); the general
paths are the tables of many laws, here with one row. A series goes through tables; the general path is one
law after the other. Both see the same fresh ranges, thirty in turn. Times are processor times, as the machine
may do other work.

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

from dphist.noise import Int64Array
from dphist.tree.design import TreeDesign
from dphist.tree.forest_laws import forest_errors
from dphist.tree.interval import half_width, half_widths
from dphist.tree.law import LawTable, WeightedNoise
from dphist.tree.node_design import NodeDesign
from dphist.tree.node_shares import plan_node_shares
from dphist.tree.planner import plan_tree
from dphist.tree.published_error import published_law
from dphist.tree.published_laws import published_laws
from dphist.tree.weights import range_weights

RESULTS = Path(__file__).parent / "results" / "exact_answers.json"
CONFIDENCE = 0.95
POINTS = 11_000
RANGES = 300
LONG = 2**20
Law = Callable[[int, int], WeightedNoise]


def with_node_shares(horizon: int) -> NodeDesign:
    """Return the plan that a new stream of the service begins with."""
    branching = plan_tree(horizon, 1, release="anticipating").branching
    return plan_node_shares(horizon, 1, branching=branching, iterations=40, total_weight=0.1)


def by_tables(law: WeightedNoise) -> float:
    """Return a half width by a table of one row."""
    return float(half_widths(LawTable.of([law]), CONFIDENCE)[0][0])


def one_range(horizon: int, quick: Law, general: Law) -> dict[str, float]:
    """Time a law with variance and interval both ways, on ranges that were never asked for before."""
    draws = np.random.default_rng(7)
    edges = np.sort(draws.integers(0, horizon + 1, (RANGES, 2)), axis=1)
    edges[::3, 0] = 0
    edges[1::30, 1] = np.minimum(edges[1::30, 0] + 1, horizon)
    edges = edges[edges[:, 0] < edges[:, 1]]
    quick(0, horizon), general(0, horizon)
    times: dict[str, list[float]] = {"quick": [], "general": [], "law": []}
    for batch in np.array_split(edges, 10):
        found = []
        for a, b in batch.tolist():
            start = time.thread_time()
            law = quick(a, b)
            known = law.variance
            between = time.thread_time()
            width = half_width(law, CONFIDENCE).value
            stop = time.thread_time()
            times["quick"].append(stop - start)
            times["law"].append(between - start)
            found.append((known, width))
        for (a, b), (known, width) in zip(batch.tolist(), found, strict=True):
            start = time.thread_time()
            other = general(a, b)
            other_width = by_tables(other)
            times["general"].append(time.thread_time() - start)
            assert np.isclose(other.variance, known, rtol=1e-9)
            assert abs(width - other_width) <= known**0.5 / 1024
    median = {name: statistics.median(taken) * 1e3 for name, taken in times.items()}
    return {
        "ms": median["quick"],
        "of_it_the_law_ms": median["law"],
        "p99_ms": float(np.quantile(times["quick"], 0.99)) * 1e3,
        "general_to_quick": median["general"] / median["quick"],
    }


def series(
    horizon: int, tables: Callable[[Int64Array, Int64Array], LawTable], single: Law
) -> dict[str, dict[str, float]]:
    """Time laws and half widths of 11,000 points side by side, and laws one after the other."""
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
    for horizon in (8_760, 2**16):
        design = with_node_shares(horizon)
        yield f"range, share per node, {horizon} bins", one_range(horizon, *_published(design))
    for horizon in (2**16, LONG):
        level = plan_tree(horizon, 1, release="anticipating")
        yield f"range, share per level, {horizon} bins", one_range(horizon, *_published(level))
    causal = plan_tree(LONG, 1)
    yield f"range, causal, {LONG} bins", one_range(LONG, *_causal(causal, LONG - 12_345))
    yield "series, share per node, 8760 bins", _published_series(with_node_shares(8_760))
    for horizon in (POINTS, LONG):
        yield (
            f"series, share per level, {horizon} bins",
            _published_series(plan_tree(horizon, 1, release="anticipating")),
        )
        yield f"series, causal, {horizon} bins", _causal_series(plan_tree(horizon, 1))


def _published(design: TreeDesign | NodeDesign) -> tuple[Law, Law]:
    def general(a: int, b: int) -> WeightedNoise:
        return published_laws(design, np.array([a]), np.array([b])).law(0)

    return lambda a, b: published_law(design, a, b), general


def _causal(design: TreeDesign, bins: int) -> tuple[Law, Law]:
    def general(a: int, b: int) -> WeightedNoise:
        return forest_errors(design, bins, *np.minimum([[a], [b]], bins)).laws.law(0)

    return lambda a, b: range_weights(design, bins, min(a, bins), min(b, bins)).law(), general


def _published_series(design: TreeDesign | NodeDesign) -> dict[str, dict[str, float]]:
    return series(
        design.horizon,
        lambda starts, stops: published_laws(design, starts, stops),
        lambda a, b: published_law(design, a, b),
    )


def _causal_series(design: TreeDesign) -> dict[str, dict[str, float]]:
    bins = design.horizon
    return series(
        bins,
        lambda starts, stops: forest_errors(design, bins, starts, stops).laws,
        lambda a, b: range_weights(design, bins, a, b).law(),
    )


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    """Measure everything, print it and write it down."""
    results: dict[str, object] = {"python": platform.python_version(), "numpy": np.__version__}
    for name, measured in answers():
        results[name] = _rounded(measured)
        print(name, results[name], flush=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
