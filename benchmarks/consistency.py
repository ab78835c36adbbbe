"""Consistent counts: the error and the time of each method that makes an epoch consistent.

    python -m benchmarks.consistency

Measured are seeded epochs of the service's default release (anticipating) at epsilon 1 and 0.1. Errors are
root mean squares over points and runs, in events: of bins, windows of 24 bins, 4,000 ranges, running counts
and the epoch's total; in addition the mean error of the total. All values are whole numbers, except the
unbiased ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.nonnegative import nonnegative_least_squares, zero_negative_subtrees
from dphist import SeededNoise, plan_tree
from dphist.arrays import FloatArray
from dphist.consistency.isotonic import isotonic
from dphist.consistency.top_down import top_down
from dphist.tree.decoder import decode_noise, draw_epoch_noise
from dphist.tree.design import TreeDesign
from dphist.tree.published_laws import published_prefix_variances
from dphist.units import UNITS_PER_COUNT

RESULTS = Path(__file__).parent / "results" / "consistency.json"
RUNS = {720: 200, 8760: 80}
OPEN_AFTER = (50, 200, 430)  # closed bins of an epoch of 720 bins
WINDOW = 24


def streams(horizon: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield true counts of five kinds of streams, from a seed."""
    rng, hours = np.random.default_rng(1), np.arange(horizon) % 24
    sparse = rng.poisson(0.05, horizon)
    yield "sparse: 1 event in 20 bins", sparse
    yield "bursts: 50 events in 1 of 50 bins", (rng.random(horizon) < 0.02) * rng.poisson(50, horizon)
    yield "30 a bin, sparse from half on", np.where(2 * np.arange(horizon) < horizon, 30, 0) + sparse
    day = np.where(hours < 5, 0.2, 45 + 25 * np.sin(2 * np.pi * hours / 24))
    yield "hours: 45 by day, 0.2 by night", rng.poisson(day)
    yield "dense: 1,000 a bin", rng.poisson(1000, horizon)


def live_ways(design: TreeDesign, bins: int) -> dict[str, Callable[[FloatArray], FloatArray]]:
    """Return the running counts that are served for the first bins of an epoch, by method."""
    rising = 1.0 / published_prefix_variances(design)[:bins]
    own = []
    for level, variances in zip(design.shape.levels, design.node_variances(), strict=True):
        here = variances[: -(-bins // design.shape.widths[level])].copy()
        if bins < design.horizon:
            here[design.shape.completed_count(bins, level) :] = np.inf
        own.append(here)

    def settled(running: FloatArray) -> FloatArray:
        total = float(isotonic(running, rising, lower=0.0)[-1])
        leaves = top_down(np.diff(running, prepend=0.0), total, design.branching, own)
        return np.asarray(np.floor(leaves.cumsum() + 0.5))

    return {
        "unbiased": lambda running: running,
        "isotonic": lambda running: np.floor(isotonic(running, rising, lower=0.0) + 0.5),
        "top_down": settled,
    }


def ways(design: TreeDesign) -> dict[str, Callable[[FloatArray], FloatArray]]:
    """Return the methods; each turns an epoch's unbiased running counts into consistent ones."""
    variances, shape = design.node_variances(), design.shape
    sizes = [-(-design.horizon // shape.widths[1]) * shape.widths[1] // shape.widths[i] for i in shape.levels]

    def subtrees(leaves: FloatArray) -> list[FloatArray]:
        full = np.pad(leaves, (0, sizes[-1] - len(leaves)))
        return [full.reshape(size, -1).sum(axis=1) for size in sizes]

    weights = [np.pad(1.0 / own, (0, size - len(own))) for own, size in zip(variances, sizes, strict=True)]
    weights[-1][design.horizon :] = np.inf

    def whole(leaves: FloatArray) -> FloatArray:
        return np.asarray(np.floor(leaves[: design.horizon].cumsum() + 0.5))

    return live_ways(design, design.horizon) | {
        "non-negative least squares": lambda running: whole(
            nonnegative_least_squares(subtrees(np.diff(running, prepend=0.0)), weights)
        ),
        "subtrees set to zero": lambda running: whole(
            zero_negative_subtrees(subtrees(np.diff(running, prepend=0.0)))[-1]
        ),
    }


def measured(
    design: TreeDesign, counts: NDArray[np.int64], runs: int, bins: int
) -> dict[str, dict[str, float]]:
    """Return the errors of every method over seeded runs, when this many bins are closed."""
    counts = counts[:bins]
    truth = np.concatenate([[0], counts.cumsum()])
    noise = decode_noise(design, draw_epoch_noise(design, SeededNoise(7), runs)) / UNITS_PER_COUNT
    rng = np.random.default_rng(2)
    ends = np.sort(rng.integers(0, bins + 1, (2, 4000)), axis=0)
    found: dict[str, dict[str, float]] = {}
    for name, way in (ways(design) if bins == design.horizon else live_ways(design, bins)).items():
        rows, seconds = [], 0.0
        for run in range(runs):
            start = time.thread_time()
            running = way(truth[1:] + noise[:bins, run])
            seconds += time.thread_time() - start
            error = np.concatenate([[0.0], running]) - truth
            parts = (np.diff(error), error[WINDOW:] - error[:-WINDOW], error[ends[1]] - error[ends[0]])
            rows.append([*((part**2).mean() for part in (*parts, error[1:], error[-1:])), error[-1]])
        *squares, bias = np.mean(rows, axis=0).tolist()
        names = ("bin", "window", "range", "running", "total")
        found[name] = dict(zip(names, np.sqrt(squares).tolist(), strict=True)) | {
            "mean_error_of_total": bias,
            "milliseconds": 1e3 * seconds / runs,
        }
    return found


def main() -> None:
    """Measure and write the result."""
    lines: list[dict[str, Any]] = []
    for horizon, runs in RUNS.items():
        for epsilon in (Fraction(1), Fraction(1, 10)):
            design = plan_tree(horizon, epsilon, release="anticipating")
            for name, counts in streams(horizon):
                for closed in (horizon, *(OPEN_AFTER if horizon == 720 else ())):
                    print(f"{closed:,} of {horizon:,} bins, epsilon {epsilon}, {name}")
                    about = {"bins": horizon, "closed": closed, "epsilon": float(epsilon), "stream": name}
                    for way, errors in measured(design, counts, runs, closed).items():
                        shown = "".join(f"{key} {value:9.2f}  " for key, value in errors.items())
                        print(f"  {way:28}{shown}")
                        lines.append(about | {"way": way} | errors)
    RESULTS.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
