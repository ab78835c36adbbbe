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
from dphist.privacy import Neighbours


@dataclass(frozen=True)
class Mechanism:
    """One row: where a mechanism lives and what it needs.

    Args: ``target`` is "module:function"; ``options`` says what each keyword of the function means (the
        defaults are in its signature); ``neighbours`` is the relation of its guarantee with the defaults
        (a release names its own).
    """

    name: str
    target: str
    summary: str
    options: dict[str, str] = field(default_factory=dict)
    dimensions: int = 1
    uses_workload: bool = False
    neighbours: Neighbours = "add_remove"

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


_CDF = {
    "neighbours": "'add_remove', or 'substitute', the paper's: for a moved event only, N is public",
    "consistent": "'absolute' or 'squared': return the closest whole, rising counts in [0, N]; or None",
}
_CDF_TREE = {
    "branching": "children per node, root to leaf; None chooses the least error",
    "budgets": "'optimal' or 'equal' over the levels",
    **_CDF,
}

_BRANCHING = {"branching": "children of a node"}
_SHARE = {"partition_share": "share of epsilon that chooses the partition"}
_PARTITION = _SHARE | {
    "bucket_penalty": "cost of a bucket beyond 1 / epsilon_2, in noise scales; 0 is the paper's",
    "deviation_from": "'median' or 'mean', the paper's: what counts in a bucket should be near",
}
_TREE = {"tree": "'best' for the workload, or 'greedy', the paper's"}

_MWEM = {
    "rounds": "queries to measure; None chooses from the noisy total and epsilon",
    "known_total": "take the exact total as public: the guarantee is then for a moved event only",
    "total_share": "share of epsilon for the noisy total",
    "sweeps": "how often all measured queries are replayed in each round",
}

_STRUCTURE = {
    "buckets": "how many; None is a tenth of the bins",
    "deviation": "'absolute' or 'squared': what buckets should have little of",
    "largest_count": "the bound F on counts in squared deviations; larger ones are clipped there",
    "branching": "children of a node",
}

_GRID = {
    "constant": "events times epsilon per block",
    "known_total": "take the exact total as public: the guarantee is then for a moved event only",
    "total_share": "share of epsilon for the noisy total",
}

_TABLE: tuple[Mechanism, ...] = (
    Mechanism("identity", "dphist.mechanisms.identity:identity", "noise on every bin"),
    Mechanism("h", "dphist.mechanisms.hierarchical:h", "a tree of noisy counts, as measured", _BRANCHING),
    Mechanism("h_bar", "dphist.mechanisms.hierarchical:h_bar", "the tree made consistent", _BRANCHING),
    Mechanism(
        "h_bar_nonnegative",
        "dphist.mechanisms.hierarchical:h_bar_nonnegative",
        "the consistent tree, with subtrees that are not above zero set to zero",
        _BRANCHING | {"round_counts": "round counts to whole numbers"},
    ),
    Mechanism("hb", "dphist.mechanisms.hierarchical:hb", "the tree with its best branching", _BRANCHING),
    Mechanism("privelet", "dphist.mechanisms.privelet:privelet", "noise on Haar wavelet coefficients"),
    Mechanism(
        "greedy_h",
        "dphist.mechanisms.greedy_h:greedy_h",
        "a tree whose budgets fit the workload",
        _BRANCHING,
        uses_workload=True,
    ),
    Mechanism(
        "hat_tree",
        "dphist.mechanisms.hat_tree:hat_tree",
        "a tree of overlapping nodes, planned for the workload: the best that does not look at the data",
        {"branching": "width of a level over that of the level below; None chooses for the workload"},
        uses_workload=True,
    ),
    Mechanism(
        "dawa",
        "dphist.mechanisms.dawa.mechanism:dawa",
        "private partition, then a tree whose budgets fit the workload",
        _PARTITION | _TREE | {"merge": "join buckets that look alike after stage 2; not in the paper"},
        uses_workload=True,
    ),
    Mechanism(
        "dawa_all",
        "dphist.mechanisms.dawa.mechanism:dawa_all",
        "DAWA with buckets of all lengths",
        _PARTITION | _TREE,
        uses_workload=True,
    ),
    Mechanism(
        "partition_laplace",
        "dphist.mechanisms.dawa.mechanism:partition_laplace",
        "DAWA's partition, noise on every bucket",
        _PARTITION,
    ),
    Mechanism(
        "partition_uniform",
        "dphist.mechanisms.dawa.mechanism:partition_uniform",
        "DAWA's partition, then H-bar",
        _PARTITION | _BRANCHING,
    ),
    Mechanism(
        "partition_geometric",
        "dphist.mechanisms.dawa.mechanism:partition_geometric",
        "DAWA's partition, then a tree with geometric budgets",
        _PARTITION | _BRANCHING | {"level_ratio": "budget of a level over that of the level above"},
    ),
    Mechanism(
        "adaptive_tree",
        "dphist.mechanisms.adaptive.mechanism:adaptive_tree",
        "look coarsely, then closer, then measure a tree over what differs: the one to start with",
        {
            "blocks": "how many equal runs of bins the first look has, at most",
            "blocks_share": "share of epsilon for the first look",
            "pieces_share": "share of epsilon for the second look",
        },
        uses_workload=True,
    ),
    Mechanism("sorted", "dphist.mechanisms.sorted_counts:sorted_counts", "sorted counts with noise"),
    Mechanism("sorted_rounded", "dphist.mechanisms.sorted_counts:sorted_rounded", "sorted again and rounded"),
    Mechanism(
        "sorted_isotonic", "dphist.mechanisms.sorted_counts:sorted_isotonic", "closest rising sequence"
    ),
    Mechanism("cdf_direct", "dphist.mechanisms.cdf:cdf_direct", "noise on cumulative counts", _CDF),
    Mechanism("cdf_histogram", "dphist.mechanisms.cdf:cdf_histogram", "cumulative sums of noisy bins", _CDF),
    Mechanism("cdf_binary", "dphist.mechanisms.cdf:cdf_binary", "cumulative counts from a binary tree", _CDF),
    Mechanism(
        "cdf_tree", "dphist.mechanisms.cdf:cdf_tree", "the level-uniform tree of least error", _CDF_TREE
    ),
    Mechanism("cdf_refined", "dphist.mechanisms.cdf:cdf_refined", "its estimates from both ends", _CDF_TREE),
    Mechanism(
        "p_hp",
        "dphist.mechanisms.p_hp:p_hp",
        "recursive private bisection, noise on every bucket",
        _SHARE
        | {"depth": "how often a cluster is cut at most", "nonnegative": "set negative counts to zero"},
    ),
    Mechanism(
        "mwem",
        "dphist.mechanisms.mwem:mwem",
        "measure the worst answered query, reweigh, repeat",
        _MWEM,
        uses_workload=True,
    ),
    Mechanism(
        "efpa",
        "dphist.mechanisms.efpa:efpa",
        "noise on the first Fourier coefficients",
        {"selection_share": "share of epsilon that chooses how many"},
    ),
    Mechanism(
        "structure_first",
        "dphist.mechanisms.structure_first:structure_first",
        "private boundaries of a fixed number of buckets, a tree in each",
        _SHARE | _STRUCTURE,
    ),
    Mechanism("identity_plane", "dphist.mechanisms.identity:identity", "noise on every bin", dimensions=2),
    Mechanism(
        "mwem_plane",
        "dphist.mechanisms.mwem:mwem",
        "measure the worst answered rectangle, reweigh, repeat",
        _MWEM,
        dimensions=2,
        uses_workload=True,
    ),
    Mechanism(
        "dawa_hilbert",
        "dphist.plane.hilbert:dawa_hilbert",
        "DAWA along the Hilbert curve",
        _SHARE,
        dimensions=2,
        uses_workload=True,
    ),
    Mechanism(
        "quadtree",
        "dphist.plane.quadtree:quadtree",
        "quarters of quarters, lower levels with more budget",
        {"depth": "how often to quarter", "level_growth": "budget of a level over that of the level above"},
        dimensions=2,
    ),
    Mechanism(
        "hybridtree",
        "dphist.plane.hybridtree:hybridtree",
        "cuts at private medians above, quarters below",
        {
            "median_levels": "levels cut at medians; None is half of the depth",
            "median_share": "share of epsilon for the medians",
            "depth": "levels below the root",
        },
        dimensions=2,
    ),
    Mechanism(
        "dpcube",
        "dphist.plane.dpcube:dpcube",
        "nearly uniform parts of noisy blocks, measured afresh",
        {
            "blocks_across": "blocks along the longer axis; None chooses from the noisy total and epsilon",
            "blocks_share": "share for the blocks of what the total leaves",
            "total_share": "share of epsilon for the noisy total",
            "threshold": "what a cut must gain, in noise variances times the log of its places",
        },
        dimensions=2,
    ),
    Mechanism(
        "uniform_grid",
        "dphist.plane.grids:uniform_grid",
        "one grid, as fine as its events and epsilon justify",
        _GRID,
        dimensions=2,
    ),
    Mechanism(
        "adaptive_grid",
        "dphist.plane.grids:adaptive_grid",
        "a coarse grid, each block cut as its noisy count justifies",
        _GRID
        | {
            "fine_constant": "events times epsilon per fine block",
            "coarse_share": "share for the coarse grid of what the total leaves",
        },
        dimensions=2,
    ),
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

    Guarantee: epsilon-DP for histograms that are neighbours as the release says: by default they differ by
        one event added or removed; with ``known_total=True`` or ``neighbours="substitute"``, where there is
        such an option, by one event moved: the number of events is then public.
        The mechanism's own docstring states the sensitivity of each step. ``continuous`` and ``SeededNoise``
        protect nobody.
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
