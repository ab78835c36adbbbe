"""``stream-app plan`` compares every stream's ways to count and answers the reverse question."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dphist import plan_tree
from stream_app.shell.commands import main

TWO_STREAMS = """
streams:
  clicks:
    source: {file: clicks.ndjson, format: ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 7d}
    privacy: {epsilon: 1.0}
    tree: {workload: sliding(24)}
  visits:
    source: {file: clicks.ndjson, format: ndjson}
    time: {field: at, format: iso8601, bin: 1d, grace: 5m, epoch: 60d}
    privacy: {epsilon: 0.5, accept: "measured again"}
    tree: {workload: {prefix: 0.7, bins: 0.3}}
"""


def plan(tmp_path: Path, *options: str) -> Result:
    config = tmp_path / "app.yaml"
    config.write_text(TWO_STREAMS)
    return CliRunner().invoke(main, ["plan", "--config", str(config), *options])


def test_every_stream_is_compared(tmp_path: Path) -> None:
    shown = plan(tmp_path)
    assert shown.exit_code == 0
    assert "clicks: 168 bins an epoch, epsilon 1" in shown.output
    assert "visits: 60 bins an epoch, epsilon 0.5" in shown.output


def test_tables_fit_80_columns(tmp_path: Path) -> None:
    config = tmp_path / "app.yaml"
    config.write_text(
        TWO_STREAMS
        + """
  delays:
    source: {file: delays.ndjson}
    time: {field: at, format: iso8601, bin: 5m, grace: 30s, epoch: 30d}
    privacy: {epsilon: 1.0}
    keys: {field: country, list: [DE, FR, US]}
    value: {field: seconds, min: 0, max: 60, buckets: 120}
"""
    )
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["plan", "--config", str(config)])
    lines = shown.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in shown.output
    facts = dict(line.strip("│").split("│") for line in lines if line.startswith("│"))
    assert {name.strip() for name in facts} > {"stream", "branching", "typical error", "noise ahead"}
    assert sum(line.endswith((" B", " kB", " MB")) for line in lines) == 20  # memory, the last column


def planned_per_user(tmp_path: Path, max_events: int, *options: str) -> Result:
    """Plan 20 days for any range, at an epsilon so small that the discrete law is the continuous one."""
    config = tmp_path / "app.yaml"
    config.write_text(f"""
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1d, grace: 5m, epoch: 20d}}
    privacy: {{epsilon: 0.001, unit: {{user: user.id, max_events: {max_events}}}}}
    tree: {{workload: ranges}}
""")
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, ["plan", "--config", str(config), *options])


def test_every_way_to_count_protects_all_events_of_a_user(tmp_path: Path) -> None:
    def errors(max_events: int) -> list[list[float]]:
        lines = planned_per_user(tmp_path, max_events).output.splitlines()
        rows = [line.split() for line in lines if line.endswith((" B", " kB"))]
        # Running count and worst, before draws, draws an epoch and memory with its unit.
        return [[float(cell.replace(",", "")) for cell in row[-6:-4]] for row in rows]

    one, four = np.array(errors(1)), np.array(errors(4))
    assert one.shape == (10, 2)
    np.testing.assert_allclose(four, 4 * one, rtol=1e-4)


def test_the_reverse_question_protects_all_events_of_a_user(tmp_path: Path) -> None:
    # Errors are in proportion to max_events over epsilon, so four times as much epsilon is asked for.
    lines = [planned_per_user(tmp_path, events, "--target-rmse", "5000").output for events in (1, 4)]
    one, four = (Fraction(line.split("epsilon ")[1].split()[0]) for line in lines)
    assert 4 * one == pytest.approx(four, rel=2e-2)
    design = plan_tree(20, four, "ranges", "anticipating", max_events=4)
    assert 0.98 * 5000 < math.sqrt(design.mean_squared_error("ranges")) <= 5000


@pytest.mark.slow  # drawing
def test_one_stream_can_be_drawn(tmp_path: Path) -> None:
    plot = tmp_path / "visits.png"
    shown = plan(tmp_path, "--stream", "visits", "--plot", str(plot))
    assert shown.exit_code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "clicks: 168" not in shown.output


def test_the_smallest_epsilon_is_told(tmp_path: Path) -> None:
    shown = plan(tmp_path, "--target-rmse", "15")
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert [line.split(":")[0] for line in lines] == ["clicks", "visits"]
    assert all("is the smallest that errs at most 15 events" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--stream", "views"), "--stream views"),
        (("--plot", "x.png"), "--plot: a figure shows one stream"),
        (("--target-rmse", "0"), "streams.clicks: error"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    refused = plan(tmp_path, *options)
    assert refused.exit_code == 2
    assert said in refused.output
    assert len(refused.output.splitlines()) == 1


def test_windows_are_shown_with_their_error(tmp_path: Path) -> None:
    config = tmp_path / "app.yaml"
    config.write_text("""
streams:
  delays:
    source: {file: flights.ndjson, format: ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 7d}
    privacy: {epsilon: 1.0}
    value: {field: delay, min: 0, max: 100, buckets: 20, mode: window, window: 1d, mechanism: identity}
""")
    shown = CliRunner().invoke(main, ["plan", "--config", str(config)])
    assert shown.exit_code == 0
    assert "identity" in shown.output
    # Discrete Laplace noise of scale 5/4: standard deviation 1.73.
    assert "1.7" in shown.output
    # One draw for each of 20 buckets, whatever they hold; 7 windows of 8 bytes a bucket.
    assert "20 / 20" in shown.output
    assert "0.0 MB" in shown.output
    config.write_text(config.read_text().replace("identity", "hb, options: {branching: 20}"))
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["plan", "--config", str(config)])
    # One level of 20: identity with a second level of half the budget each would be 3.5.
    assert "hb: branching 20" in shown.output


def test_levels_over_epochs_are_set_beside_added_totals(tmp_path: Path) -> None:
    config = tmp_path / "app.yaml"
    config.write_text(TWO_STREAMS.replace("tree: {workload: sliding(24)}", "tree: {epochs: 12}"))
    shown = CliRunner().invoke(main, ["plan", "--config", str(config), "--stream", "clicks"])
    assert shown.exit_code == 0
    assert "Over epochs" in shown.output
    asked = ["plan", "--config", str(config), "--stream", "clicks", "--target-rmse", "20"]
    refused = CliRunner().invoke(main, asked)
    assert refused.exit_code != 0
    assert "clicks has tree.epochs" in refused.output
    assert "Over epochs" not in plan(tmp_path).output
