"""Accuracy of the running count: mean squared error over t = 1..T at epsilon 1, predicted and measured.

``python -m benchmarks.accuracy`` takes a quarter of an hour, with ``--quick`` a minute. Results go to
``benchmarks/results/accuracy.json``. Predictions are exact for the discrete noise that the service draws.
``continuous`` is the error at a tiny epsilon, times epsilon squared. The papers state errors in this form.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import opendp.prelude as dp

from dphist import SeededNoise, TreeDesign, plan_tree
from dphist.planning.reference import HonakerCounter, KaryCounter, SubtractionCounter
from dphist.tree.decoder import decode_noise, draw_epoch_noise
from dphist.tree.shape import TreeShape

RESULTS = Path(__file__).parent / "results"
RUNS = {2**10: 1000, 2**16: 1000, 2**20: 100}
QUICK_RUNS = {2**10: 200, 2**16: 100}
_CELLS = 2**22
_SMALL = Fraction(1, 1000)


class Mechanism(NamedTuple):
    """A running count to compare: a function for its exact error, and one for seeded errors.

    ``predict`` takes an epsilon. ``simulate`` takes noise and a number of runs, and returns errors of shape
    (horizon, runs).
    """

    name: str
    tree: str
    predict: Callable[[Fraction], float]
    simulate: Callable[[SeededNoise, int], np.ndarray]
    seconds_to_plan: float


def mechanisms(horizon: int) -> Iterator[Mechanism]:
    """Yield the mechanisms of the literature, then ours, each with the best parameters for the horizon."""

    def counter(name: str, build: Callable[[Fraction, SeededNoise, int], KaryCounter]) -> Mechanism:
        nothing = SeededNoise(0)
        return Mechanism(
            name,
            f"k = {build(Fraction(1), nothing, 0).branching}",
            lambda epsilon: build(epsilon, nothing, 0).mean_squared_error(),
            lambda noise, runs: build(Fraction(1), noise, runs).errors,
            0.0,
        )

    for name, kind, factors in (
        ("flat", KaryCounter, [max(2, horizon)]),
        ("binary (Chan)", KaryCounter, [2]),
        ("Honaker online", HonakerCounter, [2]),
        ("plain k-ary", KaryCounter, range(8, 25)),
        ("k-ary with subtraction", SubtractionCounter, range(9, 26, 2)),
    ):
        k = min(factors, key=lambda k: kind(horizon, 1, k, SeededNoise(0), 0).mean_squared_error())
        yield counter(
            name,
            lambda epsilon, noise, runs, kind=kind, k=k: kind(horizon, epsilon, k, noise, runs),  # type: ignore[misc]
        )
    yield _opendp(horizon)
    for release in ("causal", "anticipating"):
        yield _ours(release, lambda: plan_tree(horizon, 1, release=release))  # noqa: B023


def _opendp(horizon: int) -> Mechanism:
    """Return OpenDP's consistent b-ary tree: a measured root, equal shares, answers after the epoch's end.

    The branching is the best one of which the horizon is a power, so that no padding is needed.
    """
    fitting = {k: h for h in range(1, 6) for k in range(2, 2**10 + 1) if k**h == horizon}
    designs = [
        # A measured root is the only node in use of a level with room for two.
        TreeDesign(
            TreeShape((2, *(k,) * height)),
            horizon,
            Fraction(1),
            (Fraction(1, height + 1),) * (height + 1),
            release="anticipating",
        )
        for k, height in fitting.items()
    ]
    design = min(designs, key=TreeDesign.mean_squared_error)
    mechanism = _ours("OpenDP's b-ary tree, offline", lambda: design)
    _agrees_with_opendp(design)
    return mechanism._replace(tree=f"k = {design.branching[-1]}")


def _agrees_with_opendp(design: TreeDesign) -> None:
    """Check our decoder against OpenDP's on one draw of the noise."""
    dp.enable_features("contrib")
    noise = draw_epoch_noise(design, SeededNoise(1))
    theirs = dp.t.make_consistent_b_ary_tree(design.branching[-1], TIA="i32", TOA="f64")
    leaves = theirs([int(value) for level in noise for value in level[:, 0]])
    ours = decode_noise(design, noise)[:, 0] / 2**16
    np.testing.assert_allclose(np.cumsum(leaves), ours, atol=0.05)


def _ours(name: str, plan: Callable[[], TreeDesign]) -> Mechanism:
    start = time.perf_counter()
    design = plan()
    return Mechanism(
        name,
        "-".join(map(str, design.branching)),
        lambda epsilon: dataclasses.replace(design, epsilon=epsilon).mean_squared_error(),
        lambda noise, runs: decode_noise(design, draw_epoch_noise(design, noise, runs)) / 2**16,
        time.perf_counter() - start,
    )


def measured(mechanism: Mechanism, horizon: int, runs: int) -> tuple[float, float]:
    """Return the mean squared error over seeded runs, and its standard error."""
    noise, errors = SeededNoise(horizon), []
    chunk = max(1, _CELLS // horizon)
    for start in range(0, runs, chunk):
        drawn = mechanism.simulate(noise, min(chunk, runs - start))
        errors.append((drawn**2).mean(axis=0))
    each = np.concatenate(errors)
    return float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5)


def row(mechanism: Mechanism, horizon: int, runs: int) -> dict[str, Any]:
    """Return one line of the table."""
    mean, stderr = measured(mechanism, horizon, runs)
    predicted = mechanism.predict(Fraction(1))
    return {
        "horizon": horizon,
        "mechanism": mechanism.name,
        "tree": mechanism.tree,
        "continuous": round(mechanism.predict(_SMALL) * float(_SMALL) ** 2, 4),
        "predicted": round(predicted, 4),
        "measured": round(mean, 4),
        "standard_error": round(stderr, 4),
        "standard_errors_off": round((mean - predicted) / stderr, 2),
        "runs": runs,
        "seconds_to_plan": round(mechanism.seconds_to_plan, 2),
    }


def main(arguments: Sequence[str] = ("--quick",)) -> None:
    """Measure, print the table line by line, and write it to a file. Args: quick, measure less."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs, horizons up to 2^16 only")
    quick = parser.parse_args(arguments).quick
    print(f"{'T':>8} {'mechanism':30} {'tree':22} {'continuous':>11} {'predicted':>11} {'measured':>11}  off")
    rows = []
    for horizon, runs in (QUICK_RUNS if quick else RUNS).items():
        for mechanism in mechanisms(horizon):
            rows.append(row(mechanism, horizon, runs))
            print(
                "{horizon:8} {mechanism:30} {tree:22} {continuous:11.2f} {predicted:11.2f} {measured:11.2f} "
                "{standard_errors_off:+5.1f}".format(**rows[-1]),
                flush=True,
            )
    results = {"python": platform.python_version(), "numpy": np.__version__, "quick": quick, "rows": rows}
    RESULTS.mkdir(exist_ok=True)
    name = "accuracy_quick.json" if quick else "accuracy.json"
    (RESULTS / name).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
