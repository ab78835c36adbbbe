"""``plan-alert`` shows the errors of rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_app.shell.commands import main

pytestmark = pytest.mark.slow

CONFIG = """\
streams:
  delays:
    source: {file: delays.ndjson}
    time: {field: at, format: iso8601, bin: 1h, grace: 0s, epoch: 2d}
    privacy: {epsilon: 1.0}
    keys: {field: carrier, list: [UA, AA]}
    value: {field: delay, min: 0, max: 60, buckets: 12}
alerts:
  rules:
    busy: {when: "sum(delays, 4h) > 100", confidence: 0.99, summary: "too many", labels: {severity: page}}
    one: {when: "count(delays['UA']) > 100"}
    each: {when: "sum(delays[each], 4h) > 100"}
    tail: {when: "quantile(delays['UA', 'other'], 0.95, 4h) > 45", confidence: 0.9, for: 2h}
    share: {when: "cdf(delays, 15, 4h) < 0.8"}
    moved: {when: "ks(delays, 4h, 4h) > 0.2", confidence: 0.9}
    silent: {when: "no_data(delays, 2h)"}
"""


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    (tmp_path / "app.yaml").write_text(CONFIG)
    return ["--config", str(tmp_path / "app.yaml")]


@pytest.mark.slow
def test_every_rule_is_planned(config: list[str]) -> None:
    said = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["plan-alert", *config, "--events", "20000"])
    assert said.exit_code == 0, said.output
    rows = {line.split()[1]: line for line in said.output.splitlines() if line.startswith("│")}
    assert set(rows) == {"busy", "one", "each[each]", "tail", "share", "moved"}
    for name, most in (("busy", 1), ("one", 5), ("each[each]", 5), ("tail", 10), ("share", 5), ("moved", 10)):
        assert f"at most {most}.00% of releases" in rows[name]
        stderr, margin, seen = (float(rows[name].split("│")[at].replace(",", "")) for at in (3, 4, 6))
        assert 0 < stderr < margin < seen


def test_distance_rule_is_planned_for_a_number_of_events(config: list[str]) -> None:
    said = CliRunner().invoke(main, ["plan-alert", *config, "--rule", "moved"])
    assert said.exit_code == 2
    assert "alerts.rules.moved: " in said.output
    assert "add --events NUMBER" in said.output
    clock = CliRunner().invoke(main, ["plan-alert", *config, "--rule", "silent"])
    assert clock.output.startswith("silent: uses the clock")
    assert len(clock.output.splitlines()) == 1
    said = CliRunner().invoke(main, ["plan-alert", *config, "--rule", "nothing"])
    assert "it has busy, one, each, tail, share, moved, silent" in said.output


@pytest.mark.slow
def test_errors_of_totals_and_means_are_in_the_unit_of_the_amounts(tmp_path: Path) -> None:
    axes = "keys: {field: carrier, list: [UA, AA]}\n    value: {field: delay, min: 0, max: 60, buckets: 12}"
    rules = """\
    revenue: {when: "total(sales, 4h) > 100"}
    basket: {when: "mean(sales, 4h) > 20"}
    others: {when: "sum(sales[not 'UA'], 4h) > 100"}
    pace: {when: "rate(sales, 4h) > 20/m"}
"""
    text = CONFIG.partition("    busy:")[0].replace("delays", "sales")
    text = text.replace(
        axes, "keys: {field: carrier, list: [UA, AA]}\n    sum: {field: price, min: 0, max: 60, unit: 0.01}"
    )
    (tmp_path / "app.yaml").write_text(text + rules)

    def planned(*more: str) -> dict[str, list[str]]:
        asked = ["plan-alert", "--config", str(tmp_path / "app.yaml"), *more]
        said = CliRunner(env={"COLUMNS": "200"}).invoke(main, asked)
        assert said.exit_code == 0, said.output
        assert "values in events" not in said.output
        cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.output.splitlines()]
        return {row[0]: row[1:] for row in cells if row}

    alone, known = planned(), planned("--events", "1000")
    units = {name: row[0] for name, row in alone.items()}
    assert units == {"revenue": "price", "basket": "price, total", "others": "events", "pace": "events"}
    assert known["basket"][0] == "price"
    assert float(known["basket"][1]) == pytest.approx(
        float(alone["basket"][1].replace(",", "")) / 1000, rel=0.01
    )
    assert alone["pace"][1].endswith("/m")


@pytest.mark.parametrize(
    ("unit", "when", "warned"),
    [
        ("user: id, max_events: 9", "count(delays, 24h) < 0.9 * count(delays, 24h, 1d ago)", "per: 1d"),
        ("user: id, max_events: 9, per: 7d", "count(delays, 24h) < count(delays, 24h, 1d ago)", "per: 1d"),
        ("user: id, max_events: 9", "count(delays, 2h) < count(delays, 2h, 7d ago)", "per: 1h"),
        ("user: id, max_events: 9, per: 1d", "count(delays, 2h) < count(delays, 2h, 3h ago)", "per: 1h"),
        ("user: id, max_events: 9", "ks(delays, 24h, 24h) > 0.2", "per: 1d"),
        ("user: id, max_events: 9, per: 1d", "count(delays, 24h) < count(delays, 24h, 1d ago)", ""),
        ("user: id, max_events: 9, per: 1d", "count(delays, 2h) < count(delays, 2h, 7d ago)", ""),
        ("user: id, max_events: 9", "count(delays, 24h) < 100", ""),
    ],
)
def test_rules_that_compare_times_inside_a_cap_window_are_warned_of(
    tmp_path: Path, unit: str, when: str, warned: str
) -> None:
    text = CONFIG.replace("epoch: 2d}", "epoch: 28d}\n    late: drop")
    text = text.replace("epsilon: 1.0", f"epsilon: 1.0, unit: {{{unit}}}")
    (tmp_path / "app.yaml").write_text(f'{text.partition("    busy:")[0]}    drop: {{when: "{when}"}}\n')
    (tmp_path / "delays.ndjson").touch()
    for command in (["check-config"], ["plan-alert", "--events", "20000"]):
        said = CliRunner().invoke(main, [*command, "--config", str(tmp_path / "app.yaml")])
        assert said.exit_code == 0, said.output
        assert ("warning: alerts.rules.drop: " in said.output) == bool(warned)
        assert warned in said.output
