"""Compare mechanisms: the error of each on a public or synthetic histogram."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dphist import mechanisms
from dphist.arrays import Int64Array
from dphist.mechanisms.base import Epsilon
from dphist.mechanisms.ranges import checked_ranges, range_sums, spread_ranges
from dphist.mechanisms.registry import UNATTRIBUTED
from dphist.noise import SeededNoise
from dphist.privacy import Neighbours
from dphist.workloads import prefixes, single_bins

WORKLOADS = ("ranges", "prefix", "bins")


@dataclass(frozen=True)
class Score:
    """The errors of a mechanism, in counts, measured over several releases of the same histogram.

    Args: ``neighbours``, the relation of the mechanism's guarantee; ``mean_error`` per query and its standard
        error (nan for one release); ``root_mean_square`` per query; ``seconds`` per release.
    """

    mechanism: str
    neighbours: Neighbours
    mean_error: float
    standard_error: float
    root_mean_square: float
    seconds: float


def named_workload(name: str, shape: tuple[int, ...]) -> Int64Array:
    """Return the ranges of a named workload: a spread over all ranges, all prefixes, or all single bins.

    Raises: ValueError for an unknown name, and for prefixes of a grid.

    >>> named_workload("prefix", (3,)).tolist()
    [[0, 1], [0, 2], [0, 3]]
    """
    if name == "ranges":
        return spread_ranges(shape)
    if name not in WORKLOADS:
        raise ValueError(f"workload {name!r} is not known; choose from {', '.join(WORKLOADS)}, or a file")
    if len(shape) == 1:
        return prefixes(shape[0]) if name == "prefix" else single_bins(shape[0])
    if name == "prefix":
        raise ValueError("workload 'prefix' is for one dimension; choose 'ranges' or 'bins'")
    rows, columns = np.indices(shape).reshape(2, -1)
    return np.stack([rows, rows + 1, columns, columns + 1], axis=1)


def applicable(dimensions: int) -> list[str]:
    """List the mechanisms that answer ranges of a histogram with this number of dimensions."""
    return [name for name in mechanisms.names(dimensions) if name not in UNATTRIBUTED]


def score(
    name: str,
    counts: ArrayLike,
    workload: ArrayLike,
    epsilon: Epsilon,
    *,
    trials: int,
    timer: Callable[[], float],
) -> Score:
    """Release the histogram a few times with seeded noise and measure the errors of the workload's answers.

    Guarantee: none. Errors reveal counts, seeded noise protects nobody: use public or synthetic counts.
    Args: as ``mechanisms.release``; trials, at least 1; timer, seconds on a monotonic clock.
    Raises: ValueError if the mechanism refuses the input, if trials is below 1, or for sorted counts.
    """
    if name in UNATTRIBUTED:
        raise ValueError(
            f"{name} publishes counts in rising order, not ranges of bins; leave it out, "
            "or run 'python -m research hay2010' in a checkout for its error against the sorted counts"
        )
    if trials < 1:
        raise ValueError(f"trials is {trials}; release at least once")
    exact = np.asarray(counts)
    ranges = checked_ranges(workload, exact.shape)
    truth = range_sums(exact.astype(np.float64), ranges)
    errors, squares = np.empty(trials), np.empty(trials)
    started = timer()
    for trial in range(trials):
        made = mechanisms.release(name, exact, epsilon, workload=ranges, noise=SeededNoise(trial))
        wrong = made.answer(ranges) - truth
        errors[trial], squares[trial] = np.abs(wrong).mean(), (wrong**2).mean()
    spread = float(errors.std(ddof=1)) / trials**0.5 if trials > 1 else float("nan")
    return Score(
        mechanism=name,
        neighbours=made.neighbours,
        mean_error=float(errors.mean()),
        standard_error=spread,
        root_mean_square=float(np.sqrt(squares.mean())),
        seconds=(timer() - started) / trials,
    )
