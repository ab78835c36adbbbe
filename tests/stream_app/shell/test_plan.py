"""``stream-app plan`` compares ways to count and finds the smallest epsilon for an error."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dphist import plan_tree
from dphist.laws.law import discrete_laplace_variance
from dphist.planning.report import in_decimals
from dphist.tree.design import Release
from stream_app.config import StreamSettings, load
from stream_app.config.plans import planned
from stream_app.shell.commands import main
from tests.stream_app.declared import changed_stream

pytestmark = pytest.mark.slow  # many designs: only ``make test`` runs this module

TWO_STREAMS = """
streams:
  clicks:
    source: {file: clicks.ndjson, format: ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 7d}
    privacy: {epsilon: 1.0}
    tree: {workload: sliding(24)}
  visits:
    source: {file: visits.ndjson, format: ndjson}
    time: {field: at, format: iso8601, bin: 1d, grace: 5m, epoch: 60d}
    privacy: {epsilon: 0.5, accept: "measured again"}
    tree: {workload: {prefix: 0.7, bins: 0.3}}
"""


DELAYS = """
  delays:
    source: {file: delays.ndjson}
    time: {field: at, format: iso8601, bin: 5m, grace: 30s, epoch: 30d}
    privacy: {epsilon: 1.0}
    keys: {field: country, list: [DE, FR, US]}
    value: {field: seconds, min: 0, max: 60, buckets: 120}
"""


def plan(tmp_path: Path, *options: str, text: str = TWO_STREAMS, columns: int = 80) -> str:
    """Return what ``plan`` prints about a configuration."""
    (tmp_path / "app.yaml").write_text(text)
    command = ["plan", "--config", str(tmp_path / "app.yaml"), *options]
    shown = CliRunner(env={"COLUMNS": str(columns)}).invoke(main, command)
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_every_stream_is_compared_within_80_columns(tmp_path: Path) -> None:
    shown = plan(tmp_path, "--compare", text=TWO_STREAMS + DELAYS)
    assert "clicks: 168 bins per epoch, epsilon 1" in shown
    assert "visits: 60 bins per epoch, epsilon 0.5" in shown
    assert "Over epochs" not in shown
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in shown
    facts = dict(
        line.strip("│").split("│") for line in lines if line.startswith("│") and line.count("│") == 3
    )
    assert {name.strip() for name in facts} > {"stream", "branching", "RMSE", "noise ahead"}
    assert sum(line.endswith((" B", " kB", " MB")) for line in lines) == 33  # memory, the last column


def test_a_table_that_80_columns_cannot_hold_is_wider_not_cut(tmp_path: Path) -> None:
    text = "streams:" + DELAYS.replace("    keys", "    tree: {workload: ranges}\n    keys")
    shown = plan(tmp_path, "--compare", text=text)
    compared = shown[shown.index("way to count") :].splitlines()
    assert compared[0].rstrip().endswith("memory")
    rows = [line.rstrip() for line in compared if line.rstrip().endswith("B")]
    assert len(rows) == 11
    assert all(re.search(r"\d (B|kB|MB)$", row) for row in rows)
    assert "share per node" not in shown  # which a stream with keys and values cannot have


def planned_per_user(tmp_path: Path, max_events: int, *options: str) -> str:
    """Plan 20 days for any range. Epsilon is so small that discrete and continuous noise agree."""
    text = f"""
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1d, grace: 5m, epoch: 20d}}
    privacy: {{epsilon: 0.001, unit: {{user: user.id, max_events: {max_events}}}}}
    tree: {{workload: ranges}}
"""
    return plan(tmp_path, *options, text=text, columns=200)


def test_every_way_to_count_protects_all_events_of_a_user(tmp_path: Path) -> None:
    def errors(max_events: int) -> list[list[float]]:
        lines = planned_per_user(tmp_path, max_events, "--compare").splitlines()
        rows = [line.split() for line in lines if line.endswith((" B", " kB"))]
        # Running count and worst, before draws, draws an epoch and memory with its unit.
        return [[float(cell.replace(",", "")) for cell in row[-6:-4]] for row in rows]

    one, four = np.array(errors(1)), np.array(errors(4))
    assert one.shape == (11, 2)
    np.testing.assert_allclose(four, 4 * one, rtol=1e-4)


def test_smallest_epsilon_protects_all_events_of_a_user(tmp_path: Path) -> None:
    # Errors are in proportion to max_events over epsilon, so four times as much epsilon is asked for.
    lines = [planned_per_user(tmp_path, events, "--target-rmse", "5000") for events in (1, 4)]
    one, four = (Fraction(line.split("epsilon ")[1].split()[0]) for line in lines)
    assert 4 * one == pytest.approx(four, rel=2e-2)
    design = plan_tree(20, four, "ranges", "anticipating", max_events=4)
    assert 0.98 * 5000 < math.sqrt(design.mean_squared_error("ranges")) <= 5000


EVERY_KIND = """
streams:
  given:
    source: {file: a.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 24h}
    privacy: {epsilon: 0.5}
    tree: {workload: ranges, branching: [5, 5], release: causal}
  cells:
    source: {file: b.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 24h}
    privacy: {epsilon: 0.5}
    tree: {workload: ranges}
    keys: {field: country, list: [DE, FR], total: true}
    value: {field: seconds, min: 0, max: 60, buckets: 12}
  windows:
    source: {file: c.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 24h}
    privacy: {epsilon: 0.5}
    tree: {workload: ranges}
    value: {field: delay, min: 0, max: 100, buckets: 20, mode: window, window: 6h, mechanism: identity}
  endless:
    source: {file: d.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 24h}
    privacy: {epsilon: 0.5}
    tree: {workload: ranges, epochs: 12}
"""


@pytest.fixture
def streams(tmp_path: Path) -> dict[str, StreamSettings]:
    (tmp_path / "app.yaml").write_text(EVERY_KIND)
    return {stream.name: stream for stream in load(tmp_path / "app.yaml").streams}


def epsilon_of_a_tree(stream: StreamSettings) -> Fraction:
    """Return the epsilon that one tree over time gets beside axes, windows or levels over epochs."""
    strategy = planned(stream)
    if strategy.kind.axes is not None:
        values, keys = strategy.kind.axes.values, strategy.kind.axes.keys
        return strategy.epsilon * values.shares[-1] * keys.key_share
    if strategy.kind.windows is not None:
        return strategy.epsilon - strategy.kind.windows.epsilon
    return strategy.design.epsilon


@pytest.mark.parametrize("name", ["given", "cells", "windows", "endless"])
def test_configured_tree_is_compared_with_others_at_the_same_epsilon(
    tmp_path: Path, streams: dict[str, StreamSettings], name: str
) -> None:
    shown = plan(tmp_path, "--compare", "--stream", name, text=EVERY_KIND, columns=300)
    rows = {re.split("  +", line)[0]: re.split("  +", line.strip()) for line in shown.splitlines()}
    epsilon = epsilon_of_a_tree(streams[name])
    said = in_decimals(epsilon) if name == "given" else f"{float(epsilon):.3g} of 0.5"
    assert f"epsilon {said}" in shown
    # 24 counts of noise added up: in the mean over t, 12.5 times one variance.
    one = discrete_laplace_variance(float(1 / epsilon))
    assert float(rows["flat"][2]) == pytest.approx(math.sqrt(12.5 * one), abs=0.006)
    branching = (5, 5) if name == "given" else planned(streams[name]).design.branching
    release: Release = "causal" if name == "given" else "anticipating"
    own = plan_tree(24, epsilon, "ranges", release, branching=branching)
    assert rows["this stream"][1] == "-".join(map(str, branching))
    assert float(rows["this stream"][2]) == pytest.approx(
        math.sqrt(own.mean_squared_error("ranges")), rel=0.01, abs=0.006
    )
    assert ("all before the epoch begins" in shown) == (release == "anticipating")
    assert ("per bin, mean / most" in shown) == (release == "causal")


@pytest.mark.parametrize("name", ["given", "cells", "windows", "endless"])
def test_every_kind_of_stream_has_a_smallest_epsilon(
    tmp_path: Path, streams: dict[str, StreamSettings], name: str
) -> None:
    said = plan(tmp_path, "--stream", name, "--target-rmse", "30", text=EVERY_KIND, columns=300)
    assert ("in the count of one bucket of one key" in said) == (name == "cells")

    def error(epsilon: Fraction) -> float:
        stream = changed_stream(streams[name], privacy={"epsilon": epsilon})
        branching = planned(stream).design.branching
        release = planned(stream).design.release
        tree = plan_tree(24, epsilon_of_a_tree(stream), "ranges", release, branching=branching)
        return math.sqrt(tree.mean_squared_error("ranges"))

    smallest = Fraction(said.split("epsilon ")[1].split()[0])
    assert error(smallest) <= 30 * 1.001
    assert error(smallest * Fraction(97, 100)) > 30


def test_smallest_epsilon_of_each_stream_is_printed(tmp_path: Path) -> None:
    lines = plan(tmp_path, "--target-rmse", "15", columns=300).splitlines()
    assert [line.split(":")[0] for line in lines] == ["clicks", "visits"]
    assert all("is the smallest with an error of at most 15 events" in line for line in lines)


def test_windows_are_shown_with_their_error(tmp_path: Path) -> None:
    text = """
streams:
  delays:
    source: {file: flights.ndjson, format: ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 7d}
    privacy: {epsilon: 1.0}
    value: {field: delay, min: 0, max: 100, buckets: 20, mode: window, window: 1d, mechanism: identity}
"""
    shown = plan(tmp_path, "--compare", text=text)
    # Discrete Laplace noise of scale 5/4: standard deviation 1.73. One draw for each of 20 buckets, whatever
    # their counts; 7 windows with 8 bytes per bucket.
    assert all(said in shown for said in ("identity", "1.7", "20 / 20", "1.12 kB"))
    shown = plan(tmp_path, text=text.replace("identity", "hb, options: {branching: 20}"), columns=200)
    # One level of 20 nodes. With a second level, and half of the budget each, the error would be 3.5.
    assert "hb: branching 20" in shown


def test_levels_over_epochs_are_compared_with_added_totals(tmp_path: Path) -> None:
    text = TWO_STREAMS.replace("tree: {workload: sliding(24)}", "tree: {epochs: 12}")
    assert "Over epochs" in plan(tmp_path, "--stream", "clicks", text=text)
    answered = plan(tmp_path, "--stream", "clicks", "--target-rmse", "20", text=text, columns=300)
    assert "an error of at most 20 events within an epoch (prefix" in answered
