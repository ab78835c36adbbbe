"""Rameshwar, Tandon: error of CDFs by bins and tree, the best branching, the gain of consistency."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

from dphist.arrays import Int64Array
from dphist.cdf import CdfTree, best_tree, tree_of
from dphist.noise import SeededNoise
from research.findings import (
    TOLERANCE,
    WITHIN,
    Claim,
    Findings,
    Measured,
    Number,
    Result,
    at_most,
    mean_and_error,
    paper_numbers,
    ratio,
)
from research.histograms import Setting
from research.measures import cdf_errors
from research.trials import Job

_BINS = (16, 17, 64, 128, 289, 512, 1024, 2048, 4096, 4913)
_QUICK_BINS = (17, 64, 289, 1024)
# (bins, samples) of the consistency experiment. A prime number of bins has a tree of height one, 289 = 17^2
# of two.
_CONSISTENT = ((17, 100), (19, 100), (17, 1000), (289, 1000))
_CONSISTENT_EPSILONS = (0.1, 1.0)
_SAMPLES = 10_000
TREES = {
    "direct": "cdf_direct",
    "histogram": "cdf_histogram",
    "binary tree": "cdf_binary",
    "17 at every level": "cdf_tree",
    "optimal tree": "cdf_tree",
    "optimal tree, refined": "cdf_refined",
}
_CHANCES = "samples uniform, as in the paper; sizes are ours, the paper's were lost in our copy of its text"
_LOST = "the paper's numbers were lost in our copy of its text"


def reproduce(setting: Setting) -> Findings:
    """Measure the errors of CDFs of uniform samples (N public), and compute the errors of theorem IV.1."""
    bins = _QUICK_BINS if setting.quick else _BINS
    errors = _errors_by_bins(setting, bins)
    consistency, gains = _consistency(setting)
    return Findings(
        paper="cdf",
        title="Rameshwar, Tandon, Optimal tree-based mechanisms for differentially private approximate CDFs",
        data=f"generated: {_SAMPLES:,} uniform samples; for consistency "
        + ", ".join(f"{samples:,} in {size} bins" for size, samples in _CONSISTENT)
        + "; as in the paper neighbours differ by one event moved and N is public",
        results=[_figure_1(errors, bins), _branching(), _refinement(errors, bins), *consistency],
        claims=[
            *tree_claims(errors, bins),
            _branching_claim(),
            *_integer_claims(),
            consistency_claim(consistency, gains),
        ],
    )


def theory(label: str, bins: int) -> float | None:
    """Return a mechanism's summed squared error of the cumulative counts at epsilon 1, None if unknown.

    For N public and continuous noise: lemmas III.1 and III.2, theorem IV.1.

    >>> theory("histogram", 3) == 2 * 2**2 * (1 + 2)
    True
    """
    if label == "direct":
        return 2.0 * (bins - 1) ** 3
    shapes: dict[str, Callable[[], CdfTree]] = {
        "histogram": lambda: tree_of(bins, (bins,), budgets="equal"),
        "binary tree": lambda: tree_of(bins, (2,) * max(1, (bins - 1).bit_length()), budgets="equal"),
        "17 at every level": lambda: tree_of(bins, _seventeens(bins), budgets="equal"),
        "optimal tree": lambda: best_tree(bins),
    }
    return shapes[label]().squared_error(1.0) if label in shapes else None


def _seventeens(bins: int) -> tuple[int, ...]:
    height = 1
    while 17**height < bins:
        height += 1
    return (17,) * height


def _uniform_counts(bins: int, samples: int, seed: int) -> Int64Array:
    return SeededNoise(seed).generator.multinomial(samples, [1 / bins] * bins)


def _errors_by_bins(setting: Setting, bins: tuple[int, ...]) -> dict[tuple[str, int], tuple[float, float]]:
    """Measure every mechanism at epsilon 1, with new samples in every trial."""
    seeds = range(setting.repeats(paper=200, quick=20))
    cells = list(product(TREES, bins))
    samples = {(size, seed): _uniform_counts(size, _SAMPLES, seed) for size in bins for seed in seeds}
    jobs = [
        Job(
            cdf_errors,
            {
                "mechanism": TREES[label],
                "counts": samples[size, seed],
                "epsilon": 1.0,
                "seed": seed,
                "options": {"branching": list(_seventeens(size)), "budgets": "equal"}
                if label == "17 at every level"
                else {},
            },
        )
        for label, size in cells
        for seed in seeds
    ]
    outcomes = iter(setting.trials.run("CDF errors", jobs))
    return {cell: mean_and_error(next(outcomes)["raw L2"] for _ in seeds) for cell in cells}


def _figure_1(errors: dict[tuple[str, int], tuple[float, float]], bins: tuple[int, ...]) -> Result:
    numbers = [
        Number("", label, size, *errors[label, size], differs=f"theory {known:.6g}" if known else _LOST)
        for label, size in product(TREES, bins)
        for known in [theory(label, size)]
    ]
    return Result(
        name="figure_1",
        title="Figure 1: squared error of a CDF by bins, epsilon 1",
        kind="lines",
        x_label="bins m",
        y_label="summed squared error (counts)",
        numbers=numbers,
        note=_CHANCES,
    )


def _branching() -> Result:
    """Tabulate (k - 1) / ln^3 k: times a constant, the error of trees with branching k at every level."""
    least = (17 - 1) / math.log(17) ** 3
    return Result(
        name="lemma_iv3",
        title="Lemma IV.3: error of a tree by its branching, to the least",
        kind="lines",
        x_label="branching k at every level",
        y_label="error / error at 17",
        numbers=[Number("", "(k - 1) / ln^3 k", k, (k - 1) / math.log(k) ** 3 / least) for k in range(2, 65)],
    )


def _refinement(errors: dict[tuple[str, int], tuple[float, float]], bins: tuple[int, ...]) -> Result:
    return Result(
        name="refinement",
        title="Appendix B: error of the refined tree over the tree's",
        kind="table",
        x_label="bins",
        y_label="ratio",
        numbers=[
            Number(
                "",
                "refined / optimal tree",
                size,
                errors["optimal tree, refined", size][0] / errors["optimal tree", size][0],
                differs=_LOST,
            )
            for size in bins
        ],
    )


def _consistency(setting: Setting) -> tuple[list[Result], list[Measured]]:
    """Measure L1 and L2 errors of noisy CDFs and of the consistent CDFs closest to them (section VI).

    Returns: results, and by how much consistency changes the error in each trial. Both errors of a trial have
        the same noise, so their difference varies little by chance.
    """
    seeds = range(setting.repeats(paper=1000, quick=50))
    cells = list(product(_CONSISTENT, _CONSISTENT_EPSILONS))
    jobs = [
        Job(
            cdf_errors,
            {
                "mechanism": "cdf_tree",
                "counts": _uniform_counts(bins, samples, seed),
                "epsilon": epsilon,
                "seed": seed,
                "options": {"budgets": "equal"},
            },
        )
        for (bins, samples), epsilon in cells
        for seed in seeds
    ]
    outcomes = iter(setting.trials.run("consistency", jobs))
    numbers: dict[str, list[Number]] = {"L1": [], "L2": []}
    added = []
    for (bins, samples), epsilon in cells:
        trials = [next(outcomes) for _ in seeds]
        for norm, form in product(numbers, ("raw", "consistent_absolute", "consistent_squared")):
            # L1 is normalised by N, squared L2 by N^2, as errors of the CDF.
            unit = samples if norm == "L1" else samples**2
            mean, error = mean_and_error(trial[f"{form} {norm}"] / unit for trial in trials)
            if form != "raw":
                added.append(
                    mean_and_error(trial[f"{form} {norm}"] - trial[f"raw {norm}"] for trial in trials)
                )
            label = {
                "raw": "as measured",
                "consistent_absolute": "consistent, closest in L1",
                "consistent_squared": "consistent, closest in L2",
            }[form]
            numbers[norm].append(
                Number(f"epsilon {epsilon:g}", label, f"m={bins}, N={samples}", mean, error, differs=_LOST)
            )
    norms = {"L1": "L1", "L2": "squared L2"}
    results = [
        Result(
            name=f"consistency_{norm.lower()}",
            title=f"Section VI: {norms[norm]} error of the CDF before and after consistency",
            kind="points",
            x_label="",
            y_label=f"{norms[norm]} error of the CDF",
            numbers=found,
            note=_CHANCES,
        )
        for norm, found in numbers.items()
    ]
    return results, added


def tree_claims(errors: dict[tuple[str, int], tuple[float, float]], bins: tuple[int, ...]) -> list[Claim]:
    off = [
        abs(errors[label, size][0] - known) / errors[label, size][1]
        for label, size in product(TREES, bins)
        if (known := theory(label, size)) is not None
    ]
    small = [size for size in bins if errors["histogram", size][0] < errors["binary tree", size][0]]
    powers = [size for size in bins if 17 ** len(_seventeens(size)) == size]
    best = min(bins, key=lambda size: abs(size - 289))
    refined = [errors["optimal tree, refined", size][0] / errors["optimal tree", size][0] for size in bins]
    return [
        Claim(
            "Measured errors are those of lemmas III.1 and III.2 and theorem IV.1",
            "equal",
            f"within {max(off):.1f} standard errors over {len(off)} configurations",
            max(off) < 5,
        ),
        Claim(
            "For few bins the histogram is better than even the binary tree",
            "yes",
            f"up to {max(small, default=0)} bins",
            bool(small),
            "for which m the paper shows it was lost in our copy of its text",
        ),
        Claim(
            f"With m a power of 17 ({', '.join(map(str, powers))}), 17 at every level beats "
            "direct, histogram, binary tree",
            "yes",
            f"at {best} bins "
            + ", ".join(f"{label} {errors[label, best][0]:.3g}" for label in list(TREES)[:4]),
            all(
                at_most(ratio(errors["17 at every level", size], errors[other, size]), 1.0)
                for size in powers
                for other in ("direct", "histogram", "binary tree")
            ),
            "at 17 bins it is the histogram, and has its error",
            WITHIN,
        ),
        Claim(
            "Refinement lowers the error much further (lemma IV.4)",
            "much lower",
            f"{min(refined):.2f} to {max(refined):.2f} of it",
            max(refined) < 1,
            _LOST,
        ),
    ]


def _branching_claim() -> Claim:
    """Check the paper's best branching: solve k ln k = 3 (k - 1) by bisection between 10 and 30."""
    paper = paper_numbers("cdf")
    low, high = 10.0, 30.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.log(middle) < 3 * (middle - 1) else (low, middle)
    whole = min(range(2, 200), key=lambda k: (k - 1) / math.log(k) ** 3)
    return Claim(
        "The best common branching, over the reals and over whole numbers",
        f"{paper['best_real_branching']}, {paper['best_equal_branching']}",
        f"{low:.3f}, {whole}",
        whole == paper["best_equal_branching"] and abs(low - paper["best_real_branching"]) < 0.05,
    )


def _integer_claims() -> list[Claim]:
    powers = {prime: best_tree(prime**2, budgets="equal", padding=False).branching for prime in (17, 19, 23)}
    two = best_tree(2**16, budgets="equal", padding=False)
    exponents = sorted(branch.bit_length() - 1 for branch in two.branching)
    return [
        Claim(
            "Corollary V.1: for m = p^t with a prime p >= 17 the best tree has p at every level",
            "(p, p) for p^2",
            ", ".join(str(shape) for shape in powers.values()),
            all(shape == (prime, prime) for prime, shape in powers.items()),
        ),
        Claim(
            "Theorem V.1: for m = 2^16 the exponents of the best tree are as even as its height allows",
            "differ by at most 1",
            f"{two.branching}",
            max(exponents) - min(exponents) <= 1,
            "searched over all factorizations",
        ),
    ]


def consistency_claim(results: list[Result], added: list[Measured]) -> Claim:
    """Check the paper's claim that consistency lowers errors.

    Here it holds if no error is higher and some error is lower beyond chance.
    """
    kept = []
    for result in results:
        for number in result.numbers:
            if number.series != "as measured":
                raw = next(
                    other.here
                    for other in result.numbers
                    if (other.panel, other.x, other.series) == (number.panel, number.x, "as measured")
                )
                kept.append(number.here / raw)
    return Claim(
        "Consistency lowers both L1 and L2 errors",
        "yes",
        f"{min(kept):.2f} to {max(kept):.2f} of what they were",
        all(at_most(each, 0.0) for each in added) and any(mean < -TOLERANCE * error for mean, error in added),
        f"{_LOST}; unchanged where noise is too small to break the order",
        f"{WITHIN} of the differences in the same trials",
    )
