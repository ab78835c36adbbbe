"""Figures 4 to 7 of DAWA's paper: the effect of each of its two stages, and rectangles over a map."""

from __future__ import annotations

from itertools import product

from research.contenders import CONTENDERS, Contender, Question, ask
from research.findings import Claim, Number, Result, mean_and_error, paper_numbers
from research.histograms import Histogram, Setting
from research.intervals import rectangles, workloads
from research.measures import least_partition, private_partition_cost
from research.trials import Job, Outcome

_EPSILON = 0.1
_STAGE_1 = 0.025  # a quarter of epsilon
_BUCKET_COST = 10.0  # epsilon_2 = 0.1 in the cost, as the paper takes it
_SELECTORS = ("dawa", "dawa_printed", "dawa_authors", "dawa_all", "p_hp")
_STAGE_2 = ("dawa", "greedy_h", "partition_laplace", "partition_geometric", "partition_uniform")
_FIGURE_6 = ("nettrace", "searchlogs", "hepph")
_QUERIES = 2000

Found = tuple[list[Result], list[Claim], dict[tuple[str, str], list[Outcome]]]
_PLANE_EPSILONS = (0.01, 0.05, 0.1, 0.5)
_QUICK_PLANE_EPSILONS = (0.01, 0.1)
_SHAPES = ((1.0, 1.0), (5.0, 5.0), (10.0, 10.0), (15.0, 0.2))
# Degrees of longitude and latitude of the paper's region, as Cormode et al. (2012) give it.
_REGION = (21.82, 17.67)
_PLANE = {
    "dawa": Contender("dawa_hilbert", "DAWA"),
    "quadtree": Contender("quadtree", "QuadTree"),
    "hybridtree": Contender("hybridtree", "HybridTree"),
    "dpcube": Contender("dpcube", "DPCube"),
    "mwem": Contender("mwem_plane", "MWEM"),
    "adaptive_grid": Contender("adaptive_grid", "adaptive grid", differs="not in the paper"),
    "identity": Contender("identity_plane", "Identity", differs="not in the paper"),
}
_RECTANGLES = 500


def reproduce(setting: Setting, histograms: list[Histogram]) -> Found:
    """Return figures 4 to 6, their claims, and the trials on uniform intervals (for the times in table 3)."""
    outcomes = _outcomes(setting, histograms)
    errors = {cell: mean_and_error(o["absolute"] for o in found) for cell, found in outcomes.items()}
    costs, figure_5 = _figure_5(setting, histograms)
    uniform = {(name, h): found for (name, h, kind), found in outcomes.items() if kind == "uniform"}
    results = [_figure_4(errors, histograms), figure_5, _figure_6(errors, histograms)]
    return results, [*_partition_claims(costs, histograms), *_tree_claims(errors, histograms)], uniform


def _outcomes(setting: Setting, histograms: list[Histogram]) -> dict[tuple[str, str, str], list[Outcome]]:
    kinds = [
        workloads(histograms[0].counts.size, _QUERIES, seed) for seed in range(1 if setting.quick else 5)
    ]
    questions = {
        (name, h.name, kind): Question(CONTENDERS[name], h, _EPSILON, [one[kind] for one in kinds])
        for name, h, kind in product(_STAGE_2, histograms, kinds[0])
        if kind == "uniform" or h.name.removesuffix("-like") in _FIGURE_6
    }
    return ask(setting, "DAWA's stages", questions, setting.repeats(paper=3, quick=1))


def _figure_4(errors: dict[tuple[str, str, str], tuple[float, float]], histograms: list[Histogram]) -> Result:
    return Result(
        name="figure_4",
        title="Figure 4: DAWA without one of its stages, uniform intervals, epsilon 0.1",
        kind="points",
        x_label="",
        y_label="mean absolute error a query",
        numbers=[
            Number("", CONTENDERS[name].label, h.name, *errors[name, h.name, "uniform"])
            for name, h in product(("dawa", "greedy_h", "partition_laplace"), histograms)
        ],
    )


def _figure_5(setting: Setting, histograms: list[Histogram]) -> tuple[dict[tuple[str, str], float], Result]:
    """Compare the noise-free costs of the chosen partitions."""
    best = setting.trials.run(
        "least costs",
        [Job(least_partition, {"counts": h.counts, "bucket_cost": _BUCKET_COST}) for h in histograms],
    )
    costs = {("optimal", h.name): float(outcome["cost"]) for h, outcome in zip(histograms, best, strict=True)}
    numbers = [Number("", "optimal", h.name, costs["optimal", h.name]) for h in histograms]
    seeds = range(setting.repeats(paper=3, quick=1))
    cells = list(product(_SELECTORS, histograms))
    jobs = [
        Job(
            private_partition_cost,
            {
                "mechanism": CONTENDERS[name].mechanism,
                "options": {key: value for key, value in CONTENDERS[name].options.items() if key != "tree"},
                "counts": h.counts,
                "epsilon_partition": _STAGE_1,
                "bucket_cost": _BUCKET_COST,
                "seed": seed,
            },
        )
        for name, h in cells
        for seed in seeds
    ]
    outcomes = iter(setting.trials.run("chosen partitions", jobs))
    for name, h in cells:
        mean, error = mean_and_error(next(outcomes)["cost"] for _ in seeds)
        costs[name, h.name] = mean
        numbers.append(
            Number("", CONTENDERS[name].label, h.name, mean, error, differs=CONTENDERS[name].differs)
        )
    return costs, Result(
        name="figure_5",
        title="Figure 5: cost of the chosen partition, epsilon 0.1",
        kind="points",
        x_label="",
        y_label="deviation + 10 for each bucket (counts)",
        numbers=numbers,
        note="the same budget for every choice of a partition: 0.025",
    )


def _figure_6(errors: dict[tuple[str, str, str], tuple[float, float]], histograms: list[Histogram]) -> Result:
    shown = [h for h in histograms if h.name.removesuffix("-like") in _FIGURE_6]
    kinds = dict.fromkeys(kind for _, _, kind in errors)
    return Result(
        name="figure_6",
        title="Figure 6: second stages on four workloads, epsilon 0.1",
        kind="points",
        x_label="",
        y_label="mean absolute error a query",
        numbers=[
            Number(kind, CONTENDERS[name].label, h.name, *errors[name, h.name, kind])
            for kind, name, h in product(kinds, _STAGE_2, shown)
            if name != "greedy_h"
        ],
    )


def _partition_claims(costs: dict[tuple[str, str], float], histograms: list[Histogram]) -> list[Claim]:
    paper = paper_numbers("dawa2014")
    over = {name: [costs[name, h.name] / costs["optimal", h.name] for h in histograms] for name in _SELECTORS}
    hard = [h for h in histograms if h.name.removesuffix("-like") in ("income", "patent")]
    return [
        Claim(
            "The partition of DAWA over all lengths costs little more than the optimal one",
            "close to optimal",
            f"{min(over['dawa_all']):.2f} to {max(over['dawa_all']):.2f} times",
            max(over["dawa_all"]) < 2,
            "full noise of theorem 2; the authors' stage 1 (powers of two): "
            f"{min(over['dawa_authors']):.2f} to {max(over['dawa_authors']):.2f} times",
        ),
        Claim(
            "P-HP's partition costs orders of magnitude more on Income and Patent",
            f">= {paper['p_hp_cost']:g}",
            ", ".join(f"{h.name} {costs['p_hp', h.name]:.2g}" for h in hard),
            all(costs["p_hp", h.name] >= paper["p_hp_cost"] for h in hard),
            "our P-HP spends the budget of its last depth, which the authors' left unused",
        ),
    ]


def _tree_claims(
    errors: dict[tuple[str, str, str], tuple[float, float]], histograms: list[Histogram]
) -> list[Claim]:
    shown = [h.name for h in histograms if h.name.removesuffix("-like") in _FIGURE_6]
    uniform = [
        errors["dawa", h, "uniform"][0] / errors["partition_geometric", h, "uniform"][0] for h in shown
    ]
    single = [errors["dawa", h, "identity"][0] / errors["partition_laplace", h, "identity"][0] for h in shown]
    return [
        Claim(
            "DAWA is better than Partition+Geometric on uniform intervals",
            "always",
            f"{min(uniform):.2f} to {max(uniform):.2f} of its error",
            max(uniform) < 1,
        ),
        Claim(
            "On single bins DAWA performs as Partition+Laplace does",
            "exactly the same",
            f"{min(single):.3f} to {max(single):.3f} of its error",
            max(abs(ratio - 1) for ratio in single) < 0.02,
        ),
    ]


def figure_7(setting: Setting, histogram: Histogram) -> Result:
    """Measure rectangles of the paper's four shapes, as parts of its region."""
    if setting.quick:
        counts = histogram.counts.reshape(32, 8, 32, 8).sum(axis=(1, 3))
        histogram = Histogram(histogram.name, counts, f"{histogram.origin}, 32 x 32", histogram.real)
    epsilons = _QUICK_PLANE_EPSILONS if setting.quick else _PLANE_EPSILONS
    rows, columns = histogram.counts.shape
    asked = {
        (width, height): rectangles(
            (rows, columns),
            max(1, round(rows * height / _REGION[1])),
            max(1, round(columns * width / _REGION[0])),
            _RECTANGLES,
            seed=number,
        )
        for number, (width, height) in enumerate(_SHAPES)
    }
    questions = {
        (name, shape, epsilon): Question(_PLANE[name], histogram, epsilon, [asked[shape]])
        for name, shape, epsilon in product(_PLANE, _SHAPES, epsilons)
    }
    outcomes = ask(setting, "rectangles", questions, setting.repeats(paper=3, quick=1))
    return Result(
        name="figure_7",
        title=f"Figure 7: rectangles over {histogram.name}, {rows} x {columns} bins",
        kind="lines",
        x_label="epsilon",
        y_label="mean absolute error a query",
        numbers=[
            Number(
                f"{width:g} x {height:g} degrees",
                _PLANE[name].label,
                epsilon,
                *mean_and_error(o["absolute"] for o in outcomes[name, (width, height), epsilon]),
                differs=f"{histogram.origin}, not the paper's road intersections; 256 bins across, not 1024",
            )
            for (width, height), name, epsilon in product(_SHAPES, _PLANE, epsilons)
        ],
        note=histogram.origin,
    )
