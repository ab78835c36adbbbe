"""The command end to end: quick runs on generated data show what the papers claim of all data."""

import csv

import pytest

from research import datasets, report
from research.findings import Claim, Findings, Number, Result, paper_numbers
from research.report import write


def read(folder, name):
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("paper", ["hay2010", "dawa2014", "cdf"])
def test_a_quick_run_leaves_numbers_claims_figures_and_a_page(quick, paper):
    _, folder = quick(paper)
    claims = read(folder, "claims")
    assert len(claims) >= 8
    assert {row["holds"] for row in claims} <= {"yes", "no"}
    page = (folder / "README.md").read_text(encoding="utf-8")
    for row in claims:
        assert row["claim"] in page
    tables = [path for path in folder.glob("*.csv") if path.stem != "claims"]
    assert len(tables) >= 4
    for path in tables:
        rows = read(folder, path.stem)
        assert rows
        assert all(float(row["here"]) >= 0 for row in rows)
        assert f"({path.name})" in page
    for figure in folder.glob("*.png"):
        assert figure.read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in figure.with_suffix(".svg").read_text(encoding="utf-8")
    assert bool(list(folder.glob("*.png"))) == report.can_draw()


@pytest.mark.parametrize("paper", ["hay2010", "dawa2014"])
def test_without_the_papers_data_it_says_so(quick, paper):
    printed, folder = quick(paper)
    assert "DPHIST_DATA is not set" in printed.stderr
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert "generated" in page.split("## ")[0]
    assert "(the paper's)" not in page


def test_number_of_trials_is_the_one_asked_for_and_each_runs_once(tmp_path, run_reproduce, monkeypatch):
    # The library's source may change while tests run; then trials are rightly run again.
    monkeypatch.setattr("research.trials.source_hash", lambda: "one source")
    made = run_reproduce("cdf", "--quick", "--trials", 2, "--out", tmp_path)
    # 4 numbers of bins x 6 trees, and 8 configurations of consistency.
    assert f" {2 * (4 * 6 + 8)} trials run now" in made.stdout
    before = {path.name: path.read_bytes() for path in tmp_path.rglob("*.csv")}
    again = run_reproduce("cdf", "--quick", "--trials", 2, "--out", tmp_path)
    assert " 0 trials run now" in again.stdout
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*.csv")} == before


def test_sorted_counts_gain_tenfold_and_every_tree_gains_by_consistency(numbers):
    errors = numbers("hay2010", "figure_5")
    ratios = {
        (panel, x): errors[panel, "S~", x] / errors[panel, "S-bar", x]
        for panel, series, x in errors
        if series == "S~"
    }
    assert len(ratios) >= 9
    assert min(ratios.values()) >= 10
    for figure in ("figure_6a", "figure_6b"):
        ranges = numbers("hay2010", figure)
        for panel, series, x in ranges:
            if series == "H~":
                assert ranges[panel, "H-bar", x] < ranges[panel, "H~", x]


def test_flat_counts_win_on_short_ranges_and_trees_on_long_ones(numbers):
    ranges = numbers("hay2010", "figure_6a")
    lengths = sorted({int(x) for _, _, x in ranges})
    for epsilon in ("epsilon 1", "epsilon 0.1", "epsilon 0.01"):
        flat, tree = ([ranges[epsilon, name, str(length)] for length in lengths] for name in ("L~", "H~"))
        assert flat[0] < tree[0] / 50
        assert flat[-1] > tree[-1]


def test_error_of_dawa_depends_on_the_data_and_that_of_privelet_does_not(numbers):
    errors = numbers("dawa2014", "figure_3")
    names = {x for _, _, x in errors}
    privelet = [errors["epsilon 0.1", "Privelet", name] for name in names]
    dawa = [errors["epsilon 0.1", "DAWA", name] for name in names]
    assert max(privelet) < 1.01 * min(privelet)
    assert max(dawa) > 2 * min(dawa)
    for easy in ("adult-like", "nettrace-like", "medcost-like"):
        assert errors["epsilon 0.01", "DAWA", easy] < errors["epsilon 0.01", "Identity", easy]


def test_ratio_tables_are_the_errors_divided(numbers):
    errors = numbers("dawa2014", "figure_3")
    ratios = numbers("dawa2014", "table_2")
    for epsilon in ("0.01", "0.1"):
        each = [
            errors[panel, "EFPA", x] / errors[panel, "DAWA", x]
            for panel, series, x in errors
            if series == "EFPA" and panel == f"epsilon {epsilon}"
        ]
        for end, value in (("smallest", min(each)), ("largest", max(each))):
            assert ratios[f"{end}, epsilon {epsilon}", "EFPA", epsilon] == pytest.approx(value, rel=1e-5)


def test_no_private_partition_costs_less_than_the_optimal_one(numbers):
    costs = numbers("dawa2014", "figure_5")
    for panel, _, x in costs:
        best = costs[panel, "optimal", x]
        assert all(cost >= 0.999999 * best for (_, _, name), cost in costs.items() if name == x)


def test_on_single_bins_dawa_is_its_partition_with_laplace(numbers):
    errors = numbers("dawa2014", "figure_6")
    for kind, series, x in errors:
        if kind == "identity" and series == "DAWA":
            assert errors[kind, series, x] == pytest.approx(errors[kind, "Partition+Laplace", x], rel=0.02)


def test_trees_beat_the_histogram_at_many_bins_and_refinement_beats_trees(numbers):
    errors = numbers("cdf", "figure_1")
    assert errors["", "histogram", "17"] < errors["", "binary tree", "17"]
    assert errors["", "binary tree", "1024"] < errors["", "histogram", "1024"] < errors["", "direct", "1024"]
    for bins in ("17", "64", "289", "1024"):
        assert errors["", "optimal tree, refined", bins] < 0.8 * errors["", "optimal tree", bins]
    assert errors["", "17 at every level", "289"] < 0.6 * errors["", "histogram", "289"]


def test_every_claim_of_the_cdf_paper_holds(quick):
    _, folder = quick("cdf")
    assert [row["claim"] for row in read(folder, "claims") if row["holds"] != "yes"] == []


def test_the_papers_numbers_stand_beside_ours(quick):
    _, folder = quick("dawa2014")
    printed = paper_numbers("dawa2014")
    table = {row["x"]: row for row in read(folder, "table_1")}
    assert float(table["hepph-like"]["paper"]) == printed["table_1"]["hepph"]
    assert "generated" in table["hepph-like"]["differs"]
    row = next(
        r for r in read(folder, "table_2") if r["panel"] == "largest, epsilon 0.1" and r["series"] == "P-HP"
    )
    assert float(row["paper"]) == 31.41
    assert float(row["here_over_paper"]) == pytest.approx(float(row["here"]) / 31.41, rel=1e-4)


def test_without_matplotlib_numbers_only(tmp_path, run_reproduce, monkeypatch):
    monkeypatch.setattr(report, "can_draw", lambda: False)
    made = run_reproduce("cdf", "--quick", "--trials", 2, "--out", tmp_path)
    assert "numbers only: matplotlib is missing" in made.stdout
    assert list(tmp_path.rglob("*.png")) == []
    assert (tmp_path / "cdf-quick" / "figure_1.csv").is_file()


def test_a_wrong_data_folder_is_one_line(tmp_path, run_reproduce, monkeypatch):
    monkeypatch.setenv(datasets.FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    made = run_reproduce("hay2010", "--quick", "--out", tmp_path)
    assert made.exit_code == 1
    assert made.stderr.count("\n") == 1
    assert "not a folder" in made.stderr


def test_page_marks_claims_that_fail_and_shows_both_numbers(tmp_path):
    table = Result(
        "t",
        "A table",
        "table",
        "x",
        "y",
        [Number("", "ours", "a", 1.5, paper=2.0), Number("", "ours", "b", 3.0)],
    )
    claims = [Claim("first", "1", "2", holds=False), Claim("second", "1", "1", holds=True)]
    write(Findings("p", "Title", "nothing", [table], claims), tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| first | 1 | 2 | **no** |" in page
    assert "| second | 1 | 1 | yes |" in page
    assert "| a | 1.5 (2) |" in page
    assert "| b | 3 |" in page
    assert [row["paper"] for row in read(tmp_path, "t")] == ["2", ""]
