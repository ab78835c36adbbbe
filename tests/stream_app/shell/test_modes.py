"""``plan`` shows the pure and the approximate mode side by side, and never chooses between them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from dphist import plan_tree
from dphist.caps import Caps
from dphist.toeplitz import plan_toeplitz
from dphist.toeplitz.estimate import mean_squared_error
from stream_app.config import load
from stream_app.shell.commands import main
from stream_app.shell.planning.comparing import Modes

pytestmark = pytest.mark.slow

BINS = 168
STREAM = """
streams:
  visits:
    source: {{file: visits.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 7d}}
    privacy: {{epsilon: 1{delta}, unit: {{user: who, max_keys: {keys}, max_per_key: 1}}}}
    keys: {{field: place, list: [{names}]}}
"""


def written(tmp_path: Path, keys: int, delta: str = "") -> Path:
    config = tmp_path / "app.yaml"
    names = ", ".join(f"k{number}" for number in range(12))
    config.write_text(STREAM.format(keys=keys, delta=delta, names=names))
    return config


@pytest.mark.parametrize("delta", ["", ", delta: 1e-6"])
def test_both_modes_have_the_errors_of_their_own_plans(tmp_path: Path, delta: str) -> None:
    [stream] = load(written(tmp_path, 9, delta)).streams
    modes = Modes.of(stream)
    assert modes is not None
    pure = plan_tree(BINS, 1, release="anticipating", max_events=9).mean_squared_error()
    caps = Caps(max_keys=9, max_per_key=1)
    approximate = mean_squared_error(plan_toeplitz(BINS, 1, "1e-6", caps, width=13))
    assert modes.pure == pytest.approx(math.sqrt(pure))
    assert modes.approximate == pytest.approx(math.sqrt(approximate))


def test_at_the_break_even_the_approximate_error_becomes_the_smaller_one(tmp_path: Path) -> None:
    [stream] = load(written(tmp_path, 1)).streams
    modes = Modes.of(stream)
    assert modes is not None
    assert modes.break_even > 1
    for keys in (modes.break_even - 1, modes.break_even):
        [stream] = load(written(tmp_path, keys)).streams
        found = Modes.of(stream)
        assert found is not None
        assert (found.approximate < found.pure) == (keys == modes.break_even)


@pytest.mark.parametrize(("delta", "chosen"), [("", "pure"), (", delta: 1e-6", "approximate")])
def test_plan_says_which_mode_is_better_and_which_is_configured(
    tmp_path: Path, delta: str, chosen: str
) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(
        main, ["plan", "--config", str(written(tmp_path, 9, delta)), "--compare"]
    )
    assert shown.exit_code == 0, shown.output
    said = " ".join(shown.output.split())  # without the line breaks of a terminal
    assert "Both modes of the promise" in said
    assert "(epsilon 1, delta 1e-6)" in said
    assert "the approximate mode has the smaller error here" in said
    assert f"This configuration is {chosen}; privacy.delta decides." in said


def test_alerts_of_an_approximate_stream_are_forecast_from_its_noise(tmp_path: Path) -> None:
    config = written(tmp_path, 2, ", delta: 1e-6")
    rule = 'alerts: {rules: {busy: {when: "sum(visits, 1d) > 500", confidence: 0.95}}}'
    config.write_text(config.read_text() + rule)
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["plan-alert", "--config", str(config)])
    assert shown.exit_code == 0, shown.output
    assert "at most 5.00% of releases" in shown.output


def test_stream_that_is_not_private_is_planned_without_modes(tmp_path: Path) -> None:
    config = written(tmp_path, 3)
    config.write_text(config.read_text().replace("epsilon: 1,", "epsilon: 1.0e9, not_private: true,"))
    said = CliRunner().invoke(main, ["plan", "--config", str(config), "--compare"])
    assert said.exit_code == 0, said.output
    assert "Both modes of the promise" not in said.output
