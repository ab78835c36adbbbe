"""Draws of noise per second on one core: this project's sampler beside OpenDP's.

Both draw in turns. Times are processor times, because the machine may do other work. A new scale is timed
apart: its tables are made once.

Run with ``python -m benchmarks.noise``; results go to ``benchmarks/results/noise.json``.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np

from dphist.noise import SystemNoise
from dphist.noise.gaussian import DiscreteGaussian
from dphist.noise.laplace import DiscreteLaplace

RESULTS = Path(__file__).parent / "results" / "noise.json"
SCALES = [1.0, 40.0, 600.0, 12_345.678, 2.0**40]
VARIANCES = [Fraction(17848, 1000), Fraction(10**6), Fraction(2) ** 52]
ROUNDS = 5
DRAWS = 1_000_000
DRAWS_OPENDP = 20_000
FEW = 100


def seconds(run: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def compared(draw: Callable[[SystemNoise, int], object]) -> dict[str, float]:
    """Return millions of draws per second of both samplers, and microseconds of a call for few draws."""
    ours, other = SystemNoise(), SystemNoise("opendp")
    draw(ours, 1), draw(other, 1)
    rounds = [
        (
            seconds(lambda: draw(ours, DRAWS)) / DRAWS,
            seconds(lambda: draw(other, DRAWS_OPENDP)) / DRAWS_OPENDP,
            seconds(lambda: draw(ours, FEW)),
            seconds(lambda: draw(other, FEW)),
        )
        for _ in range(ROUNDS)
    ]
    blocks, opendp, few, few_opendp = (statistics.median(column) for column in zip(*rounds, strict=True))
    return {
        "million_draws_per_s": round(1e-6 / blocks, 2),
        "million_draws_per_s_opendp": round(1e-6 / opendp, 3),
        "ratio": round(opendp / blocks, 1),
        f"us_for_{FEW}_draws": round(few * 1e6, 1),
        f"us_for_{FEW}_draws_opendp": round(few_opendp * 1e6, 1),
    }


def laplace(scale: float) -> dict[str, float]:
    """Return the figures for one scale."""
    made = seconds(lambda: DiscreteLaplace(Fraction(scale)))
    measured = compared(lambda noise, size: noise.discrete_laplace(scale, size))
    return measured | {"ms_for_a_new_scale": round(made * 1e3, 1)}


def gaussian(variance: Fraction) -> dict[str, float]:
    """Return the figures for one variance."""
    made = seconds(lambda: DiscreteGaussian(variance))
    measured = compared(lambda noise, size: noise.discrete_gaussian(variance, size))
    return measured | {"ms_for_a_new_variance": round(made * 1e3, 1)}


def main() -> None:
    """Measure every scale and variance, print the figures and write them to a file."""
    results: dict[str, object] = {"python": platform.python_version(), "numpy": np.__version__}
    results |= {f"laplace {scale:g}": laplace(scale) for scale in SCALES}
    results |= {f"gaussian {float(variance):g}": gaussian(variance) for variance in VARIANCES}
    for name, measured in results.items():
        print(name, measured)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
