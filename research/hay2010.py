"""Hay, Rastogi, Miklau, Suciu (2010): figures 5 and 6, theorem 4's worst query, and the claims."""

from __future__ import annotations

import math
from itertools import product

from research.findings import (
    WITHIN,
    Claim,
    Findings,
    Number,
    Result,
    at_least,
    at_most,
    mean_and_error,
    paper_numbers,
    ratio,
)
from research.histograms import Histogram, Setting, attributed_histograms, in_words, unattributed_histograms
from research.measures import errors_by_length, sorted_errors, variance_of_range
from research.trials import Job

_EPSILONS = (1.0, 0.1, 0.01)
_SORTED = {"S~": "sorted", "S~r": "sorted_rounded", "S-bar": "sorted_isotonic"}
TREES = {"L~": "identity", "H~": "h", "H-bar": "h_bar_nonnegative", "H-bar, least squares only": "h_bar"}
_RANGES = 1000
# With fewer bins no range is long enough for H~ to have the smaller error.
_QUICK_BINS = 8192
# (histogram, epsilon) -> estimator -> (mean, standard error), for every length in figure 6
Cell = tuple[str, float]
Errors = dict[Cell, dict[str, list[tuple[float, float]]]]


def reproduce(setting: Setting) -> Findings:
    """Measure sorted counts and ranges at the paper's three epsilons, 50 trials each."""
    unattributed = unattributed_histograms()
    attributed = setting.sized(attributed_histograms(), _QUICK_BINS)
    sorted_found = _sorted_errors(setting, unattributed)
    range_found = {h.name: (_lengths(h.counts.size), h) for h in attributed}
    range_errors = _range_errors(setting, attributed)
    results = [
        _figure_5(sorted_found, unattributed),
        *(_figure_6(range_errors, *range_found[h.name], number) for number, h in enumerate(attributed)),
    ]
    claims = [
        _sorted_claim(sorted_found, unattributed),
        rounding_claim(sorted_found, unattributed),
        *range_claims(range_errors, {name: lengths for name, (lengths, _) in range_found.items()}),
        _worst_query_claim(setting),
    ]
    return Findings(
        paper="hay2010",
        title="Hay, Rastogi, Miklau, Suciu (2010), Boosting the accuracy of histograms through consistency",
        data=in_words([*{h.name: h for h in [*unattributed, *attributed]}.values()]),
        results=results,
        claims=claims,
    )


def _sorted_errors(setting: Setting, histograms: list[Histogram]) -> Errors:
    seeds = range(setting.repeats(paper=50, quick=2))
    cells = list(product(histograms, _EPSILONS, _SORTED.items()))
    jobs = [
        Job(sorted_errors, {"mechanism": mechanism, "counts": h.counts, "epsilon": epsilon, "seed": seed})
        for h, epsilon, (_, mechanism) in cells
        for seed in seeds
    ]
    outcomes = iter(setting.trials.run("sorted counts", jobs))
    found: Errors = {}
    for h, epsilon, (label, _) in cells:
        trials = [next(outcomes)["squared"] for _ in seeds]
        found.setdefault((h.name, epsilon), {})[label] = [mean_and_error(trials)]
    return found


def _lengths(bins: int) -> list[int]:
    """Return the paper's range sizes 2^i, i = 1..l - 2 for a tree of l levels, and single bins."""
    return [2**power for power in range(max(1, math.ceil(math.log2(bins))))]


def _range_errors(setting: Setting, histograms: list[Histogram]) -> Errors:
    seeds = range(setting.repeats(paper=50, quick=2))
    cells = list(product(histograms, _EPSILONS, TREES.items()))
    jobs = [
        Job(
            errors_by_length,
            {
                "mechanism": mechanism,
                "counts": h.counts,
                "epsilon": epsilon,
                "seed": seed,
                "lengths": _lengths(h.counts.size),
                "ranges": _RANGES,
            },
        )
        for h, epsilon, (_, mechanism) in cells
        for seed in seeds
    ]
    outcomes = iter(setting.trials.run("ranges", jobs))
    found: Errors = {}
    for h, epsilon, (label, _) in cells:
        by_length = zip(*(next(outcomes)["squared"] for _ in seeds), strict=True)
        found.setdefault((h.name, epsilon), {})[label] = [mean_and_error(trials) for trials in by_length]
    return found


def _figure_5(found: Errors, histograms: list[Histogram]) -> Result:
    numbers = [
        Number(f"epsilon {epsilon:g}", label, h.name, *found[h.name, epsilon][label][0], differs=_origin(h))
        for epsilon, h, label in product(_EPSILONS, histograms, _SORTED)
    ]
    return Result(
        name="figure_5",
        title="Figure 5: sorted counts",
        kind="points",
        x_label="",
        y_label="mean squared error of a count",
        numbers=numbers,
    )


def _figure_6(found: Errors, lengths: list[int], histogram: Histogram, number: int) -> Result:
    numbers = [
        Number(f"epsilon {epsilon:g}", label, length, mean, error, differs=_origin(histogram))
        for epsilon, label in product(_EPSILONS, TREES)
        for length, (mean, error) in zip(lengths, found[histogram.name, epsilon][label], strict=True)
    ]
    return Result(
        name=f"figure_6{chr(ord('a') + number)}",
        title=f"Figure 6: ranges of {histogram.name}, {histogram.counts.size:,} bins",
        kind="lines",
        x_label="length of the range (bins)",
        y_label="mean squared error",
        numbers=numbers,
        note=histogram.origin,
    )


def _origin(histogram: Histogram) -> str:
    return "" if histogram.origin == "the paper's" else histogram.origin


def _sorted_claim(found: Errors, histograms: list[Histogram]) -> Claim:
    """Check the paper's claim: at least ten times better on its three histograms."""
    least = paper_numbers("hay2010")["sorted_gain"]
    gains = {
        h.name: min(
            found[h.name, epsilon]["S~"][0][0] / found[h.name, epsilon]["S-bar"][0][0]
            for epsilon in _EPSILONS
        )
        for h in histograms
    }
    # The first three replace the paper's histograms.
    own = [gains[h.name] for h in histograms[:3]]
    return Claim(
        text="S-bar's error is at least ten times below S~'s on NetTrace, Social Network, Search Logs",
        paper=f">= {least}",
        here=", ".join(f"{name} {gain:.1f}" for name, gain in gains.items()),
        holds=min(own) >= least,
        differs="least ratio over the epsilons; holds is judged on the first three, which stand for the "
        "paper's; the gain is less where few counts repeat",
    )


def rounding_claim(found: Errors, histograms: list[Histogram]) -> Claim:
    """Check the paper's claim: lower errors on its three histograms, comparable on one.

    The exception is Social Network at the largest epsilon.
    """
    gains = {cell: ratio(row["S~r"][0], row["S-bar"][0]) for cell, row in found.items()}
    own = {h.name for h in histograms[:3]}
    comparable = (histograms[1].name, max(_EPSILONS))
    stated = [gain for cell, gain in gains.items() if cell[0] in own and cell != comparable]
    return Claim(
        text="S-bar's gain is not only rounding and sorting: its error is below S~r's",
        paper="all, comparable on Social Network at large epsilon",
        here=f"S~r / S-bar from {min(stated)[0]:.2f} to {max(stated)[0]:.1f}, "
        f"{gains[comparable][0]:.2f} on {comparable[0]} at epsilon {comparable[1]:g}; "
        f"on all from {min(gains.values())[0]:.2f}",
        holds=all(at_least(gain, 1.0) for gain in stated),
        differs="holds is judged on the first three histograms, but for what the paper calls comparable; "
        "where almost every count is another one, nothing can be averaged and rounding gains more",
        tolerance=WITHIN,
    )


def range_claims(found: Errors, lengths: dict[str, list[int]]) -> list[Claim]:
    paper = paper_numbers("hay2010")
    below = [
        bar[0] < tilde[0]
        for row in found.values()
        for bar, tilde in zip(row["H-bar"], row["H~"], strict=True)
    ]
    largest = [ratio(row["L~"][-1], row["H~"][-1]) for row in found.values()]
    left = [ratio(row["H-bar"][-1], row["L~"][-1]) for row in found.values()]
    # If epsilon is small, setting negative counts to zero changes errors.
    clear = {name: row for (name, epsilon), row in found.items() if epsilon == max(_EPSILONS)}
    crossings = {name: crossing(lengths[name], row["L~"], row["H~"]) for name, row in clear.items()}
    low, high = paper["largest_range_ratio"]
    least, most = paper["gain_on_larger_ranges"]
    single = min(row["H-bar"][0][0] / row["L~"][0][0] for row in found.values())
    shortest = min(crossing(lengths[name], row["L~"], row["H-bar"]) for (name, _), row in found.items())
    return [
        Claim(
            "H-bar's error is below H~'s at every length, epsilon and histogram",
            "all",
            _part(below),
            all(below),
        ),
        Claim(
            "H~ is better than L~ for ranges longer than about 2000 bins",
            f"about {paper['crossing_bins']}",
            ", ".join(f"{name} {bins:,.0f}" for name, bins in crossings.items()),
            all(
                paper["crossing_bins"] / 2 <= bins <= 2 * paper["crossing_bins"]
                for bins in crossings.values()
            ),
            "at epsilon 1; the place depends on the number of levels, and grows with it: the paper's trees "
            "have 16 and 17; inf where it lies beyond the longest range measured",
            "about: from half of it to twice",
        ),
        Claim(
            "L~ over H~ at the largest ranges",
            f"{low} to {high}",
            f"{min(largest)[0]:.1f} to {max(largest)[0]:.1f}",
            all(at_least(each, low) and at_most(each, high) for each in largest),
            "judged on every histogram and epsilon; fewer bins, smaller ratios: the paper's are for 2^15 and "
            "2^16 bins",
            WITHIN,
        ),
        Claim(
            "H-bar lowers the error of large ranges (largest length, against L~)",
            f"{least:.0%} to {most:.0%}",
            f"{1 - max(left)[0]:.0%} to {1 - min(left)[0]:.0%}",
            all(at_most(each, 1 - least) and at_least(each, 1 - most) for each in left),
            "the paper does not say for which lengths, nor against which of the two; sparse stretches set to "
            "zero gain more than its upper end",
            WITHIN,
        ),
        Claim(
            "H-bar can be better than L~ on short ranges, even single bins, where counts are sparse",
            "even single bins",
            f"from {shortest:,.0f} bins on; on single bins {single:.1f} times L~'s error at least",
            single < 1,
            "the unfolded NetTrace, which the paper shows it on, is not to be had",
        ),
    ]


def crossing(
    lengths: list[int], first: list[tuple[float, float]], second: list[tuple[float, float]]
) -> float:
    """Return the length from which the second error is below the first, interpolated in logarithms.

    If the second error is never below the first, return infinity.
    """
    gaps = [math.log(one[0] / other[0]) for one, other in zip(first, second, strict=True)]
    last_below = max((place for place, gap in enumerate(gaps) if gap <= 0), default=-1)
    if last_below < 0:
        return float(lengths[0])
    if last_below + 1 == len(gaps):
        return math.inf
    part = -gaps[last_below] / (gaps[last_below + 1] - gaps[last_below])
    return float(lengths[last_below] * (lengths[last_below + 1] / lengths[last_below]) ** part)


def _part(holds: list[bool]) -> str:
    return f"{sum(holds)} of {len(holds)}"


def _worst_query_claim(setting: Setting) -> Claim:
    bins = 2**15
    given = {"bins": bins, "start": 1, "end": bins - 1}
    tree, consistent = setting.trials.run(
        "the worst query", [Job(variance_of_range, {"mechanism": name, **given}) for name in ("h", "h_bar")]
    )
    ratio = tree["variance"] / consistent["variance"]
    least = paper_numbers("hay2010")["worst_query_ratio"]
    return Claim(
        text="all leaves but the first and last, tree of height 16: H~'s error over H-bar's",
        paper=f">= {least}",
        here=f"{ratio:.2f}",
        holds=ratio >= least - 0.005,
        differs="exact variances, no trials; the paper's is the lower bound of theorem 4 (iv)",
    )
