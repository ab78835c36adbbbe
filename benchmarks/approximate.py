"""Approximate counts of people: the error stated and measured, coverage, pure counts beside them, and speed.

Each column is a run of its own, with its own noise: the real counter, the real estimates. A person has one
event in each of k keys. The bound is that of the square root of the prefix sums, which needs all past counts.

Run with ``python -m benchmarks.approximate``; results go to ``benchmarks/results/approximate.json``. Some
ten minutes; ``--quick`` leaves out 2^20 bins and writes nothing; ``--row 16 10`` measures the errors of
2^16 bins and 10 keys again, and keeps all other results.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from dphist import SystemNoise, plan_tree
from dphist.arrays import FloatArray
from dphist.caps import Caps
from dphist.toeplitz import RunningCounts, ToeplitzCounter, ToeplitzDesign, plan_toeplitz
from dphist.toeplitz.estimate import half_widths, mean_squared_error

RESULTS = Path(__file__).parent / "results" / "approximate.json"
EPSILON, DELTA = 1, "1e-6"
# At least 200 runs of each; short epochs get more, so that the measured error is known to one percent.
RUNS = {10: 20_000, 16: 4_000, 20: 200}
COLUMNS = {10: 20_000, 16: 1_000, 20: 200}  # of one pass
CELLS_AT_ONCE = 2**20
GOALS = {10: 168, 16: 344, 20: 497}
SQUARE_ROOT = {10: 172.6, 16: 351.0, 20: 504.7}


def design_of(bits: int, keys: int, width: int) -> ToeplitzDesign:
    """Return the design for one event in each of some keys, over 2^bits bins."""
    return plan_toeplitz(2**bits, EPSILON, DELTA, Caps(None, keys, 1), width=width)


def measured(design: ToeplitzDesign, runs: int) -> dict[str, float]:
    """Return error and coverage of all running counts, with standard errors; a column of a pass is a run."""
    passes = [one_pass(design, seed) for seed in range(runs // design.width)]
    squares, covered = (np.concatenate(facts) / design.horizon for facts in zip(*passes, strict=True))
    root = len(squares) ** 0.5
    return {
        "measured": round(float(squares.mean()), 2),
        "measured_standard_error": round(float(squares.std()) / root, 2),
        "coverage_of_95": round(float(covered.mean()), 4),
        "coverage_standard_error": round(float(covered.std()) / root, 4),
    }


def one_pass(design: ToeplitzDesign, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return of each column the sum of squared errors over all bins, and how many intervals held."""
    counter, running, noise = ToeplitzCounter(design), RunningCounts(design), SystemNoise()
    generator, step = np.random.default_rng(seed), float(design.step)
    truth = np.zeros(design.width, np.int64)
    squares, covered = np.zeros(design.width), np.zeros(design.width)
    at_once = CELLS_AT_ONCE // design.width
    for start in range(0, design.horizon, at_once):
        stop = min(start + at_once, design.horizon)
        counts = generator.integers(0, 5, (stop - start, design.width))
        answers = running.append(counter.close(counts, noise)) * step
        totals = truth + counts.cumsum(axis=0)
        truth = totals[-1]
        errors = answers - totals
        squares += (errors**2).sum(axis=0)
        widths = half_widths(design, 0, np.arange(start + 1, stop + 1), 0.95)
        covered += (np.abs(errors) <= widths[:, np.newaxis]).sum(axis=0)
    return squares, covered


def error_row(bits: int, keys: int) -> dict[str, float]:
    """Return one row of the table: errors are mean squared errors of running counts."""
    design = design_of(bits, keys, COLUMNS[bits])
    pure = {
        release: keys**2
        * plan_tree(2**bits, EPSILON, workload="prefix", release=release).mean_squared_error()
        for release in ("anticipating", "causal")
    }
    return {
        "bits": bits,
        "keys": keys,
        "buffers": design.strategy.buffers,
        "runs": RUNS[bits],
        "stated": round(mean_squared_error(design), 2),
        **measured(design, RUNS[bits]),
        "goal": GOALS[bits] * keys,
        "square_root": round(SQUARE_ROOT[bits] * keys, 1),
        "pure_anticipating": round(pure["anticipating"], 1),
        "pure_causal": round(pure["causal"], 1),
    }


def speed_row(width: int) -> dict[str, float]:
    """Return how many bins and columns a second the counter closes on one core, and the estimates decode."""
    design = design_of(16, 1, width)
    bins = max(8, min(4096, 2**20 // width))
    counts, noise = np.ones((bins, width), np.int64), SystemNoise()
    ToeplitzCounter(design).close(counts[:1], noise)
    start = time.process_time()
    released = ToeplitzCounter(design).close(counts, noise)
    closed = time.process_time()
    RunningCounts(design).append(released)
    decoded = time.process_time()
    cells = bins * width
    return {
        "columns": width,
        "million_column_bins_per_s_closed": round(1e-6 * cells / (closed - start), 3),
        "million_column_bins_per_s_decoded": round(1e-6 * cells / (decoded - closed), 3),
    }


def again(bits: int, keys: int) -> None:
    """Measure the errors of one row again, and store them among the other results."""
    row, results = error_row(bits, keys), json.loads(RESULTS.read_text())
    print(row)
    same = [(one["bits"], one["keys"]) for one in results["errors"]].index((bits, keys))
    results["errors"][same] = row
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    """Measure, print the tables and store them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out 2^20 bins; write nothing")
    parser.add_argument("--row", type=int, nargs=2, metavar=("BITS", "KEYS"), help="measure one row again")
    chosen = parser.parse_known_args()[0]
    if chosen.row:
        again(*chosen.row)
    else:
        everything(chosen.quick)


def everything(quick: bool) -> None:
    """Measure all rows, and the speed."""
    errors = []
    for bits in (10, 16) if quick else (10, 16, 20):
        for keys in (1, 10):
            errors.append(error_row(bits, keys))
            print(" ".join(f"{name}={value}" for name, value in errors[-1].items()), flush=True)
    speed = [speed_row(width) for width in (1, 100, 10_000)]
    for row in speed:
        print(" ".join(f"{name}={value}" for name, value in row.items()))
    if not quick:
        RESULTS.write_text(json.dumps({"errors": errors, "speed": speed}, indent=1) + "\n")


if __name__ == "__main__":
    main()
