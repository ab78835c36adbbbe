"""The table of mechanisms, and the one call that runs any of them.

To add a mechanism: write ``def name(request: Request, *, option=default) -> HistogramRelease`` in a module,
and add one row to ``_TABLE``. The contract test then holds it to everything that every mechanism promises.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

from numpy.typing import ArrayLike

from dphist.mechanisms.base import HistogramRelease, Request, checked_counts
from dphist.mechanisms.budget import BudgetLedger, Epsilon
from dphist.mechanisms.ranges import checked_ranges
from dphist.noise import NoiseSource, SeededNoise, SystemNoise


@dataclass(frozen=True)
class Mechanism:
    """One row: where a mechanism lives and what it needs.

    Args: ``target`` is "module:function"; ``options`` says what each keyword of the function means (the
        defaults, which are the papers', are in its signature); ``neighbours`` is the relation of its
        guarantee.
    """

    name: str
    target: str
    summary: str
    options: dict[str, str] = field(default_factory=dict)
    dimensions: int = 1
    uses_workload: bool = False
    neighbours: str = "add_remove"

    @cached_property
    def function(self) -> Callable[..., HistogramRelease]:
        """The mechanism itself, imported on first use."""
        module, _, name = self.target.partition(":")
        function: Callable[..., HistogramRelease] = getattr(import_module(module), name)
        return function

    def defaults(self) -> dict[str, Any]:
        """The default of each option, read from the function's signature."""
        parameters = inspect.signature(self.function).parameters
        return {name: parameter.default for name, parameter in parameters.items() if name != "request"}


_TABLE: tuple[Mechanism, ...] = (
    Mechanism("identity", "dphist.mechanisms.identity:identity", "noise on every bin"),
)

_ROWS = {row.name: row for row in _TABLE}


def names(dimensions: int | None = None) -> list[str]:
    """List the mechanisms, all or those for histograms of so many dimensions."""
    return [row.name for row in _TABLE if dimensions in (None, row.dimensions)]


def describe(name: str) -> Mechanism:
    """Return a mechanism's row.

    Raises: ValueError for a name that is not in the table.
    """
    if name not in _ROWS:
        raise ValueError(f"mechanism {name!r} is not known; choose from {', '.join(names())}")
    return _ROWS[name]


def prepare(
    name: str,
    counts: ArrayLike,
    epsilon: Epsilon,
    workload: ArrayLike | None = None,
    noise: NoiseSource | None = None,
    continuous: bool = False,
) -> Request:
    """Check the input of a mechanism and return its request.

    Raises: ValueError in one line that names what is wrong and where.
    """
    row = describe(name)
    checked = checked_counts(counts, row.dimensions)
    source = SystemNoise() if noise is None else noise
    if continuous and not isinstance(source, SeededNoise):
        raise ValueError("continuous=True is for research: pass noise=SeededNoise(seed), or leave it out")
    return Request(
        mechanism=name,
        counts=checked,
        ledger=BudgetLedger(epsilon),
        noise=source,
        workload=None if workload is None else checked_ranges(workload, checked.shape),
        continuous=continuous,
    )


def release(
    name: str,
    counts: ArrayLike,
    epsilon: Epsilon,
    workload: ArrayLike | None = None,
    noise: NoiseSource | None = None,
    *,
    continuous: bool = False,
    **options: Any,
) -> HistogramRelease:
    """Release a histogram with differential privacy.

    Guarantee: epsilon-DP for histograms that differ by one event added or removed; the mechanism's own
        docstring states the sensitivity of each step. ``continuous`` and ``SeededNoise`` protect nobody.
    Args: counts of shape (n,), or (rows, columns), whole and not negative; workload, the ranges that matter,
        (m, 2) or (m, 4) half-open bins (spread over all ranges if none is given and the mechanism uses one);
        noise, by default ``SystemNoise()``; options as ``describe(name).options`` lists them.
    Raises: ValueError in one line that names what is wrong and where.

    >>> r = release("identity", [5, 0, 2], epsilon=1e6, noise=SeededNoise(1))
    >>> r.counts.tolist(), r.answer([[0, 2]]).tolist(), r.budget
    ([5.0, 0.0, 2.0], [5.0], [('counts', Fraction(1000000, 1))])
    """
    row = describe(name)
    unknown = sorted(set(options) - set(row.options))
    if unknown:
        known = ", ".join(sorted(row.options)) or "no options"
        raise ValueError(f"{name} has no option {unknown[0]!r}; it has {known}")
    return row.function(prepare(name, counts, epsilon, workload, noise, continuous), **options)
