"""The operator's alert rules: Prometheus reads them, and a worker exports every metric in them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from deploy.redis import make_users
from docs.site import reference
from tests.patience import PATIENCE_S
from tests.services import amtool, promtool, required

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "operator.rules.yml"
NOTIFYING = DEPLOY / "prometheus" / "alertmanager.yml"
SCRAPING = DEPLOY / "prometheus" / "prometheus.yml"


def exposed() -> set[str]:
    """Return the metric names of all processes, as PromQL uses them."""
    shown = b"".join(generate_latest(one.registry) for one in reference.operators().values())
    return {name for name, _ in re.findall(r"# TYPE (\S+) (\S+)", shown.decode())}


def rules() -> list[dict[str, Any]]:
    """Return the operator's rules."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_rules_and_readme_name_existing_metrics() -> None:
    for file in (RULES, DEPLOY / "README.md"):
        asked = set(re.findall(r"stream_app_[a-z_]+", file.read_text()))
        assert len(asked) >= 4
        assert asked <= exposed(), file


def test_page_of_metrics_has_each_metric_with_its_labels() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]*) \| (\w+) \| (.+) \|$", reference.metrics(), re.MULTILINE)
    assert {name for name, *_ in rows} == {name for name in exposed() if name.startswith("stream_app_")}
    labels = {name: listed for name, listed, *_ in rows}
    assert labels["stream_app_lag"] == "source, partition"
    assert labels["stream_app_refused_records_total"] == "reason, stream"
    assert labels["stream_app_waiting"] == "service"


def test_every_rule_states_fault_and_remedy() -> None:
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "remedy", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"


@pytest.mark.slow
def test_prometheus_reads_the_rules() -> None:
    command = [str(required(promtool, "prometheus")), "check", "rules", str(RULES)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules())} rules found" in checked.stdout


@pytest.mark.slow
def test_every_rule_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    cases = Path(__file__).with_name("operator.rules.test.yml")
    (tmp_path / RULES.name).write_bytes(RULES.read_bytes())
    (tmp_path / cases.name).write_bytes(cases.read_bytes())
    command = [str(required(promtool, "prometheus")), "test", "rules", str(tmp_path / cases.name)]
    tested = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert [rule["alert"] for rule in rules() if rule["alert"] not in cases.read_text()] == []


@pytest.mark.slow
def test_alertmanager_reads_its_configuration() -> None:
    command = [str(required(amtool, "prometheus-alertmanager")), "check-config", str(NOTIFYING)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_operators_dashboard_asks_for_metrics_that_exist_and_for_every_rule() -> None:
    board = json.loads((DEPLOY / "grafana" / "operator" / "dashboards" / "operator.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    shown = {name.removesuffix("_bucket") for name in re.findall(r"stream_app_[a-z_]+", " ".join(asked))}
    assert shown <= exposed()
    # What can fire is drawn; late seconds and other details stay for a question by hand.
    assert set(re.findall(r"stream_app_[a-z_]+", RULES.read_text())) - shown == {"stream_app_clock_doubt"}
    (source,) = yaml.safe_load(
        (DEPLOY / "grafana/operator/provisioning/datasources/operator.yaml").read_text()
    )["datasources"]
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}


@pytest.mark.slow
def test_prometheus_understands_every_question_of_the_operators_dashboard(tmp_path: Path) -> None:
    board = json.loads((DEPLOY / "grafana" / "operator" / "dashboards" / "operator.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    records = [{"record": f"asked:{number}", "expr": text} for number, text in enumerate(asked)]
    (tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": records}]}))
    command = [str(required(promtool, "prometheus")), "check", "rules", str(tmp_path / "asked.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
def test_prometheus_reads_the_scrape_configuration_beside_rules_and_token(tmp_path: Path) -> None:
    make_users.write(tmp_path)
    for file in (RULES, SCRAPING):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    command = [str(required(promtool, "prometheus")), "check", "config", str(tmp_path / SCRAPING.name)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_scrapes_every_process_with_its_own_token() -> None:
    jobs = {one["job_name"]: one for one in yaml.safe_load(SCRAPING.read_text())["scrape_configs"]}
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    written, http = (
        yaml.safe_load((DEPLOY / name).read_text()) for name in ("stream-app.yaml", "stream-app-http.yaml")
    )
    workers = [f"{name}:{written['operator']['port']}" for name in services if name.startswith("worker")]
    assert {name: job["static_configs"] for name, job in jobs.items()} == {
        "private-counts-workers": [{"targets": workers}],
        "private-counts-ingest": [{"targets": [f"ingest:{http['ingest']['operator_port']}"]}],
        "private-counts-api": [{"targets": [f"api:{written['api']['operator_port']}"]}],
        "private-counts-alerts": [{"targets": [f"alerts:{written['alerts']['operator_port']}"]}],
        "private-counts": [{"targets": [f"api:{written['api']['port']}"]}],
    }
    assert "authorization" not in jobs.pop("private-counts")
    for name, job in jobs.items():
        role = name.removeprefix("private-counts-").removesuffix("s" if name.endswith("workers") else "")
        assert job["authorization"] == {"type": "Bearer", "credentials_file": f"{role}.token"}
    assert set(re.findall(r'job="([^"]+)"', RULES.read_text())) <= {"private-counts", *jobs}
