"""Re:cord-play, an independent auditor, at the one place where trees add noise to exact counts.

Each run records the exact counts of every level and their noisy values in one log. Then it replays a
neighbouring log with the same noisy values. It fails if anything else differs (how often noise is added, at
which scale, in which order; the estimates made from noisy values), or if the exact counts differ by more than
the declared sensitivity. A counter whose sensitivity is declared too small must fail.

The package dp-recorder (github.com/ObliviousAI/dp-recorder, PETS 2026) is on no package index. In an
environment of its own, with its requirements and numpy, scipy, opendp and msgspec:

    PYTHONPATH=.:DP_RECORDER/src python benchmarks/recordplay.py
"""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
from dp_recorder.auditing.audit_primitives import Auditor, audit_spec, ensure_equality
from dp_recorder.auditing.metrics import dist_l1

from dphist import SystemNoise, plan_product, plan_tree
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.tree.counter import TreeCounter
from dphist.tree.design import TreeDesign
from dphist.workloads import Workload

HORIZON, KEYS, BUCKETS, LOGS = 24, 3, 8, 20
UNITS = (("add_remove", 1), ("add_remove", 4), ("substitute", 1))


@audit_spec(  # type: ignore[untyped-decorator]
    kind="discrete_laplace", input_arg="exact", sensitivity_arg="sensitivity", metric_fn=dist_l1
)
def noised(exact: Any, sensitivity: int, scale: str) -> Any:
    """Return the exact counts of the nodes of one level with noise."""
    return exact + SystemNoise().discrete_laplace(Fraction(scale), exact.shape)


def audited(declared: int | None = None) -> Any:
    """Let every tree add its noise in ``noised``. Args: declared, another sensitivity than the design's."""

    def through_the_door(counter: TreeCounter, exact: list[Any]) -> list[Any]:
        sensitivity = declared or counter.design.sensitivity
        scales = counter.design.scales
        return [noised(counts, sensitivity, str(scale)) for counts, scale in zip(exact, scales, strict=True)]

    return patch.object(TreeCounter, "_noised", through_the_door)


def released(design: TreeDesign | ProductDesign, counts: Any) -> None:
    """Close all bins, in steps; everything that the counter returns must follow from noisy values alone."""
    noise = SystemNoise()
    counter: ProductCounter | TreeCounter
    if isinstance(design, ProductDesign):
        counter = ProductCounter(design, noise)
    else:
        counter = TreeCounter(design, noise)
    for start in range(0, HORIZON, 5):
        releases = counter.push_many(counts[start : start + 5])
        ensure_equality(published=releases.published)


def neighbour(counts: Any, neighbours: str, max_events: int, rng: np.random.Generator) -> Any:
    """Return counts with one unit more, or with the places of one unit's events changed."""
    other = counts.copy()
    bin = rng.integers(HORIZON)
    for _ in range(max_events):
        cell = bin, rng.integers(counts.shape[1])
        if neighbours == "substitute":
            filled = np.argwhere(other > 0)
            other[tuple(filled[rng.integers(len(filled))])] -= 1
        other[cell] += 1
    return other


def verdict(
    design: TreeDesign | ProductDesign, cells: int, unit: tuple[str, int], declared: int | None
) -> str:
    """Return "passed", or why the auditor failed, over several pairs of logs."""
    rng = np.random.default_rng(1)
    for _ in range(LOGS):
        counts = rng.integers(0, 9, (HORIZON, cells))
        other = neighbour(counts, *unit, rng)
        auditor = Auditor()
        try:
            with audited(declared):
                with auditor:
                    released(design, counts)
                auditor.set_replay()
                with auditor:
                    released(design, other)
            auditor.validate_records()
        except (AssertionError, RuntimeError) as failure:
            return str(failure).splitlines()[0]
    return "passed"


def main() -> int:
    """Print a line for each design; return 0 if all are as they must be."""
    right = True
    for neighbours, max_events in UNITS:
        asked: Any = {
            "horizon": HORIZON,
            "epsilon": Fraction(1),
            "workload": Workload.of("prefix"),
            "release": "causal",
            "neighbours": neighbours,
            "max_events": max_events,
            "branching": None,
            "shares": None,
        }
        tree, product = plan_tree(**asked), plan_product(**asked, keys=KEYS, buckets=BUCKETS)
        sensitivity = tree.sensitivity
        for name, design, cells in (("a tree", tree, 1), ("keys and values", product, KEYS * BUCKETS)):
            found = verdict(design, cells, (neighbours, max_events), None)
            print(f"{name}, {neighbours}, {max_events} events: {found}")
            right &= found == "passed"
        if sensitivity > 1:
            found = verdict(tree, 1, (neighbours, max_events), sensitivity - 1)
            print(f"  with a sensitivity of {sensitivity - 1} declared: {found}")
            right &= found != "passed"
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
