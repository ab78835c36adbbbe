"""The table of mechanisms: one row each, with every option, its meaning and the values it accepts."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from typing import Any

from dphist.mechanisms.base import HistogramRelease
from dphist.mechanisms.options import Option, flag, level_branchings, real, share, whole, word
from dphist.privacy import NEIGHBOURS_IN_WORDS, Neighbours


@dataclass(frozen=True, repr=False)
class Mechanism:
    """One row: a mechanism's location, options and guarantee.

    Args: ``target`` is the module in ``dphist.mechanisms``, with ":function" if the function is not named
        like the mechanism; ``options`` describes the keywords that may be given, the values they accept, and
        the paper's value if the default (in the signature) is different; ``preset`` are keywords that this
        row gives the function; ``neighbours`` is the relation that the
        guarantee is for if no option changes it.
    """

    name: str
    target: str
    summary: str
    options: dict[str, Option] = field(default_factory=dict)
    dimensions: int = 1
    uses_workload: bool = False
    neighbours: Neighbours = "add_remove"
    preset: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def function(self) -> Callable[..., HistogramRelease]:
        """The mechanism itself, imported on first use."""
        module, _, name = self.target.partition(":")
        function: Callable[..., HistogramRelease]
        function = getattr(import_module(f"dphist.mechanisms.{module}"), name or self.name)
        if self.preset:
            said = function.__doc__
            function = partial(function, **self.preset)
            function.__doc__ = said
        return function

    def __repr__(self) -> str:
        """Return a description of the mechanism, then each option in one line, for an analyst."""
        lines = [f"{self.name}: {self.summary}"]
        lines.append(f"  protects, with the defaults: one event {NEIGHBOURS_IN_WORDS[self.neighbours]}")
        for option, default in self.defaults().items():
            known = self.options[option]
            lines.append(f"  {option} = {default}: {known.text}; {known.accepted}")
        return "\n".join(lines)

    def defaults(self) -> dict[str, Any]:
        """The default of each option, read from the function's signature."""
        parameters = inspect.signature(self.function).parameters
        return {name: one.default for name, one in parameters.items() if name in self.options}


_CDF = {
    "neighbours": word(
        "the relation of the guarantee; 'substitute', the paper's: for a moved event only, N is public",
        "add_remove",
        "substitute",
    ),
    "consistent": word(
        "closest whole, rising counts in [0, N], by this error", "absolute", "squared", or_none=True
    ),
}
_CDF_TREE = {
    "branching": level_branchings("children per node, root to leaf; None, the paper's, has the least error"),
    "budgets": word("of the levels; 'optimal' is the paper's", "optimal", "equal"),
    **_CDF,
}

_BRANCHING = {"branching": whole("children of a node; 2 is the papers'", 2)}
_DAWA_SHARE = {"partition_share": share("share of epsilon that chooses the partition; 1/4 is the paper's")}
_PARTITION = _DAWA_SHARE | {
    "bucket_penalty": real(
        "cost of a bucket beyond 1 / epsilon_2, in noise scales; 0 is the paper's, 2.5 or 4 ours", 0, 1000
    ),
    "deviation_from": word("what counts in a bucket should be near; the paper's is 'mean'", "median", "mean"),
}
_TREE = {"tree": word("'best' for the workload, or 'greedy', the paper's", "best", "greedy")}

_TOTAL = {
    "known_total": flag(
        "the exact total is public, as in the papers: the guarantee is for a moved event only"
    ),
    "total_share": share("share of epsilon for the noisy total, ours"),
}
_MWEM = _TOTAL | {
    "rounds": whole(
        "queries to measure; None, ours, chooses by total and epsilon; 10 in published code",
        1,
        2**20,
        or_none=True,
    ),
    "sweeps": whole("how often at most all measured queries are replayed in each round", 1, 10_000),
}

_GRID = _TOTAL | {"constant": real("events times epsilon per block; 10 is the paper's", 1e-6, 1e6)}

_plane = partial(Mechanism, dimensions=2)

TABLE: tuple[Mechanism, ...] = (
    Mechanism("identity", "bins", "noise on every bin"),
    Mechanism("h", "trees.hierarchical", "a tree of noisy counts, as measured", _BRANCHING),
    Mechanism("h_bar", "trees.hierarchical", "the tree made consistent", _BRANCHING),
    Mechanism(
        "h_bar_nonnegative",
        "trees.hierarchical",
        "the consistent tree, with subtrees that are not above zero set to zero",
        _BRANCHING | {"round_counts": flag("round counts to whole numbers, as the paper does")},
    ),
    Mechanism(
        "hb",
        "trees.hierarchical",
        "the tree with its best branching",
        {"branching": whole("children of a node; None, the paper's, has the least error", 2, or_none=True)},
    ),
    Mechanism("privelet", "privelet", "noise on Haar wavelet coefficients"),
    Mechanism(
        "greedy_h", "dawa.mechanism", "a tree whose budgets fit the workload", _BRANCHING, uses_workload=True
    ),
    Mechanism(
        "hat_tree",
        "trees.hat_tree",
        "overlapping nodes, planned for the workload: the best that does not look at the data",
        {
            "branching": whole(
                "width of a level over the one below; None chooses for the workload", 2, or_none=True
            )
        },
        uses_workload=True,
    ),
    Mechanism(
        "dawa",
        "dawa.mechanism",
        "private partition, then a tree whose budgets fit the workload",
        _PARTITION | _TREE | {"merge": flag("join buckets that look alike after stage 2; not in the paper")},
        uses_workload=True,
    ),
    Mechanism(
        "dawa_all",
        "dawa.mechanism:dawa",
        "DAWA with buckets of all lengths",
        _PARTITION | _TREE,
        uses_workload=True,
        # More intervals compete than among powers of two, so a bucket costs more.
        preset={"all_lengths": True, "bucket_penalty": 4.0},
    ),
    Mechanism(
        "partition_laplace",
        "dawa.mechanism:dawa",
        "DAWA's partition, noise on every bucket",
        _PARTITION,
        preset={"tree": "leaves"},
    ),
    Mechanism(
        "partition_uniform",
        "dawa.mechanism:dawa",
        "DAWA's partition, then H-bar",
        _PARTITION | _BRANCHING,
        preset={"tree": "equal"},
    ),
    Mechanism(
        "partition_geometric",
        "dawa.mechanism:dawa",
        "DAWA's partition, then a tree with geometric budgets",
        _PARTITION
        | _BRANCHING
        | {"level_ratio": real("budget of a level over the one above; 2^(1/3) is the paper's", 1, 2)},
        preset={"tree": "geometric"},
    ),
    Mechanism(
        "adaptive_tree",
        "adaptive",
        "measure coarsely, then finely, then a tree over unlike parts: the one to start with",
        {
            "blocks": whole("how many equal runs of bins the first look has, at most", 1),
            "blocks_share": share("share of epsilon for the first look"),
            "pieces_share": share("share of epsilon for the second look"),
        },
        uses_workload=True,
    ),
    Mechanism("sorted", "bins:sorted_counts", "sorted counts with noise"),
    Mechanism("sorted_rounded", "bins", "sorted again and rounded"),
    Mechanism("sorted_isotonic", "bins", "closest rising sequence"),
    Mechanism("cdf_direct", "cdf", "noise on cumulative counts", _CDF),
    Mechanism("cdf_histogram", "cdf", "cumulative sums of noisy bins", _CDF),
    Mechanism("cdf_binary", "cdf", "cumulative counts from a binary tree", _CDF),
    Mechanism("cdf_tree", "cdf", "the level-uniform tree of least error", _CDF_TREE),
    Mechanism("cdf_refined", "cdf", "its estimates from both ends", _CDF_TREE),
    Mechanism(
        "p_hp",
        "p_hp",
        "recursive private bisection, noise on every bucket",
        {
            "partition_share": share("share of epsilon that chooses the partition; 1/2 is the paper's"),
            "depth": whole("how often a cluster is cut at most; None is log2 of the bins", 1, or_none=True),
            "nonnegative": flag("set negative counts to zero, as the paper's code does"),
        },
    ),
    Mechanism("mwem", "mwem", "measure the worst answered query, reweigh, repeat", _MWEM, uses_workload=True),
    Mechanism(
        "efpa",
        "efpa",
        "noise on the first Fourier coefficients",
        {"selection_share": share("share of epsilon that chooses how many; 1/2 is the paper's")},
    ),
    Mechanism(
        "structure_first",
        "structure_first",
        "private boundaries of a fixed number of buckets, a tree in each",
        {
            "buckets": whole("how many; None is a tenth of the bins, the paper's", 1, 2**27, or_none=True),
            "partition_share": share("share of epsilon for the boundaries; 1/20 is the published code's"),
            "deviation": word(
                "of a bucket's counts; 'squared' is the paper's, 'absolute' its code's", "absolute", "squared"
            ),
            "largest_count": whole("the bound F on counts in squared deviations, clipped there", 1, 2**20),
            "branching": whole("children of a node; 8 is ours, 2 the paper's code's", 2),
        },
    ),
    _plane("identity_plane", "bins:identity", "noise on every bin"),
    _plane(
        "mwem_plane",
        "mwem:mwem",
        "measure the worst answered rectangle, reweigh, repeat",
        _MWEM,
        uses_workload=True,
    ),
    _plane("dawa_hilbert", "plane.hilbert", "DAWA along the Hilbert curve", _DAWA_SHARE, uses_workload=True),
    _plane(
        "quadtree",
        "plane.quadtree",
        "quarters of quarters, lower levels with more budget",
        {
            "depth": whole("how often to quarter; None until squares are bins", 0, or_none=True),
            "level_growth": real("budget of a level over the one above; 2^(1/3) is the paper's", 0.5, 4),
        },
    ),
    _plane(
        "hybridtree",
        "plane.quadtree",
        "cuts at private medians above, quarters below",
        {
            "median_levels": whole("levels cut at medians; None is half of the depth", 0, 64, or_none=True),
            "median_share": share("share of epsilon for the medians; 3/10 is the paper's"),
            "depth": whole("levels below the root; None until rectangles are bins", 0, or_none=True),
        },
    ),
    _plane(
        "dpcube",
        "plane.dpcube",
        "nearly uniform parts of noisy blocks, measured again",
        {
            "blocks_across": whole(
                "blocks along the longer axis; None chooses by noisy total and epsilon", 1, or_none=True
            ),
            "blocks_share": share("share for the blocks of what the total leaves; 1/2 is the paper's"),
            "total_share": share("share of epsilon for the noisy total, ours"),
            "threshold": real("least gain of a cut, in noise variances times log of places; ours", 0, 1e12),
        },
    ),
    _plane("uniform_grid", "plane.grids", "one grid, as fine as its events and epsilon justify", _GRID),
    _plane(
        "adaptive_grid",
        "plane.grids",
        "a coarse grid, each block cut as its noisy count justifies",
        _GRID
        | {
            "fine_constant": real("events times epsilon per fine block; 5 is the paper's", 1e-6, 1e6),
            "coarse_share": share("share for the coarse grid of what the total leaves; 1/2 is the paper's"),
        },
    ),
)
