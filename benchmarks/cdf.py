"""CDFs: how much each step of post-processing lowers the error, on delays of flights and generated counts.

    python -m benchmarks.cdf

Every variant gets the same seeded noise. The variants are: cumulative counts from the tree of least error;
the same made non-decreasing; each node refined from below; in addition averaged with N minus the counts that
follow, if N is public; and the closest consistent counts (whole, non-decreasing, in [0, N]) in L1 and in L2.
Errors are means over all thresholds and runs, in events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.delays import DAY, delays
from dphist import SeededNoise, mechanisms
from dphist.arrays import Int64Array
from dphist.cdf import best_tree, tree_of
from dphist.consistency.isotonic import isotonic

RESULTS = Path(__file__).parent / "results" / "cdf.json"
RUNS = 200
EPSILONS = (0.1, 1.0)
BINS = 256
# Name: the mechanism and its options.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tree": ("cdf_tree", {}),
    "monotone": ("cdf_tree", {}),
    "from below": ("cdf_refined", {}),
    "and N minus suffix": ("cdf_refined", {}),
    "and trellis, L1": ("cdf_refined", {"consistent": "absolute"}),
    "and trellis, L2": ("cdf_refined", {"consistent": "squared"}),
    "tree and trellis, L1": ("cdf_tree", {"consistent": "absolute"}),
    "tree and trellis, L2": ("cdf_tree", {"consistent": "squared"}),
}
# Only the refinement from below: without a public N there is no total from which to subtract.
PRIVATE_TOTAL = ("from below",)


class Line(NamedTuple):
    """The errors of one variant, and the errors of the plain tree under the same relation."""

    histogram: str
    epsilon: float
    variant: str
    l1: float
    l2: float
    l1_of_tree: float
    l2_of_tree: float


def histograms() -> Iterator[tuple[str, Int64Array]]:
    """Yield the counts: a day of one airport's delays, all three days, and two generated shapes."""
    by_airport = delays()
    yield "a day of JFK's delays", _stretched(by_airport["JFK"][slice(*DAY)].sum(axis=0))
    yield "three days, all airports", _stretched(sum(one.sum(axis=0) for one in by_airport.values()))
    generator = np.random.default_rng(5)
    yield "uniform, 100,000", generator.multinomial(100_000, np.full(BINS, 1 / BINS))
    steep = 0.97 ** np.arange(BINS)
    yield "steep, 100,000", generator.multinomial(100_000, steep / steep.sum())


def _stretched(counts: Any) -> Int64Array:
    """Return the counts with each bucket of ten minutes divided evenly into four narrower buckets."""
    parts = np.repeat(np.asarray(counts, np.int64) // 4, 4)
    parts[::4] += np.asarray(counts, np.int64) % 4
    return parts


def errors(
    counts: Int64Array, epsilon: float, variant: str, neighbours: str, runs: int
) -> tuple[float, float]:
    """Return the mean absolute and the root mean squared error of a cumulative count."""
    name, options = VARIANTS[variant]
    exact, absolute, squared = counts.cumsum(), 0.0, 0.0
    for seed in range(runs):
        released = mechanisms.release(
            name, counts, epsilon, noise=SeededNoise(seed), neighbours=neighbours, **options
        )
        estimated = released.counts.cumsum()
        error = (isotonic(estimated) if variant == "monotone" else estimated) - exact
        absolute += float(np.abs(error).mean()) / runs
        squared += float((error**2).mean()) / runs
    return absolute, squared**0.5


def lines(runs: int = RUNS) -> Iterator[Line]:
    """Yield every variant on every histogram."""
    for name, counts in histograms():
        for epsilon in EPSILONS:
            plain = {
                relation: errors(counts, epsilon, "tree", relation, runs)
                for relation in ("substitute", "add_remove")
            }
            for variant in VARIANTS:
                relation = "add_remove" if variant in PRIVATE_TOTAL else "substitute"
                l1, l2 = errors(counts, epsilon, variant, relation, runs)
                yield Line(name, epsilon, variant, l1, l2, *plain[relation])


def trees() -> list[dict[str, Any]]:
    """Return how far the best tree's error is below that of the paper's tree with 17 children per node.

    With N public.
    """
    found = []
    for bins in (100, 256, 1_000, 4_096, 10_000, 2**16, 2**20):
        height = next(h for h in range(1, 9) if 17**h >= bins)
        best, equal = best_tree(bins), tree_of(bins, (17,) * height, budgets="equal")
        found.append(
            {
                "bins": bins,
                "branching": best.branching,
                "rms_error": (best.squared_error(1.0) / bins) ** 0.5,
                "of_equal_17": (best.squared_error(1.0) / equal.squared_error(1.0)) ** 0.5,
            }
        )
    return found


def main() -> None:
    """Measure and write the result."""
    found = list(lines())
    for line in found:
        print(
            f"{line.histogram:26} epsilon {line.epsilon:<4} {line.variant:22} L1 {line.l1:9.2f} "
            f"({line.l1 / line.l1_of_tree:6.3f} of the tree's)  L2 {line.l2:9.2f} "
            f"({line.l2 / line.l2_of_tree:6.3f})"
        )
    shapes = trees()
    for shape in shapes:
        print(shape)
    RESULTS.write_text(
        json.dumps({"post-processing": [line._asdict() for line in found], "trees": shapes}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
