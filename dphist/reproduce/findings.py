"""What a reproduction finds: numbers beside the paper's, its tables and figures, and its claims."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

Kind = Literal["lines", "points", "table"]


@dataclass(frozen=True)
class Number:
    """One number of a table or figure.

    Args: panel, series and x say where it stands; here is ours, with its standard error over the trials (nan
        where there is none); paper, the number the paper prints, if it prints one; differs, what is not as in
        the paper and why.
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
    """Something the paper says of its experiments, and whether it is so here."""

    text: str
    paper: str
    here: str
    holds: bool
    differs: str = ""


@dataclass(frozen=True)
class Findings:
    """All that the reproduction of one paper found; ``data`` says in words what was measured."""

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


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
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
