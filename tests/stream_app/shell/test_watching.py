"""``plan-alert`` predicts how rules behave; ``export-alerts`` writes rules for Prometheus."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from stream_app.shell.commands import main
from tests.services import promtool, required

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
        assert f"(at most {most}.00%)" in rows[name]
        rate = float(rows[name].split("│")[4].split("%")[0])
        assert rate < 1.5 * most
        assert (rate > 0.4 * most) is (name != "moved"), rows[name]  # a certified bound is surer than that
        assert "(median)" in rows[name]


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
def test_exported_rules_are_rules_of_prometheus(config: list[str], tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["export-alerts", *config])
    [group] = yaml.safe_load(said.output)["groups"]
    each = ["each[UA]", "each[AA]", "each[other]"]
    names = ["busy", "one", *each, "tail", "share", "moved", "silent"]
    assert [rule["alert"] for rule in group["rules"]] == names
    assert group["rules"][2]["labels"] == {"key": "UA"}
    busy = group["rules"][0]
    assert busy["expr"] == 'private_counts_alert_firing{rule="busy",stream="delays"} == 1'
    assert busy["labels"] == {"severity": "page"}
    assert busy["annotations"] == {"condition": "sum(delays, 4h) > 100", "summary": "too many"}
    (tmp_path / "rules.yml").write_text(said.output)
    command = [str(required(promtool, "prometheus")), "check", "rules", str(tmp_path / "rules.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "9 rules found" in checked.stdout
