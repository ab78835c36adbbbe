"""Figure 7 of DAWA's paper: rectangles of four shapes over a map."""

from __future__ import annotations

from itertools import product

from research.contenders import Contender, Question, ask
from research.findings import Number, Result, mean_and_error
from research.histograms import Histogram, Setting
from research.intervals import rectangles

_EPSILONS = (0.01, 0.05, 0.1, 0.5)
_QUICK_EPSILONS = (0.01, 0.1)
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
_QUERIES = 500


def figure_7(setting: Setting, histogram: Histogram) -> Result:
    """Measure rectangles of the paper's four shapes, as parts of its region."""
    if setting.quick:
        counts = histogram.counts.reshape(32, 8, 32, 8).sum(axis=(1, 3))
        histogram = Histogram(histogram.name, counts, f"{histogram.origin}, 32 x 32", histogram.real)
    epsilons = _QUICK_EPSILONS if setting.quick else _EPSILONS
    rows, columns = histogram.counts.shape
    asked = {
        (width, height): rectangles(
            (rows, columns),
            max(1, round(rows * height / _REGION[1])),
            max(1, round(columns * width / _REGION[0])),
            _QUERIES,
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
