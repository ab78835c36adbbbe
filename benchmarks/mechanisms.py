"""Mechanisms on a line: error on the papers' histograms, time per release, and how time grows with the bins.

    python -m benchmarks.mechanisms            errors (needs DPHIST_DATA) and times; JSON under results/

Times leave out the drawing of noise (system noise costs 7 microseconds a draw wherever it is drawn): a source
of zeros stands in for it. They are stated as ratios to ``identity`` on the same counts in the same process.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist import datasets
from dphist.mechanisms import names, release
from dphist.mechanisms.dawa.deviations import DeviationIndex
from dphist.mechanisms.dawa.expand import bucket_counts, bucket_positions, uniform_expansion
from dphist.mechanisms.dawa.partition import interval_lengths, least_cost_partition
from dphist.mechanisms.dawa.query_tree import LATTICE, greedy_tree
from dphist.mechanisms.ranges import range_sums, spread_ranges
from dphist.mechanisms.weighted_tree import least_squares
from dphist.noise import Scale, SeededNoise

RESULTS = Path(__file__).parent / "results" / "mechanisms.json"
EPSILONS = (0.01, 0.1, 1.0)
TRIALS = 10
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
)
GROWTH = {"h_bar": 20, "hb": 20, "privelet": 20, "greedy_h": 20, "dawa": 17}
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Errors = dict[str, dict[str, float]]


class NoNoise(SeededNoise):
    """Zeros in place of noise, to time everything else."""

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Counts:
        """Return zeros."""
        return np.zeros(shape, dtype=np.int64)


def published_dawa(counts: Counts, epsilon: float, workload: Counts, seed: int) -> Floats:
    """DAWA with a first stage as in its authors' code, without theorem 2's guarantee: a yardstick only.

    Written again from reading that code, not their program: half of the scale that the theorem's remark asks
    for, none on single bins, noisy costs clipped at zero; then this library's greedy tree, which has less
    variance than theirs.
    """
    rng = np.random.default_rng(seed)
    first, second = 0.25 * epsilon, 0.75 * epsilon
    size, lattice = counts.size, 12
    index = DeviationIndex(counts, lattice)
    costs = []
    for length in interval_lengths(size, all_lengths=False):
        cost = index.of_length(length) / 2**lattice + 1 / second
        if length > 1:
            cost += rng.laplace(0, (2 - 1 / length - 1 / size) / first, cost.size)
        costs.append((length, np.maximum(cost, 0.0)))
    edges = least_cost_partition(size, costs)
    starts, ends = bucket_positions(workload.T, edges)
    tree, parts = greedy_tree(edges.size - 1, starts, ends)
    noisy = [
        total + rng.laplace(0, 1 / second, total.size) * LATTICE / np.maximum(part, 1)
        for total, part in zip(tree.totals(bucket_counts(counts, edges)), parts, strict=True)
    ]
    weights = [part.astype(np.float64) ** 2 for part in parts]
    return uniform_expansion(least_squares(tree, noisy, weights)[0], edges)


def mean_error(counts: Counts, workload: Counts, answer: Callable[[int], Floats]) -> tuple[float, float]:
    """Return the mean absolute error a query over the trials, and its standard error."""
    truth = range_sums(counts.astype(float), workload)
    errors = [float(np.abs(answer(seed) - truth).mean()) for seed in range(TRIALS)]
    return statistics.fmean(errors), statistics.stdev(errors) / TRIALS**0.5


def errors() -> dict[str, dict[str, Errors]]:
    """Measure each mechanism on each histogram at each epsilon, beside the published first stage."""
    workload = datasets.workload("ranges_n4096_m2000")
    table: dict[str, dict[str, Errors]] = {}
    for epsilon in EPSILONS:
        row: dict[str, Errors] = {}
        for dataset in datasets.ONE_DIMENSIONAL:
            counts = datasets.counts(dataset)

            def released(name: str, counts: Counts = counts, epsilon: float = epsilon) -> tuple[float, float]:
                return mean_error(
                    counts,
                    workload,
                    lambda seed: release(name, counts, epsilon, workload, SeededNoise(seed)).answer(workload),
                )

            def published(seed: int, counts: Counts = counts, epsilon: float = epsilon) -> Floats:
                return range_sums(published_dawa(counts, epsilon, workload, seed), workload)

            measured = {name: released(name) for name in MEASURED}
            measured["dawa as published (not private)"] = mean_error(counts, workload, published)
            row[dataset] = {
                name: {"mean": mean, "standard_error": error} for name, (mean, error) in measured.items()
            }
        table[str(epsilon)] = row
    return table


def ratios_to_dawa(table: dict[str, dict[str, Errors]]) -> dict[str, dict[str, list[float]]]:
    """Return [smallest, largest] over histograms of each error over DAWA's, as the paper's Table 2."""
    ratios: dict[str, dict[str, list[float]]] = {}
    for epsilon, row in table.items():
        per_name = {
            name: [cells[name]["mean"] / cells["dawa"]["mean"] for cells in row.values()]
            for name in next(iter(row.values()))
        }
        ratios[epsilon] = {name: [min(values), max(values)] for name, values in per_name.items()}
    return ratios


def seconds(compared: tuple[str, ...], counts: Counts, workload: Counts, repeats: int = 7) -> list[float]:
    """Return the least time of a release of each mechanism, taken in turns, without drawing noise."""
    least = [float("inf")] * len(compared)
    for _ in range(repeats):
        for place, name in enumerate(compared):
            begin = time.perf_counter()
            release(name, counts, 0.1, workload, NoNoise(0))
            least[place] = min(least[place], time.perf_counter() - begin)
    return least


def growth() -> dict[str, dict[str, float]]:
    """Return seconds by number of bins, on counts with many distinct values, and the exponent of growth."""
    table = {}
    for name, largest in GROWTH.items():
        times = {}
        for power in range(12, largest + 1, 4 if largest == 20 else 5):
            counts = np.random.default_rng(power).poisson(50, 1 << power)
            times[f"2^{power}"] = seconds((name,), counts, spread_ranges((1 << power,)), repeats=4)[0]
        spread = [*times.values()]
        exponent = float(np.log2(spread[-1] / spread[0]) / (largest - 12))
        table[name] = times | {"exponent": exponent}
    return table


def speeds() -> dict[str, dict[str, float]]:
    """Return seconds and the ratio to ``identity`` at 4096 bins, on sparse and on dense counts."""
    workload = spread_ranges((4096,))
    sparse = np.zeros(4096, dtype=np.int64)
    sparse[::137] = 10_000
    dense = np.random.default_rng(1).integers(0, 10**6, 4096)  # nothing is uniform: a bucket for each bin
    table: dict[str, dict[str, float]] = {}
    for name in MEASURED:
        row = table[name] = {}
        for kind, counts in (("sparse", sparse), ("dense", dense)):
            base, own = seconds(("identity", name), counts, workload)
            row |= {f"{kind}_seconds": own, f"{kind}_ratio": own / base}
    return table


def rounded(value: Any) -> Any:
    """Keep four digits of every number, however deep."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.4g}")


def main() -> None:
    """Measure, print the tables, write the JSON."""
    assert set(MEASURED) <= set(names(1))
    found: dict[str, object] = {"seconds_at_4096": speeds(), "seconds_by_bins": growth()}
    try:
        table = errors()
        found |= {"mean_absolute_error": table, "ratio_to_dawa": ratios_to_dawa(table)}
    except FileNotFoundError as missing:
        print(f"errors not measured: {missing}", file=sys.stderr)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rounded(found), indent=1) + "\n")
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
