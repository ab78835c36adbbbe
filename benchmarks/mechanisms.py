"""Mechanisms on a line: error on the papers' histograms, time per release, and growth of time with the bins.

    python -m benchmarks.mechanisms            errors (needs DPHIST_DATA) and times; JSON under results/
    python -m benchmarks.mechanisms --times    times only; the last errors stay

Times are processor times, so that other work on the machine does not count. They leave out the drawing of
noise, which is replaced by zeros; whole releases with noise are measured beside them.
Times are also given as ratios to ``identity`` on the same counts in the same process.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.published import YARDSTICKS
from dphist.mechanisms import names, release
from dphist.mechanisms.ranges import range_sums, spread_ranges
from dphist.noise import NoiseSource, Scale, SeededNoise, SystemNoise
from research import datasets

RESULTS = Path(__file__).parent / "results" / "mechanisms.json"
EPSILONS = (0.01, 0.1, 1.0)
TRIALS = 30
FEWER_TRIALS = {"p_hp": 10, "efpa": 10, "mwem": 4, "structure_first": 4}
MEASURED = (
    *(
        "identity",
        "h",
        "h_bar",
        "h_bar_nonnegative",
        "hb",
        "privelet",
        "greedy_h",
        "hat_tree",
        "dawa",
        "adaptive_tree",
    ),
    *("partition_laplace", "partition_uniform", "partition_geometric"),
    *("p_hp", "efpa", "mwem", "structure_first"),
)
# Table 2 of the paper: error over DAWA's, least and most over the histograms, at epsilon 0.1.
PAPER_TABLE_2 = {
    "identity": (2.00, 20.85),
    "privelet": (0.98, 10.20),
    "mwem": (2.54, 22.54),
    "efpa": (3.84, 41.09),
    "p_hp": (1.81, 31.41),
    "structure_first": (0.82, 8.32),
}
GROWTH = {
    "h_bar": 20,
    "hb": 20,
    "privelet": 20,
    "greedy_h": 20,
    "dawa": 17,
    "hat_tree": 16,
    "adaptive_tree": 16,
}
DRAWING = ("dawa", "greedy_h", "structure_first", "h_bar", "privelet")
DRAWN_GOALS = (
    *(("dawa", "sparse", 0.02), ("dawa", "dense", 0.6), ("greedy_h", "dense", 0.5)),
    *(("structure_first", "dense", 1.0), ("h_bar", "large", 0.1), ("privelet", "large", 0.1)),
)
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Errors = dict[str, dict[str, float]]


class NoNoise(SeededNoise):
    """Noise that is always zero, to time everything else."""

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Counts:
        """Return zeros."""
        return np.zeros(shape, dtype=np.int64)


NO_NOISE = NoNoise(0)


def mean_error(
    counts: Counts, workload: Counts, answer: Callable[[int], Floats], trials: int = TRIALS
) -> tuple[float, float]:
    """Return the mean absolute error per query over the trials, and its standard error."""
    truth = range_sums(counts.astype(float), workload)
    errors = [float(np.abs(answer(seed) - truth).mean()) for seed in range(trials)]
    return statistics.fmean(errors), statistics.stdev(errors) / trials**0.5


def errors() -> dict[str, dict[str, Errors]]:
    """Return the errors of each mechanism and of published code, by histogram and epsilon."""
    workload = datasets.workload("ranges_n4096_m2000")
    table: dict[str, dict[str, Errors]] = {}
    for epsilon in EPSILONS:
        row: dict[str, Errors] = {}
        for dataset in datasets.ONE_DIMENSIONAL:
            counts = datasets.counts(dataset)
            answers = {name: partial(released, name, counts, epsilon, workload) for name in MEASURED}
            answers["dawa merged"] = partial(released, "dawa", counts, epsilon, workload, merge=True)
            answers |= {
                f"published {name}": partial(_published, name, counts, epsilon, workload)
                for name in YARDSTICKS
            }
            measured = {
                name: mean_error(counts, workload, answer, FEWER_TRIALS.get(name.split()[-1], TRIALS))
                for name, answer in answers.items()
            }
            row[dataset] = {
                name: {"mean": mean, "standard_error": error} for name, (mean, error) in measured.items()
            }
        table[str(epsilon)] = row
        print(f"errors at epsilon {epsilon} measured", flush=True)
    return table


def released(
    name: str, counts: Counts, epsilon: float, workload: Counts, seed: int, **options: Any
) -> Floats:
    """Return the answers of one release to a workload."""
    return release(name, counts, epsilon, workload, SeededNoise(seed), **options).answer(workload)


def _published(name: str, counts: Counts, epsilon: float, workload: Counts, seed: int) -> Floats:
    return range_sums(YARDSTICKS[name](counts, epsilon, workload, seed), workload)


def ratios(table: dict[str, dict[str, Errors]], to: str) -> dict[str, dict[str, list[float]]]:
    """Return [smallest, largest, mean] over histograms of each error divided by one mechanism's error.

    The paper's Table 2 has the same ratios.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for epsilon, row in table.items():
        per_name = {
            name: [cells[name]["mean"] / cells[to]["mean"] for cells in row.values()]
            for name in next(iter(row.values()))
        }
        found[epsilon] = {
            name: [min(values), max(values), statistics.fmean(values)] for name, values in per_name.items()
        }
    return found


def to_published(table: dict[str, dict[str, Errors]], name: str, yardstick: str) -> dict[str, float]:
    """Compare a mechanism's error with a published implementation's: mean, worst, cases within 1.05.

    ``within_1.05_by_the_trials`` also counts cases above 1.05 by less than two standard errors of the trials.
    """
    cases = [
        (cells[name], cells[f"published {yardstick}"]) for row in table.values() for cells in row.values()
    ]
    found = [own["mean"] / theirs["mean"] for own, theirs in cases]
    surely_above = sum(
        own["mean"] - 1.05 * theirs["mean"]
        > 2 * math.hypot(own["standard_error"], 1.05 * theirs["standard_error"])
        for own, theirs in cases
    )
    return {
        "mean": statistics.fmean(found),
        "worst": max(found),
        "within_1.05": sum(ratio <= 1.05 for ratio in found),
        "within_1.05_by_the_trials": len(found) - surely_above,
        "cases": len(found),
    }


def seconds(
    compared: tuple[str, ...],
    counts: Counts,
    workload: Counts,
    repeats: int = 7,
    noise: NoiseSource = NO_NOISE,
) -> list[float]:
    """Return each mechanism's least time of a release, measured in turns; by default without noise."""
    least = [float("inf")] * len(compared)
    for _ in range(repeats):
        for place, name in enumerate(compared):
            begin = time.process_time()
            release(name, counts, 0.1, workload, noise)
            least[place] = min(least[place], time.process_time() - begin)
    return least


def growth() -> dict[str, dict[str, float]]:
    """Return seconds by number of bins on counts with many distinct values, and the exponent of growth."""
    table = {}
    for name, largest in GROWTH.items():
        times = {}
        for power in range(12, largest + 1, 5 if largest == 17 else 4):
            counts = np.random.default_rng(power).poisson(50, 1 << power)
            times[f"2^{power}"] = seconds((name,), counts, spread_ranges((1 << power,)), repeats=4)[0]
        spread = [*times.values()]
        exponent = float(np.log2(spread[-1] / spread[0]) / (largest - 12))
        table[name] = times | {"exponent": exponent}
    return table


def kinds() -> dict[str, Counts]:
    """Return the counts of 4096 bins on which times are measured."""
    sparse = np.zeros(4096, dtype=np.int64)
    sparse[::137] = 10_000
    dense = np.random.default_rng(1).integers(
        0, 10**6, 4096
    )  # no two neighbours are alike, so each bin is a bucket
    return {"sparse": sparse, "dense": dense}


def drawing() -> dict[str, dict[str, float]]:
    """Return seconds of whole releases, with seeded noise (as published code draws it) and exact noise."""
    table: dict[str, dict[str, float]] = {}
    large = {"large": np.random.default_rng(20).poisson(50, 1 << 20)}
    for name in DRAWING:
        row = table[name] = {}
        for kind, counts in (large if name in ("h_bar", "privelet") else kinds()).items():
            for drawn, noise, repeats in (("seeded", SeededNoise(0), 5), ("system", SystemNoise(), 1)):
                workload = spread_ranges((counts.size,))
                row[f"{kind}_{drawn}"] = seconds((name,), counts, workload, repeats, noise)[0]
    return table


def speeds() -> dict[str, dict[str, float]]:
    """Return seconds and the ratio to ``identity`` at 4096 bins, on sparse and on dense counts."""
    workload = spread_ranges((4096,))
    table: dict[str, dict[str, float]] = {}
    for name in MEASURED:
        row = table[name] = {}
        for kind, counts in kinds().items():
            base, own = seconds(("identity", name), counts, workload)
            row |= {f"{kind}_seconds": own, f"{kind}_ratio": own / base}
    return table


def rounded(value: Any) -> Any:
    """Return the same structure, with every number rounded to four digits."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return float(f"{value:.4g}")


def goals(found: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return (goal, upper limit, measured value) for each goal."""
    now, growing = found["seconds_at_4096"], found["seconds_by_bins"]
    rows = [
        ("DAWA, 30 buckets, seconds", 0.02, now["dawa"]["sparse_seconds"]),
        ("DAWA, a bucket for each bin, seconds", 0.6, now["dawa"]["dense_seconds"]),
        ("GreedyH, seconds", 0.5, now["greedy_h"]["dense_seconds"]),
        ("StructureFirst, seconds", 1.0, now["structure_first"]["dense_seconds"]),
        ("H-bar at 2^20, seconds", 0.1, growing["h_bar"]["2^20"]),
        ("Privelet at 2^20, seconds", 0.1, growing["privelet"]["2^20"]),
        ("DAWA grows as n to the power", 1.1, growing["dawa"]["exponent"]),
    ]
    drawn = found["seconds_with_noise"]
    rows += [
        (f"{name}, {kind}, with {noise} noise, seconds", wanted, drawn[name][f"{kind}_{noise}"])
        for name, kind, wanted in DRAWN_GOALS
        for noise in ("seeded", "system")
    ]
    if "mean_absolute_error" in found:
        table = found["mean_absolute_error"]
        cases = [cells for row in table.values() for cells in row.values()]
        over = [cells["adaptive_tree"]["mean"] / cells["dawa"]["mean"] for cells in cases]
        rows += [
            ("adaptive_tree over DAWA, mean", 0.9, statistics.fmean(over)),
            ("adaptive_tree over DAWA, worst", 1.0, max(over)),
        ]
        rows += [
            (f"{name} over published, {what}", 1.05, ratio[what])
            for name, ratio in found["ratio_to_published"].items()
            for what in ("mean", "worst")
        ]
    return rows


def table_2(found: dict[str, Any]) -> list[str]:
    """Return the lines of the paper's Table 2: least and largest ratio to DAWA's error at epsilon 0.1."""
    lines = []
    for name, (least, most) in PAPER_TABLE_2.items():
        theirs, ours = (found[ratio]["0.1"][name] for ratio in ("ratio_to_published_dawa", "ratio_to_dawa"))
        lines.append(
            f"{name:20} paper {least:.3g} / {most:.3g}, over published DAWA {theirs[0]:.3g} / {theirs[1]:.3g}"
            f", over ours {ours[0]:.3g} / {ours[1]:.3g}"
        )
    return lines


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, print the goals beside the measured values, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", action="store_true", help="keep the errors that were measured last")
    kept = json.loads(RESULTS.read_text()) if parser.parse_args(arguments).times else {}
    assert set(MEASURED) <= set(names(1))
    found: dict[str, Any] = kept | {
        "seconds_at_4096": speeds(),
        "seconds_with_noise": drawing(),
        "seconds_by_bins": growth(),
    }
    try:
        table = kept.get("mean_absolute_error") or errors()
        found |= {
            "mean_absolute_error": table,
            "ratio_to_dawa": ratios(table, "dawa"),
            "ratio_to_published_dawa": ratios(table, "published dawa"),
            "ratio_to_published": {
                **{name: to_published(table, name, name) for name in YARDSTICKS},
                "dawa merged": to_published(table, "dawa merged", "dawa"),
                "adaptive_tree over DAWA": to_published(table, "adaptive_tree", "dawa"),
            },
            "paper_table_2": PAPER_TABLE_2,
        }
    except FileNotFoundError as missing:
        print(f"errors not measured: {missing}", file=sys.stderr)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rounded(found), indent=1) + "\n")
    for goal, wanted, measured in goals(found):
        print(f"{goal:50} {wanted:8.3g} {measured:8.3g} {'' if measured <= wanted else 'above'}")
    if "paper_table_2" in found:
        print(*table_2(found), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
