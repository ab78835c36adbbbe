"""Candidates: each row states the error of its own counter, and the smallest epsilon is found exactly."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dphist import SeededNoise, TreeCounter, TreeDesign, plan_tree
from dphist.cli import main
from dphist.planning.candidates import Candidate, candidates, least_epsilon
from dphist.tree.design import Release


@pytest.fixture(scope="module")
def rows() -> dict[str, Candidate]:
    return {row.name: row for row in candidates(300, 1)}


def test_each_row_states_the_error_of_its_own_counter(rows: dict[str, Candidate]) -> None:
    assert len(rows) == 10
    errors = []
    for row in rows.values():
        assert row.error is not None
        errors.append(row.error)
        assert row.error == pytest.approx(row.running_error)
        assert row.worst_error >= row.running_error
        if row.design is not None:
            assert row.error**2 == pytest.approx(row.design.mean_squared_error(), rel=1e-6)
    assert rows["planned, anticipating"].error == min(errors)


def test_draws_are_those_of_the_counter(rows: dict[str, Candidate]) -> None:
    row = rows["planned, causal"]
    assert isinstance(row.design, TreeDesign)
    counter = TreeCounter(row.design, SeededNoise(1))
    released = [len(counter.push(0)) for _ in range(300)]
    assert sum(released) == row.draws
    assert max(released) == row.most_draws
    assert np.mean(released) == pytest.approx(row.mean_draws)


def test_substitution_and_more_events_scale_every_row_alike() -> None:
    plain = {row.name: row.running_error for row in candidates(40, "0.001")}
    doubled = candidates(40, "0.001", neighbours="substitute", max_events=2)
    for row in doubled:
        assert row.running_error == pytest.approx(
            4 * plain[row.name], rel=2e-3
        )  # where the discrete law is continuous


def test_wide_streams_draw_one_vector_per_node() -> None:
    one, many = ({r.name: r for r in candidates(64, 1, width=w)} for w in (1, 7))
    for name, row in many.items():
        assert (row.draws, row.memory) == (7 * one[name].draws, 7 * one[name].memory)
        assert row.running_error == one[name].running_error


@pytest.mark.parametrize(
    ("release", "workload", "error"),
    [
        ("causal", "prefix", 37.0),
        ("anticipating", "sliding(24)", 3.1),
        *(
            pytest.param(release, *asked, marks=pytest.mark.slow)
            for release in ("causal", "anticipating")
            for asked in (("prefix", 12.0), ("sliding(9)", 30.0), ("ranges", 250.0))
        ),
    ],
)
def test_the_smallest_epsilon_reaches_the_target_and_less_does_not(
    release: Release, workload: str, error: float
) -> None:
    epsilon = least_epsilon(200, error, workload, release)
    step = Fraction(10) ** (math.floor(math.log10(epsilon)) - 2)
    reached, missed = (
        plan_tree(200, budget, workload, release).mean_squared_error(workload) ** 0.5
        for budget in (epsilon, epsilon - step)
    )
    assert reached <= error < missed


@pytest.mark.parametrize("error", [0.0, -1.0, math.nan, math.inf, 1e-9, 5e-324, 1e12, 1e300])
def test_an_impossible_target_is_refused_in_one_line(error: float) -> None:
    with pytest.raises(ValueError, match=r"^error: [^\n]*$"):
        least_epsilon(100, error)


@pytest.mark.slow  # drawing
def test_the_command_compares_answers_and_draws(tmp_path: Path) -> None:
    run = CliRunner().invoke
    shown = run(main, ["plan", "--horizon", "100", "--workload", "prefix: 0.7, bins: 0.3"])
    assert shown.exit_code == 0
    assert "7/10 prefix + 3/10 bins" in shown.output
    plot = tmp_path / "error.svg"
    asked = ["plan", "--horizon", "64", "--target-rmse", "20", "--json", "--plot", str(plot)]
    answer = json.loads(run(main, [*asked]).output)
    best = next(row for row in answer["candidates"] if row["name"] == "planned, anticipating")
    assert 19.5 < best["error"] <= 20.0
    assert plot.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epsilon", "0"],
        ["--workload", "sliding(200)"],
        ["--workload", "prefix: 0.7, 3"],
        ["--target-rmse", "-1"],
        pytest.param(["--plot", "no/such/folder/x.png"], marks=pytest.mark.slow),
    ],
)
def test_the_command_refuses_in_one_line(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["plan", "--horizon", "100", *arguments])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith("Error: ")
