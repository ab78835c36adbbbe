"""Streams without end: error of the running count since the first bin, mean over all bins of many epochs.

It compares three ways: epoch totals added up; levels over epochs, planned for as many epochs; and one tree as
long as all epochs, which has to know the stream's end. At epsilon 1, predicted exactly, and measured over
seeded streams with the real counters.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from dphist import AnticipatingCounter, SeededNoise, TreeCounter, plan_tree
from dphist.epochs import EpochLevels, EpochLevelsCounter
from dphist.planning.epochs import plan_epoch_levels
from dphist.tree.design import Release

RESULTS = Path(__file__).parent / "results" / "epochs.json"
# (epochs, bins): hours of a year in days, of ten years in months, of ten years in years; two squares.
CASES = ((24, 365), (720, 120), (8760, 10), (1024, 100), (1024, 1024))
STREAMS, QUICK_STREAMS = 400, 50
RELEASES: tuple[Release, ...] = ("causal", "anticipating")
# The most bins of all streams together that are measured; longer streams are only predicted.
_MOST_CELLS = 10**8


def measured(design: EpochLevels, epochs: int, streams: int) -> tuple[float, float]:
    """Return the mean squared error of seeded streams, and its standard error."""
    epoch = design.epoch
    kind = TreeCounter if epoch.release == "causal" else AnticipatingCounter
    over = EpochLevelsCounter(design, SeededNoise(0), streams)
    nothing = np.zeros((epoch.horizon, streams), np.int64)
    squares = np.zeros(streams)
    for seed in range(1, epochs + 1):
        rows = kind(epoch, SeededNoise(seed), streams).push_many(nothing).published
        squares += (((rows + over.complete) / 2**16) ** 2).mean(axis=0)
        over.close_epoch(nothing[0], rows[-1])
    squares /= epochs
    return float(squares.mean()), float(squares.std(ddof=1)) / streams**0.5


def row(release: Release, horizon: int, epochs: int, streams: int) -> dict[str, object]:
    """Return one line of the table."""
    design = plan_epoch_levels(horizon, epochs, 1, release)
    chained = EpochLevels(plan_tree(horizon, 1, release=release), Fraction(1))
    whole = plan_tree(horizon * epochs, 1, release=release)
    line: dict[str, object] = {
        "release": release,
        "horizon": horizon,
        "epochs": epochs,
        "totals_added_up": round(chained.mean_squared_error(epochs), 2),
        "levels": " ".join(map(str, design.branching[: _within(design, epochs)])) or "none",
        "predicted": round(design.mean_squared_error(epochs), 2),
        "one_tree": round(whole.mean_squared_error(), 2),
    }
    if horizon * epochs * streams <= _MOST_CELLS:
        mean, stderr = measured(design, epochs, streams)
        line["measured"] = round(mean, 2)
        line["standard_errors_off"] = round((mean - design.mean_squared_error(epochs)) / stderr, 2)
    return line


def _within(design: EpochLevels, epochs: int) -> int:
    return sum(1 for width in design.widths if width <= epochs)


def main(arguments: Sequence[str] = ("--quick",)) -> None:
    """Measure, print the table line by line, write it to a file. Args: quick, less than the full table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer streams")
    quick = parser.parse_args(arguments).quick
    print("release          T  epochs   totals  levels of        predicted  measured  off   one tree")
    rows = []
    for release in RELEASES:
        for horizon, epochs in CASES:
            line = row(release, horizon, epochs, QUICK_STREAMS if quick else STREAMS)
            rows.append(line)
            print(
                f"{release:13} {horizon:5} {epochs:6} {line['totals_added_up']:10,.0f}  {line['levels']:12} "
                f"{line['predicted']:10,.1f} {line.get('measured', ''):>9} "
                f"{line.get('standard_errors_off', ''):>5} {line['one_tree']:9,.1f}",
                flush=True,
            )
    if not quick:
        results = {"python": platform.python_version(), "rows": rows}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
