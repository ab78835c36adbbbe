"""What an analyst meets first: help, names, intervals, curves, tables, pictures, hints for wrong names."""

from __future__ import annotations

import inspect
import pydoc
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from matplotlib.figure import Figure
from scipy.stats import binom

import dphist
from dphist import SeededNoise, TreeCounter, plan_product, plan_tree
from dphist.laws.interval import half_width
from dphist.laws.law import WeightedNoise
from dphist.mechanisms.registry import CALIBRATED
from dphist.product.answers import Cdf, Histogram
from dphist.product.counter import ProductCounter
from dphist.product.forest import ProductForest

COUNTS = np.array([120, 80, 95, 14, 3, 0, 7, 52])
RANGES = np.array([[0, 3], [2, 8], [5, 6]])


def test_help_opens_with_tasks_and_dir_lists_names_that_exist() -> None:
    page = pydoc.plain(pydoc.render_doc(dphist))
    for task in ("A histogram", "A cumulative distribution", "A running count", "The standard error"):
        assert task in page[:4000]
    assert dir(dphist) == sorted(dphist.__all__)
    assert all(hasattr(dphist, name) for name in dir(dphist))
    assert re.fullmatch(r"\d+\.\d+\.\d+", dphist.__version__)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dphist.describe("dwa"), "mechanism 'dwa' is not known; did you mean 'dawa'? choose from"),
        (lambda: dphist.release("dawa", [1], 1, merg=True), "no option 'merg'; did you mean 'merge'?"),
        (lambda: dphist.describe("HB"), "did you mean 'hb'?"),
        (lambda: dphist.describe("Laplace"), "did you mean 'identity'?"),
        (lambda: released([1], "hb", 1), "write for example release('hb', counts, 0.5)"),
        (lambda: released("hb", {0: 1}, 1), "a whole number for each bin, as [120, 80, 95]"),
        (lambda: dphist.release("hb", pandas.DataFrame({"n": [1]}), 1), "shape (1, 1); this mechanism needs"),
        (lambda: dphist.release("hb", pandas.Series([1, None]), 1), "counts[1] is nan; counts are finite"),
        (lambda: dphist.release("hb", [1, -2], 1), "counts[1] is -2; counts are not negative"),
        (lambda: dphist.release("hb", [1], 1e-99), "noise scale of about 2^328 is outside"),
        (lambda: dphist.release("hb", [1], 1, seed=3), "write noise=SeededNoise(seed), in tests only"),
        (lambda: released("hb", [1], 1, noise=3), "noise: 3 is no source of noise; leave noise out"),
        (lambda: dphist.release("hb", [1], 1).answer([0, 1]), "needs rows [start, end]"),
        (lambda: dphist.release("hb", [1], 1).interval([[0, 1]], 95), "confidence: 95 is outside (0, 0.999]"),
        (lambda: getattr(dphist, "relase"), "did you mean 'release'?"),  # noqa: B009
        (lambda: dphist.release("dawa", [1], 1).interval([[0, 1]]), "error of dawa depends on the counts"),
        (lambda: dphist.release("hb", [1], 1).interval([[0, 1]], 1.0), "confidence: 1.0 is outside"),
        (lambda: dphist.release("quadtree", [[1]], 1).cdf(), "two dimensions"),
        (lambda: dphist.running_counts([], 1), "n of at least 1"),
        (lambda: dphist.running_counts([0.5], 1), "exact integers"),
        (lambda: TreeCounter(plan_tree(4, 1)).curve(), "1 cell and a bin"),
        (lambda: curve_of([1, 2])(0), "begins at bin 1"),
        (lambda: curve_of([1, 2]).quantile(1.0), "q: 1.0 is outside"),
        (lambda: quantile([0.5]), "q: [0.5] is outside (0, 1); write a number"),
    ],
)
def test_a_wrong_call_is_one_line_that_says_what_to_do(call: Any, said: str) -> None:
    with pytest.raises((ValueError, AttributeError)) as refused:
        call()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


released: Any = dphist.release  # an analyst's mistakes have wrong types
quantile: Any = dphist.running_counts([1, 2], 1).quantile


def curve_of(counts: list[int]) -> dphist.Curve:
    return dphist.running_counts(counts, 1, noise=SeededNoise(1))


def test_a_release_and_a_mechanism_are_readable() -> None:
    assert "epsilon 1.00e+99 for" in repr(dphist.release("hb", COUNTS, 1e99))
    text = repr(dphist.release("hb", COUNTS, Fraction(1, 2), noise=SeededNoise(1)))
    assert "release of 8 bins by hb" in text
    assert "epsilon 1/2 for one event added or removed" in text
    assert "NOT PRIVATE" in text
    assert "NOT PRIVATE" not in repr(dphist.release("hb", COUNTS, 1))
    assert "not stated" in repr(dphist.release("mwem", COUNTS, 1))
    for name in dphist.names():
        assert " at 0x" not in repr(dphist.describe(name))
        assert all(option in repr(dphist.describe(name)) for option in dphist.describe(name).options)


def test_series_of_pandas_and_numbers_of_numpy_are_read_as_lists_and_floats() -> None:
    as_floats = pandas.Series(COUNTS, dtype=float)
    for given in (as_floats, as_floats.astype("Int64"), COUNTS):
        made = dphist.release("hb", given, np.float32(0.1), noise=SeededNoise(1))  # type: ignore[arg-type]
        assert (made.epsilon, round(made.counts[0])) == (Fraction(1, 10), round(_FIRST.counts[0]))
    running = dphist.running_counts(as_floats, 1, noise=SeededNoise(1))
    np.testing.assert_array_equal(running.values, curve_of(list(COUNTS)).values)


_FIRST = dphist.release("hb", COUNTS, 0.1, noise=SeededNoise(1))


def test_interval_of_independent_noise_is_that_of_its_exact_law() -> None:
    made = dphist.release("identity", COUNTS, Fraction(1, 10), noise=SeededNoise(5))
    found = made.interval(RANGES)
    reach = (np.asarray(found.upper) - np.asarray(found.lower)) / 2
    for half, (start, end) in zip(reach, RANGES, strict=True):
        law = WeightedNoise.of([(1.0, int(end - start), 10.0)])
        # 2,048 draws promise 0.95 with a true level of about 0.97.
        assert half_width(law, 0.95).value <= half + 1e-6 <= half_width(law, 0.985).value + 2e-6
    np.testing.assert_allclose(np.asarray(found.lower) + reach, made.answer(RANGES))


@pytest.mark.slow
@pytest.mark.parametrize("name", CALIBRATED)
def test_intervals_hold_as_often_as_stated(name: str) -> None:
    """Half widths depend on no count, so those of one release serve for 400; false alarms below 1e-7."""
    plane = dphist.describe(name).dimensions == 2
    counts = COUNTS.reshape(2, 4) if plane else COUNTS
    ranges = np.array([[0, 2, 0, 3], [1, 2, 1, 2]]) if plane else RANGES
    options: dict[str, Any] = {"neighbours": "substitute"} if name == "cdf_refined" else {}
    truth = dphist.release(name, counts, 10**9, noise=SeededNoise(0), **options).answer(ranges)
    first = dphist.release(name, counts, 1, noise=SeededNoise(9), **options)
    reach = np.asarray(first.interval(ranges, 0.9).upper) - first.answer(ranges)
    answers = [
        dphist.release(name, counts, 1, noise=SeededNoise(100 + seed), **options).answer(ranges)
        for seed in range(400)
    ]
    held = (np.abs(np.array(answers) - np.rint(truth)) <= reach + 1e-6).sum(axis=0)
    assert held.min() >= binom.ppf(1e-8, 400, 0.9)
    exact = first.variance(ranges)
    assert exact is not None
    # Far too wide intervals would hold as well: at 0.9 a sum of Laplace noise is within 1.4 to 2 deviations.
    known = exact > 0
    assert (reach[known] < 2.4 * np.sqrt(exact[known]) + 1).all()


def test_cdf_is_a_curve_with_a_band_a_median_a_table_and_a_picture() -> None:
    curve = dphist.release("cdf_tree", COUNTS, 10**6, noise=SeededNoise(1)).cdf(0.9)
    np.testing.assert_allclose(curve.values, np.append(0, COUNTS.cumsum()), atol=1e-3)
    assert curve([0, 3]).round().tolist() == [0, 295]
    assert curve.quantile(0.5) == 2  # 120 + 80 of 371
    table = curve.to_pandas()
    assert table.index.name == "edge"
    assert list(table.columns)[1:] == ["lower", "upper"]
    assert (table["lower"] <= table["upper"]).all()
    axes = curve.plot(Figure().subplots())
    assert len(axes.lines) == len(axes.collections) == 1
    assert "90 %, each" in axes.get_legend().get_texts()[0].get_text()


def test_without_a_stated_error_a_curve_has_no_band() -> None:
    made = dphist.release("dawa", COUNTS, 1, noise=SeededNoise(1))
    assert list(made.to_pandas().columns) == ["events by dawa"]
    assert len(made.plot().collections) == 0


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_running_counts_are_the_counters_answers_with_their_intervals(release: Any) -> None:
    counter = dphist.AnticipatingCounter if release == "anticipating" else TreeCounter
    running = counter(plan_tree(20, 1, release=release), SeededNoise(4))
    running.push_many(np.arange(20)[:, np.newaxis])
    curve = running.curve(0.9)
    assert curve.lower is not None
    assert curve.upper is not None
    for place in (1, 7, 20):
        one = running.prefix(place)
        assert curve(place) == pytest.approx(one.value, abs=1e-3)
        # A whole table is inverted with a coarser step than a single law.
        assert curve.upper[place - 1] == pytest.approx(one.interval(0.9).upper, abs=0.05 * one.stderr + 0.01)
    direct = dphist.running_counts(np.arange(20), 1, 0.9, SeededNoise(4))
    if release == "anticipating":
        np.testing.assert_array_equal(direct.values, curve.values)


def test_counters_draw_the_systems_noise_unless_told() -> None:
    two = [dphist.running_counts([0] * 50, 0.01).values.tolist() for _ in range(2)]
    assert two[0] != two[1]
    product = ProductCounter(plan_product(3, 0.01, keys=2, buckets=2))
    forest = ProductForest(product.design)
    forest.append_many(product.push_many(np.zeros((3, 4), np.int64)))
    cdf = Histogram.of(forest.range(0, 3)).cdf()
    assert isinstance(cdf, Cdf)
    curve = cdf.curve()
    assert curve.upper is not None
    assert curve.upper.tolist() == cdf.upper.tolist()
    assert not curve.of_each


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r'pandas is not installed.*pip install "dphist\[frames\]"'):
        curve_of([1]).to_pandas()


def reference() -> str:
    """Return the table of ``docs/reference/dphist.md``, from signatures and first lines of docstrings."""
    rows = {True: ["| function | what it does |", "|---|---|"], False: ["| class | what it is | methods |"]}
    rows[False].append("|---|---|---|")
    for name in dphist.__all__:
        one = getattr(dphist, name)
        first = (inspect.getdoc(one) or "").partition("\n")[0]
        if inspect.isfunction(one):
            rows[True].append(f"| `{name}({', '.join(inspect.signature(one).parameters)})` | {first} |")
        elif inspect.isclass(one):
            own = [method for method in vars(one) if callable(getattr(one, method)) and method[0] != "_"]
            methods = ", ".join(f"`{method}`" for method in sorted(own))
            rows[False].append(f"| `{name}` | {first} | {methods} |")
    return "\n\n".join("\n".join(rows[functions]) for functions in (True, False))


def test_reference_can_be_read_in_a_clone_and_is_that_of_the_docstrings() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "dphist.md").read_text(encoding="utf-8")
    assert reference() in page
