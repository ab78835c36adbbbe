"""Good values of every option of every mechanism, for histograms of 13 bins or 13 x 13 bins."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from dphist.mechanisms import describe, names

_SHARES = [Fraction(1, 3), 0.3]
_BRANCHING = [2, 3, 13, 10**9]
_CDF_BRANCHING = [None, (13,), (4, 4), (2, 3, 3), [5, 3], (10**9, 2)]

# By option; by (mechanism, option) where the same word means something else.
_VALUES: Mapping[str | tuple[str, str], Sequence[object]] = {
    "branching": _BRANCHING,
    ("hb", "branching"): [None, *_BRANCHING],
    ("hat_tree", "branching"): [None, *_BRANCHING],
    ("cdf_tree", "branching"): _CDF_BRANCHING,
    ("cdf_refined", "branching"): _CDF_BRANCHING,
    "budgets": ["optimal", "equal"],
    "neighbours": ["add_remove", "substitute"],
    "consistent": [None, "absolute", "squared"],
    "round_counts": [True, False],
    "partition_share": _SHARES,
    "bucket_penalty": [0, 1, 2.5],
    "deviation_from": ["median", "mean"],
    "tree": ["best", "greedy"],
    "merge": [True, False],
    "level_ratio": [1, 1.26, 2],
    "blocks": [1, 4, 64, 10**9],
    "blocks_share": _SHARES,
    "pieces_share": _SHARES,
    "depth": [None, 1, 3, 10**9],
    ("hybridtree", "depth"): [None, 5, 10**9],
    "nonnegative": [True, False],
    "rounds": [None, 1, 4],
    "known_total": [True, False],
    "total_share": _SHARES,
    "sweeps": [1, 10],
    "selection_share": _SHARES,
    "buckets": [None, 1, 4, 13],
    "deviation": ["absolute", "squared"],
    "largest_count": [1, 1024],
    "level_growth": [1, 1.26, 2, 4],
    "median_levels": [None, 0, 1],
    "median_share": _SHARES,
    "blocks_across": [None, 1, 5, 10**9],
    "threshold": [0, 1.0, 1e9],
    "constant": [1, 10.0],
    "fine_constant": [1, 5.0],
    "coarse_share": _SHARES,
}


def good_options() -> list[tuple[str, str, object]]:
    """Return (mechanism, option, value) for every good value."""
    return [
        (name, option, value)
        for name in names()
        for option in describe(name).options
        for value in _VALUES.get((name, option), _VALUES.get(option, []))
    ]
