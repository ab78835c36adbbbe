"""The operator's alert rules: Prometheus reads them, and a worker exports every metric in them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.metrics import MetricWrapperBase

from deploy.redis import make_users
from stream_app.monitoring.metrics import Metrics
from stream_app.monitoring.receiving import ReceivingMetrics
from tests.patience import PATIENCE_S
from tests.services import amtool, promtool, required

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "operator.rules.yml"
NOTIFYING = DEPLOY / "prometheus" / "alertmanager.yml"
SCRAPING = DEPLOY / "prometheus" / "prometheus.yml"


def exposed() -> set[str]:
    """Return the metric names of a worker and of the listener for events, as PromQL uses them."""
    receiving = generate_latest(ReceivingMetrics({}, 1).registry)
    described = re.findall(r"# TYPE (\S+) (\S+)", (Metrics().exposition() + receiving).decode())
    return {name for name, _ in described}


def test_rules_and_readme_name_existing_metrics() -> None:
    for file in (RULES, DEPLOY / "README.md"):
        asked = set(re.findall(r"stream_app_[a-z_]+", file.read_text()))
        assert len(asked) >= 4
        assert asked <= exposed(), file


def test_readme_lists_exactly_the_metrics_of_a_worker_with_their_labels() -> None:
    metrics = Metrics()
    metrics.know("clicks", 60.0)
    metrics.stored.show("clicks", {})
    families = {family.name: family for family in metrics.registry.collect()}
    exported = {}
    for described, kind in re.findall(r"# TYPE (\S+) (\S+)", metrics.exposition().decode()):
        if not described.endswith("_created"):
            name = described.removesuffix("_total") if kind == "counter" else described
            samples = families[name].samples
            exported[described] = {label for one in samples for label in one.labels} - {"le"}
    rows = re.findall(
        r"^\| `(stream_app_\w+)` \| ([\w, ]*)\|", (DEPLOY / "README.md").read_text(), re.MULTILINE
    )
    listed = {name: set(re.findall(r"\w+", labels)) for name, labels in rows}
    assert listed.keys() == exported.keys()
    # A metric without any sample yet shows no label; its labels are known to the registry's own metrics.
    own = {collector._name: set(collector._labelnames) for collector in _own_metrics(metrics)}
    for name, labels in listed.items():
        assert labels == (exported[name] or own.get(name.removesuffix("_total"), set())), name


def _own_metrics(metrics: Metrics) -> list[MetricWrapperBase]:
    return [one for one in vars(metrics).values() if isinstance(one, MetricWrapperBase)]


def test_every_rule_states_fault_and_remedy() -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert all(rule["annotations"].keys() == {"summary", "remedy"} for rule in group["rules"])


@pytest.mark.slow
def test_prometheus_reads_the_rules() -> None:
    command = [str(required(promtool, "prometheus")), "check", "rules", str(RULES)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "15 rules found" in checked.stdout


@pytest.mark.slow
def test_every_rule_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    cases = Path(__file__).with_name("operator.rules.test.yml")
    (tmp_path / RULES.name).write_bytes(RULES.read_bytes())
    (tmp_path / cases.name).write_bytes(cases.read_bytes())
    command = [str(required(promtool, "prometheus")), "test", "rules", str(tmp_path / cases.name)]
    tested = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules if rule["alert"] not in cases.read_text()] == []


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
    rules = [{"record": f"asked:{number}", "expr": text} for number, text in enumerate(asked)]
    (tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
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


def test_prometheus_scrapes_every_worker_with_the_token_under_the_rules_job_name() -> None:
    job, of_ingest, of_api = yaml.safe_load(SCRAPING.read_text())["scrape_configs"]
    assert f'up{{job="{job["job_name"]}"}}' in RULES.read_text()
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    port = yaml.safe_load((DEPLOY / "stream-app.yaml").read_text())["operator"]["port"]
    (targets,) = job["static_configs"]
    assert targets == {"targets": [f"{name}:{port}" for name in services if name.startswith("worker")]}
    port = yaml.safe_load((DEPLOY / "stream-app-http.yaml").read_text())["ingest"]["operator_port"]
    assert of_ingest["static_configs"] == [{"targets": [f"ingest:{port}"]}]
    port = yaml.safe_load((DEPLOY / "stream-app.yaml").read_text())["api"]["port"]
    assert of_api["static_configs"] == [{"targets": [f"api:{port}"]}]
    for one in (job, of_ingest):
        assert one["authorization"] == {"type": "Bearer", "credentials_file": "operator.token"}
