"""The results of a reproduction: numbers next to the paper's, tables, figures and claims."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

Kind = Literal["lines", "points", "table"]
# (mean over the trials, its standard error: nan for a single trial)
Measured = tuple[float, float]
# A claim may miss by this many standard errors of the compared numbers.
TOLERANCE = 3.0
WITHIN = f"within {TOLERANCE:g} standard errors"


@dataclass(frozen=True)
class Number:
    """One number of a table or figure.

    Args: panel, series and x, the number's place; here, what we measured, with its standard error over the
        trials (nan if there is none); paper, the number in the paper, if it is there; differs, how our
        experiment differs from the paper's, and why.
    """

    panel: str
    series: str
    x: str | float
    here: float
    standard_error: float = math.nan
    paper: float | None = None
    differs: str = ""


@dataclass(frozen=True)
class Result:
    """A table or figure of the paper.

    Args: kind "lines" (x is a number), "points" (x is a name) or "table" (numbers only); x_label and y_label
        with units.
    """

    name: str
    title: str
    kind: Kind
    x_label: str
    y_label: str
    numbers: Sequence[Number]
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper about its experiments, and whether it holds here.

    Args: holds, whether the text is true here as it is written; tolerance, in words, how far trials may miss
        the claim by chance, "" for not at all.
    """

    text: str
    paper: str
    here: str
    holds: bool
    differs: str = ""
    tolerance: str = ""


@dataclass(frozen=True)
class Findings:
    """All results of the reproduction of one paper; ``data`` describes the measured data in words."""

    paper: str
    title: str
    data: str
    results: Sequence[Result]
    claims: Sequence[Claim] = field(default_factory=tuple)


def paper_numbers(paper: str) -> dict[str, Any]:
    """Return the numbers that a paper prints.

    >>> paper_numbers("cdf")["best_equal_branching"]
    17
    """
    text = resources.files(__package__).joinpath("paper_numbers.toml").read_text(encoding="utf-8")
    numbers: dict[str, Any] = tomllib.loads(text)[paper]
    return numbers


def ratio(first: Measured, second: Measured) -> Measured:
    """Return the first number divided by the second, with the standard error for independent trials.

    >>> ratio((6.0, 0.6), (2.0, 0.0))
    (3.0, 0.3)
    """
    quotient = first[0] / second[0]
    return quotient, quotient * math.hypot(first[1] / first[0], second[1] / second[0])


def at_least(measured: Measured, bound: float) -> bool:
    """Return whether a number is at least a bound, within the tolerance.

    >>> at_least((0.9, 0.05), 1.0), at_least((0.8, 0.05), 1.0), at_least((0.99, math.nan), 1.0)
    (True, False, False)
    """
    mean, error = measured
    return mean + (0.0 if math.isnan(error) else TOLERANCE * error) >= bound


def at_most(measured: Measured, bound: float) -> bool:
    """Return whether a number is at most a bound, within the tolerance."""
    return at_least((-measured[0], measured[1]), -bound)


def mean_and_error(values: Iterable[float]) -> Measured:
    """Return the mean and its standard error, nan for a single value.

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    listed = list(values)
    mean = math.fsum(listed) / len(listed)
    if len(listed) == 1:
        return mean, math.nan
    variance = math.fsum((value - mean) ** 2 for value in listed) / (len(listed) - 1)
    return mean, math.sqrt(variance / len(listed))
