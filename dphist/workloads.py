"""The questions that a tree is planned for, as half-open ranges of bins.

A workload's name selects the closed form of its error in ``tree/range_error.py`` and
``planning/range_uses.py``. The arrays here list the questions, for tests and mechanisms that take any ranges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from dphist.arrays import Int64Array
from dphist.privacy import Exact, exact

Question = Literal["prefix", "sliding", "ranges"]
# How users write a workload: "prefix", "bins", "sliding(24)", "ranges", or {"prefix": 0.7, "bins": 0.3}.
WorkloadText = str | Mapping[str, Exact]

_SLIDING = re.compile(r"sliding\(\s*([1-9][0-9]{0,15})\s*\)")


@dataclass(frozen=True)
class WorkloadPart:
    """Questions of one kind, all with equal weight.

    ``prefix``: the running counts [0, t), t = 1..horizon. ``sliding``: all ranges of ``bins`` bins.
    ``ranges``: all.
    """

    question: Question
    bins: int = 0

    def __post_init__(self) -> None:
        if self.question not in get_args(Question) or (self.bins > 0) != (self.question == "sliding"):
            raise ValueError(f"workload: {self.question!r} of {self.bins} bins is unknown")

    def __str__(self) -> str:
        if self.question != "sliding":
            return self.question
        return "bins" if self.bins == 1 else f"sliding({self.bins})"

    def ranges(self, horizon: int) -> Int64Array:
        """Return all questions of this kind as ranges [start, end), shape (questions, 2)."""
        if self.question == "prefix":
            return prefixes(horizon)
        if self.question == "ranges":
            return np.stack(np.triu_indices(horizon + 1, 1), axis=1).astype(np.int64)
        return np.asarray(single_bins(horizon - self.bins + 1) + np.array([0, self.bins - 1]))


@dataclass(frozen=True)
class Workload:
    """Kinds of questions with weights. The error of a mix is the weighted mean of the kinds' mean errors.

    Args: parts with weights above zero, which add up to 1.

    >>> str(Workload.of("sliding(24)")), str(Workload.of({"prefix": 3, "bins": 1}))
    ('sliding(24)', '3/4 prefix + 1/4 bins')
    """

    parts: tuple[tuple[WorkloadPart, Fraction], ...]

    @classmethod
    def of(cls, text: Workload | WorkloadText) -> Workload:
        """Return the workload of a user's text: a kind, or kinds with weights (scaled to sum to 1).

        Raises: ValueError naming the kind or the weight.
        """
        if isinstance(text, Workload):
            return text
        weights = {text: 1} if isinstance(text, str) else text
        if not isinstance(weights, Mapping) or not weights:
            raise ValueError(f"workload: {text!r} is neither a kind nor a mapping of kinds to weights")
        parts = [(_part(kind), exact(weight, f"workload {kind}")) for kind, weight in weights.items()]
        if len({part for part, _ in parts}) < len(parts):
            raise ValueError("workload: a kind is named twice; give it one weight")
        total = sum((weight for _, weight in parts), Fraction(0))
        return cls(tuple(sorted(((part, w / total) for part, w in parts), key=lambda one: str(one[0]))[::-1]))

    def __str__(self) -> str:
        if len(self.parts) == 1:
            return str(self.parts[0][0])
        return " + ".join(f"{weight} {part}" for part, weight in self.parts)

    def declared(self) -> str | dict[str, str]:
        """Return the workload as JSON values, which ``of`` reads back. Equal workloads give equal values."""
        if len(self.parts) == 1:
            return str(self)
        return {str(part): str(weight) for part, weight in self.parts}

    def check(self, horizon: int) -> None:
        """Check that no window is longer than the epoch.

        Raises: ValueError naming the window.
        """
        for part, _ in self.parts:
            if part.bins > horizon:
                raise ValueError(f"workload: {part} is longer than the epoch of {horizon} bins")


PREFIX = Workload(((WorkloadPart("prefix"), Fraction(1)),))


def _part(kind: object) -> WorkloadPart:
    if kind == "bins":
        return WorkloadPart("sliding", 1)
    if kind == "prefix" or kind == "ranges":
        return WorkloadPart(kind)
    sliding = _SLIDING.fullmatch(kind) if isinstance(kind, str) else None
    if sliding is None:
        raise ValueError(
            f"workload: {kind!r} is unknown; write prefix, bins, sliding(24), ranges, or weights of these"
        )
    return WorkloadPart("sliding", int(sliding[1]))


def prefixes(bins: int) -> Int64Array:
    """Return the running counts over ``bins`` bins, shape (bins, 2): [0, 1), [0, 2), ..., [0, bins).

    >>> prefixes(2).tolist()
    [[0, 1], [0, 2]]
    """
    ends = np.arange(1, bins + 1, dtype=np.int64)
    return np.stack([np.zeros_like(ends), ends], axis=1)


def single_bins(bins: int) -> Int64Array:
    """Return every bin by itself, shape (bins, 2): [0, 1), [1, 2), ..., [bins - 1, bins).

    >>> single_bins(2).tolist()
    [[0, 1], [1, 2]]
    """
    starts = np.arange(bins, dtype=np.int64)
    return np.stack([starts, starts + 1], axis=1)
