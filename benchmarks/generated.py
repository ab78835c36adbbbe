"""Generated histograms on which ``adaptive_tree``'s defaults were set, so the papers' can test them.

    python -m benchmarks.generated             errors compared with DAWA's and HB's; about a minute

Seven shapes of three sizes at three epsilons. None imitates one of the papers' histograms.
"""

from __future__ import annotations

import json
import math
import statistics
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.mechanisms import EPSILONS, RESULTS, mean_error, released, rounded
from dphist.mechanisms.ranges import spread_ranges

BINS = 4096
EVENTS = (10_000, 300_000, 20_000_000)
COMPARED = ("adaptive_tree", "dawa", "hb")
TRIALS = 10


def generated(events: int, seed: int = 0) -> dict[str, NDArray[np.int64]]:
    """Return one histogram of each shape, with this many events."""
    draw = np.random.default_rng(seed)
    place = np.arange(BINS)
    few, many = np.zeros(BINS), np.zeros(BINS)
    few[draw.choice(BINS, 40, replace=False)] = draw.pareto(1.0, 40) + 0.05
    many[draw.choice(BINS // 3, 600, replace=False)] = draw.pareto(1.2, 600) + 0.05
    shapes = {
        "spikes": few,
        "many spikes": many,
        "smooth": np.exp(-(((place - 900) / 300) ** 2)) + 0.5 * np.exp(-(((place - 2600) / 150) ** 2)),
        "steps": np.repeat(draw.gamma(0.3, 1, 16), BINS // 16),
        "zipf": 1 / (1 + place) ** 1.1,
        "rough": (1 + np.sin(place / 60)) * (1 + draw.gamma(1, 1, BINS)),
        "round numbers": np.exp(-place / 700) * (1 + 30 * (place % 50 == 0)),
    }
    return {name: draw.multinomial(events, shape / shape.sum()) for name, shape in shapes.items()}


def main() -> None:
    """Measure, print each ratio to DAWA and to HB, write the JSON."""
    workload = spread_ranges((BINS,))
    table: dict[str, dict[str, float]] = {}
    for events in EVENTS:
        for name, counts in generated(events).items():
            for epsilon in EPSILONS:
                row = table[f"{name}, {events:,} events, epsilon {epsilon:g}"] = {}
                for mechanism in COMPARED:
                    row[mechanism], _ = mean_error(
                        counts, workload, partial(released, mechanism, counts, epsilon, workload), TRIALS
                    )
                print(" ".join(f"{key} {value:.4g}" for key, value in row.items()), "|", [*table][-1])
    for other in COMPARED[1:]:
        ratios = [row["adaptive_tree"] / row[other] for row in table.values()]
        geometric = math.exp(statistics.fmean(map(math.log, ratios)))
        mean, worst = statistics.fmean(ratios), max(ratios)
        print(f"to {other}: mean {mean:.3f} geometric {geometric:.3f} worst {worst:.2f}")
    RESULTS.with_name("generated.json").write_text(json.dumps(rounded(table), indent=1) + "\n")


if __name__ == "__main__":
    main()
