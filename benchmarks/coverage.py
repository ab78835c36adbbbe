"""Interval coverage: how often 95 % intervals hold the truth, over 20,000 seeded runs of the real counters.

A year of hourly bins at epsilon 1. For every question there are three probabilities: the level that the
interval states, the exact one by an independent method (Gil-Pelaez inversion of the law's characteristic
function), and the measured one. They are repeated for an interval narrowed by one step: one unit for laws on
a lattice, otherwise the 2.1 / 256 standard errors to which half widths are exact. ``main`` fails if an
interval holds less often than requested or stated, or if the narrowed interval still holds often enough.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dphist import AnticipatingCounter, SeededNoise, TreeCounter, plan_tree
from dphist.laws.interval import DITHER, half_width
from dphist.laws.law import LawTable, WeightedNoise, discrete_laplace_variance

RESULTS = Path(__file__).parent / "results" / "coverage.json"
YEAR = 365 * 24
QUESTIONS = {"bin": (4000, 4001), "short range": (4000, 4007), "prefix": (0, 5003), "year": (0, YEAR)}
CONFIDENCE = 0.95
RUNS, QUICK_RUNS = 20_000, 2_000
_CELLS = 500
_PANELS = 2**17


class Coverage(NamedTuple):
    """One question: how often its interval holds the truth, at full width and narrowed."""

    release: str
    question: str
    half_width: float
    stated: float
    exact: float
    measured: float
    narrowed_exact: float
    narrowed_measured: float
    standard_errors_off: float


def probability_within(law: WeightedNoise, x: float) -> float:
    """Return P(|S| <= x), the integral of 2/pi sin(x t) / t phi(t), for a law that is not on a lattice."""
    groups = [(w, n, discrete_laplace_variance(s)) for w, n, s in law.groups]
    sigma = math.sqrt(law.variance)
    # phi is negligible beyond 40 / sigma, unless it is periodic; so integrate to 160 / sigma.
    t = (np.arange(_PANELS) + 0.5) * (40.0 / sigma / _PANELS * 4.0)
    log_phi = -sum(n * np.log1p(2.0 * v * np.sin(0.5 * w * t) ** 2) for w, n, v in groups)
    values = np.sin(x * t) / t * np.exp(log_phi)
    return float(2.0 / math.pi * values.sum() * (t[1] - t[0]))


def lattice_probability(law: WeightedNoise, x: float) -> float:
    """Return P(|S| <= x) for a law of whole weights: convolve the laws of its groups by FFT."""
    size = 2 ** math.ceil(math.log2(60 * math.sqrt(law.variance) + 2 * x + 64))
    theta = 2.0 * np.pi * np.arange(size) / size
    log_phi = -sum(
        n * np.log1p(2.0 * discrete_laplace_variance(s) * np.sin(0.5 * w * theta) ** 2)
        for w, n, s in law.groups
    )
    masses = np.fft.ifft(np.exp(log_phi)).real
    reach = math.floor(x + 1e-9)
    return float(masses[: reach + 1].sum() + masses[size - reach :].sum()) if reach else float(masses[0])


def coverages(runs: int) -> Iterator[Coverage]:
    """Yield the results of both releases, one per question."""
    for release in ("causal", "anticipating"):
        design = plan_tree(YEAR, 1, release=release)
        kind = TreeCounter if release == "causal" else AnticipatingCounter
        errors: dict[str, list[np.ndarray]] = {name: [] for name in QUESTIONS}
        for seed in range(runs // _CELLS):
            counter = kind(design, SeededNoise(seed), _CELLS)
            counter.push_many(np.zeros((YEAR, _CELLS), np.int64))
            for name, (a, b) in QUESTIONS.items():
                errors[name].append(np.abs(counter.range(a, b).value))
        for name, (a, b) in QUESTIONS.items():
            estimate = counter.range(a, b)
            yield _line(release, name, estimate.law, estimate.rounding, np.concatenate(errors[name]))
    design = plan_tree(YEAR, 1, "bins")
    counter = TreeCounter(design, SeededNoise(1), runs)
    drawn = np.abs(counter.push_many(np.zeros((1, runs), np.int64)).published[0] / 2**16)
    yield _line("flat", "bin", counter.live().law, 0.0, drawn)


def _line(release: str, name: str, law: WeightedNoise, rounding: float, errors: np.ndarray) -> Coverage:
    half = half_width(law, CONFIDENCE)
    unit = float(LawTable.of([law]).lattice_units()[0])
    # A bound on rounding widens every interval by about 2^-14. This is part of the step.
    step = unit if unit else 2.1 * DITHER * math.sqrt(law.variance)
    within = lattice_probability if unit == 1.0 else probability_within
    exact, narrowed = within(law, half.value), within(law, half.value - step)
    covered = float((errors <= half.value + rounding + 1e-9).mean())
    return Coverage(
        release,
        name,
        half.value,
        half.level,
        exact,
        covered,
        narrowed,
        float((errors <= half.value - step + 1e-9).mean()),
        (covered - exact) / math.sqrt(exact * (1 - exact) / len(errors)),
    )


def failures(line: Coverage) -> Iterator[str]:
    """Yield a message for each fault in a result."""
    where = f"{line.release}, {line.question}"
    if line.exact < max(CONFIDENCE, line.stated) - 1e-7:
        yield f"{where}: holds with {line.exact:.6f}, says {line.stated:.6f}"
    if abs(line.standard_errors_off) > 5:
        yield f"{where}: measured {line.measured:.4f} against {line.exact:.4f}"
    if line.narrowed_exact >= CONFIDENCE:
        yield f"{where}: one step less would do: {line.narrowed_exact:.6f}"


def main(arguments: Sequence[str] = ("--quick",)) -> None:
    """Measure, print and write the results. Args: quick, fewer runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs instead of {RUNS}")
    quick = parser.parse_args(arguments).quick
    runs = QUICK_RUNS if quick else RUNS
    print("release        question     half width   stated    exact  measured  narrowed: exact, measured")
    lines: list[Coverage] = []
    wrong: list[str] = []
    for line in coverages(runs):
        lines.append(line)
        wrong += failures(line)
        numbers = f"{line.half_width:10.3f} {line.stated:8.5f} {line.exact:8.5f} {line.measured:9.4f}"
        narrowed = f"{line.narrowed_exact:9.5f} {line.narrowed_measured:.4f}"
        print(f"{line.release:14} {line.question:12} {numbers} {narrowed}", flush=True)
    if not quick:
        rows = [
            {key: round(v, 6) if isinstance(v, float) else v for key, v in line._asdict().items()}
            for line in lines
        ]
        results = {"python": platform.python_version(), "confidence": CONFIDENCE, "runs": runs, "rows": rows}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
