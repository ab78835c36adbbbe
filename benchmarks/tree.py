"""Speed of the tree over time, as ratios within one run: push, series, intervals; compared with OpenDP.

Run with ``python -m benchmarks.tree``; results go to ``benchmarks/results/tree.json``.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import opendp.prelude as dp

from dphist import SeededNoise, TreeCounter, plan_tree
from dphist.laws.interval import half_width
from dphist.mechanisms.trees.weighted_tree import IntervalTree, least_squares
from dphist.planning import tree as planner
from dphist.tree.estimate import ReleasedForest

RESULTS = Path(__file__).parent / "results" / "tree.json"
SHORT, LONG = 2**10, 2**20
_HORIZONS = {"2^10": 2**10, "2^16": 2**16, "2^20": 2**20}
PUSHES = 1000
OPENDP_HEIGHT = 5  # of a tree with 16 children: 2^20 leaves


def seconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Return the median time of an action."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def push_cost() -> dict[str, float]:
    """Compare a push at two horizons, in turns, so that both see the same load of the machine."""
    counters = {horizon: _new_counter(horizon) for horizon in (SHORT, LONG)}
    times: dict[int, list[float]] = {SHORT: [], LONG: []}
    for _ in range(9):
        for horizon, counter in counters.items():
            if counter.bin + PUSHES > horizon:
                counter = counters[horizon] = _new_counter(horizon)
            times[horizon].append(seconds(partial(_push, counter), 1) / PUSHES)
    short, long = (statistics.median(times[horizon]) for horizon in (SHORT, LONG))
    return {
        "push_us_at_2^10": short * 1e6,
        "push_us_at_2^20": long * 1e6,
        "push_ratio_2^20_to_2^10": long / short,
    }


def whole_series() -> dict[str, float]:
    """Time a batch release, all points of the running count with variances, and 11,000 intervals."""
    counter = _new_counter(LONG)
    forest = ReleasedForest(counter.design)
    start = time.perf_counter()
    releases = counter.push_many(np.ones((LONG, 1), np.int64))
    release = time.perf_counter() - start
    forest.append_many(releases)
    points = np.linspace(0, LONG - 1, 11_000).astype(np.int64)
    return {
        "push_many_2^20_bins_ms": release * 1e3,
        "running_series_2^20_ms": seconds(lambda: forest.series("running")) * 1e3,
        "running_variances_2^20_ms": seconds(lambda: forest.series_variance("running"), 3) * 1e3,
        "running_half_widths_11000_ms": seconds(
            lambda: forest.series_half_widths("running", points=points), 3
        )
        * 1e3,
        "live_half_widths_11000_ms": seconds(lambda: forest.series_half_widths("live", points=points), 3)
        * 1e3,
    } | _queries(forest)


def against_opendp() -> dict[str, float]:
    """Compare least squares over a whole 16-ary tree of 2^20 leaves with OpenDP's consistent tree."""
    k, height = 16, OPENDP_HEIGHT
    dp.enable_features("contrib")
    sizes = [k**level for level in range(height + 1)]
    noisy = np.random.default_rng(1).integers(-50, 50, sum(sizes))
    levels = np.split(noisy, np.cumsum(sizes)[:-1])
    consistent = dp.t.make_consistent_b_ary_tree(k, TIA="i32", TOA="f64")
    flat = noisy.tolist()
    theirs = seconds(lambda: consistent(flat), 3)
    tree, upward = IntervalTree(k**height, k), [level.astype(np.float64) for level in reversed(levels)]
    weights = [np.ones(size) for size in reversed(sizes)]
    ours = seconds(lambda: least_squares(tree, upward, weights), 5)
    leaves = least_squares(tree, upward, weights)[0]
    np.testing.assert_allclose(leaves, consistent(flat)[-len(leaves) :], atol=1e-6)
    return {
        "opendp_consistent_tree_ms": theirs * 1e3,
        "least_squares_ms": ours * 1e3,
        "opendp_to_ours": theirs / ours,
    }


def _queries(forest: ReleasedForest) -> dict[str, float]:
    draws = np.sort(np.random.default_rng(2).integers(0, LONG, (200, 2)), axis=1)
    half_width.cache_clear()
    times = [seconds(partial(_interval, forest, a, b), 1) for a, b in draws.tolist()]
    return {
        "range_with_interval_median_ms": statistics.median(times) * 1e3,
        "range_with_interval_p99_ms": float(np.quantile(times, 0.99)) * 1e3,
    }


def _push(counter: TreeCounter) -> None:
    for _ in range(PUSHES):
        counter.push(1)


def _interval(forest: ReleasedForest, first: int, stop: int) -> None:
    forest.range(first, stop).interval()


def _new_counter(horizon: int) -> TreeCounter:
    return TreeCounter(plan_tree(horizon, 1), SeededNoise(1), history=False)


def main() -> None:
    """Measure everything, print it and write it to a file."""
    plans = {
        f"plan_ms_at_{name}": seconds(partial(_planned_anew, h), 3) * 1e3 for name, h in _HORIZONS.items()
    }
    measured = plans | push_cost() | whole_series() | against_opendp()
    results: dict[str, object] = {"python": platform.python_version(), "numpy": np.__version__}
    results |= {name: round(value, 4) for name, value in measured.items()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    for name, value in measured.items():
        print(f"{name:34} {value:12.3f}")


def _planned_anew(horizon: int) -> None:
    planner.best_branching.cache_clear()
    plan_tree(horizon, 1)


if __name__ == "__main__":
    main()
