"""Run any mechanism by its name, after checking its input.

To add a mechanism: write ``def name(request: Request, *, option=default) -> HistogramRelease`` in a module,
and add one row to ``table.py``, with an ``Option`` for each keyword, which ``release`` checks. The contract
test then checks everything that every mechanism promises.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dphist.mechanisms.base import BudgetLedger, Epsilon, HistogramRelease, Request, checked_counts
from dphist.mechanisms.ranges import checked_ranges
from dphist.mechanisms.table import TABLE, Mechanism
from dphist.noise import NoiseSource, SeededNoise, SystemNoise
from dphist.privacy import did_you_mean, shown

# Their error does not depend on the counts: the estimates are the exact counts plus a fixed linear map of the
# noise, as tests show. The option ``consistent`` moves cumulative counts to the nearest rising ones, which
# depends on the data.
CALIBRATED = (
    *("identity", "identity_plane", "h", "h_bar", "hb", "privelet", "sorted"),
    *("cdf_direct", "cdf_histogram", "cdf_binary", "cdf_tree", "cdf_refined"),
)
# These mechanisms publish counts in rising order, so they cannot answer ranges of bins.
UNATTRIBUTED = frozenset({"sorted", "sorted_rounded", "sorted_isotonic"})
_ROWS = {row.name: row for row in TABLE}
# What other libraries and papers call a mechanism, and where they take an option that is elsewhere here.
_ALSO_CALLED = {"laplace": "identity", "geometric": "identity", "hierarchical": "hb", "wavelet": "privelet"}
_ELSEWHERE = {
    "seed": "write noise=SeededNoise(seed), in tests only: it protects nobody",
    "confidence": "write it in interval(ranges, confidence) of the release",
    "delta": "no mechanism needs one: epsilon is the whole cost",
}


def names(dimensions: int | None = None) -> list[str]:
    """List the mechanisms: all, or those for histograms with this number of dimensions."""
    return [row.name for row in TABLE if dimensions in (None, row.dimensions)]


def describe(name: str) -> Mechanism:
    """Return a mechanism's row of the table: its options and the relation of its guarantee.

    Raises: ValueError for a name that is not in the table.
    """
    if not isinstance(name, str):
        raise ValueError(f"mechanism: {shown(name)} is no name; write for example release('hb', counts, 0.5)")
    if name not in _ROWS:
        hint = did_you_mean(_ALSO_CALLED.get(name.lower(), name), names())
        raise ValueError(f"mechanism {name!r} is not known; {hint}choose from {', '.join(names())}")
    return _ROWS[name]


def checked_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in the types that the mechanism takes: for example, shares as exact fractions.

    The mechanism itself checks limits that depend on the histogram (no more buckets than bins).

    Raises: ValueError naming the mechanism, the option and the value, for an unknown option or a bad value.

    >>> checked_options("dawa", {"partition_share": 0.25, "merge": True})
    {'partition_share': Fraction(1, 4), 'merge': True}
    >>> checked_options("h", {"branching": 2.5})
    Traceback (most recent call last):
        ...
    ValueError: h branching is 2.5; choose a whole number from 2 on
    """
    known = describe(name).options
    unknown = sorted(map(str, set(options) - set(known)))
    if unknown:
        listed = ", ".join(sorted(known)) or "no options"
        if hint := _ELSEWHERE.get(unknown[0], ""):
            raise ValueError(f"{name} has no option {unknown[0]!r}; {hint}")
        hint = did_you_mean(unknown[0], known)
        raise ValueError(f"{name} has no option {unknown[0]!r}; {hint}it has {listed}")
    return {option: known[option].checked(f"{name} {option}", value) for option, value in options.items()}


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
    if not isinstance(source, NoiseSource):
        raise ValueError(
            f"noise: {shown(noise)} is no source of noise; leave noise out, or write SeededNoise(1)"
        )
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

    Guarantee: epsilon-DP for neighbouring histograms; the release names the relation. By default they differ
        by one event added or removed. With the options ``known_total=True`` or ``neighbours="substitute"``
        they differ by one event moved, and the number of events is public.
    The mechanism's own docstring states the sensitivity of each step. There is no protection with
        ``continuous`` or ``SeededNoise``.
    Args: counts of shape (n,), or (rows, columns), whole and not negative. Fix the bins and their order
        before you see the events: pandas' ``value_counts`` leaves out empty bins and sorts by count.
        workload, the ranges to optimise for, (m, 2) or (m, 4) half-open bins (by default spread over all
        ranges, if the mechanism uses one); noise, by default ``SystemNoise()``; options as
        ``describe(name).options`` lists them.
    Raises: ValueError in one line that names what is wrong and where.

    >>> r = release("identity", [5, 0, 2], epsilon=1e6, noise=SeededNoise(1))
    >>> r.counts.tolist(), r.answer([[0, 2]]).tolist(), r.budget
    ([5.0, 0.0, 2.0], [5.0], [('counts', Fraction(1000000, 1))])
    """
    checked = checked_options(name, options)
    request = prepare(name, counts, epsilon, workload, noise, continuous)
    made = describe(name).function(request, **checked)
    if name not in CALIBRATED or checked.get("consistent") is not None:
        return made
    zeros = np.zeros(made.counts.shape, np.int64)
    again = partial(release, name, zeros, epsilon, None, continuous=continuous, **checked)
    return replace(made, of_zeros=lambda source: again(noise=source))
