"""Scores of mechanisms against errors computed here, and the command that compares mechanisms."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from dphist import mechanisms
from dphist.cli import main
from dphist.comparison import applicable, named_workload, score
from dphist.mechanisms.registry import UNATTRIBUTED
from dphist.noise import SeededNoise

COUNTS = np.random.default_rng(3).integers(0, 40, 24)


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def histogram(tmp_path):
    path = tmp_path / "counts.txt"
    path.write_text("\n".join(map(str, COUNTS)))
    return path


def test_a_score_is_the_mean_over_seeded_releases():
    ranges = np.array([[0, 24], [3, 9], [5, 6]])
    ticks = iter([10.0, 16.0])
    got = score("hb", COUNTS, ranges, 0.5, trials=3, timer=lambda: next(ticks))
    errors = []
    for seed in range(3):
        made = mechanisms.release("hb", COUNTS, 0.5, ranges, SeededNoise(seed))
        errors.append(
            [abs(a - COUNTS[s:e].sum()) for a, (s, e) in zip(made.answer(ranges), ranges, strict=True)]
        )
    per_release = np.mean(errors, axis=1)
    assert got.mean_error == pytest.approx(np.mean(errors))
    assert got.root_mean_square == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    assert got.standard_error == pytest.approx(np.std(per_release, ddof=1) / np.sqrt(3))
    assert got.seconds == 2.0


def test_every_mechanism_is_compared_or_named_as_unattributed():
    assert set(applicable(1)) | set(applicable(2)) | UNATTRIBUTED == set(mechanisms.names())


def test_named_workloads():
    assert named_workload("bins", (2,)).tolist() == [[0, 1], [1, 2]]
    assert named_workload("bins", (1, 2)).tolist() == [[0, 1, 0, 1], [0, 1, 1, 2]]
    assert named_workload("ranges", (5, 6)).shape == (2000, 4)
    with pytest.raises(ValueError, match="one dimension"):
        named_workload("prefix", (2, 2))
    with pytest.raises(ValueError, match="'all' is not known"):
        named_workload("all", (2,))


def test_compare_ranks_by_error_and_agrees_with_score(histogram):
    made = run("compare", histogram, "--workload", "prefix", "--trials", 2, "--epsilon", 1, "--json")
    assert made.exit_code == 0
    scores = json.loads(made.stdout)["scores"]
    assert [s["mechanism"] for s in scores] != applicable(1)
    assert {s["mechanism"] for s in scores} == set(applicable(1))
    errors = [s["mean_error"] for s in scores]
    assert errors == sorted(errors)
    prefix = named_workload("prefix", (24,))
    best = scores[0]
    again = score(best["mechanism"], COUNTS, prefix, 1.0, trials=2, timer=lambda: 0.0)
    assert best["mean_error"] == again.mean_error
    assert {s["neighbours"] for s in scores} == {"add_remove"}


def test_compare_shows_a_table_of_what_was_asked(histogram):
    made = run("compare", histogram, "--only", "identity,hb", "--trials", 1)
    assert made.exit_code == 0
    assert "identity" in made.stdout
    assert "hb" in made.stdout
    assert "dawa" not in made.stdout
    assert "epsilon 0.1, 2000 queries, 1 releases each" in made.stdout
    assert "epsilon is for one event added or removed\n" in made.stdout


def test_compare_reads_grids_and_files_of_ranges(tmp_path):
    grid, rectangles = tmp_path / "grid.csv", tmp_path / "rectangles.npy"
    grid.write_text("1,2,3\n4,5,6\n")
    np.save(rectangles, np.array([[0, 2, 0, 3], [1, 2, 1, 2]]))
    made = run("compare", grid, "--workload", rectangles, "--only", "quadtree", "--json", "--epsilon", 1e6)
    scores = json.loads(made.stdout)["scores"]
    assert scores[0]["mean_error"] == pytest.approx(0, abs=0.01)
    np.savez(tmp_path / "stored.npz", x=COUNTS, other=COUNTS[:3])
    made = run("compare", tmp_path / "stored.npz", "--only", "identity", "--trials", 1, "--json")
    assert made.exit_code == 0


def test_a_mechanism_that_refuses_is_named_and_the_others_run(histogram, tmp_path):
    made = run("compare", histogram, "--only", "identity,quadtree", "--trials", 1)
    assert made.exit_code == 0
    assert "quadtree did not run: counts have shape (24,)" in made.stdout


def test_sorted_counts_are_not_scored_on_ranges_of_bins_and_the_others_are(histogram):
    made = run("compare", histogram, "--only", "sorted,identity", "--trials", 1, "--json")
    shown = json.loads(made.stdout)
    assert [each["mechanism"] for each in shown["scores"]] == ["identity"]
    assert "leave it out" in shown["not_run"]["sorted"]


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("1\nx\n", [], "holds no numbers"),
        ("1\n2.5\n", [], "not whole"),
        ("1\n-2\n", [], "counts[1] is -2"),
        ("1\n2\n", ["--epsilon", "0"], "epsilon: 0.0"),
        ("1\n2\n", ["--workload", "nothing"], "neither a file nor one of ranges, prefix, bins"),
        ("1\n2\n", ["--only", "lapalce"], "'lapalce' is not known"),
        *(
            ("3\n2\n", ["--only", name], f"{name} publishes counts in rising order")
            for name in sorted(UNATTRIBUTED)
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path, text, arguments, said):
    path = tmp_path / "counts.txt"
    path.write_text(text)
    made = run("compare", path, "--trials", 1, *arguments)
    assert made.exit_code == 2
    assert made.stderr.count("\n") == 1
    assert said in made.stderr


def test_mechanisms_are_listed_and_described():
    listed = run("mechanisms")
    assert listed.exit_code == 0
    for name in mechanisms.names():
        assert name in listed.stdout
    told = run("mechanisms", "structure_first")
    assert "Guarantee: epsilon-DP" in told.stdout
    assert "protects, with the defaults: one event added or removed\n" in told.stdout
    assert "buckets = None: how many" in told.stdout
    unknown = run("mechanisms", "lapalce")
    assert unknown.exit_code == 2
    assert "choose from identity" in unknown.stderr
