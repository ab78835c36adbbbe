"""The Helm chart renders what Kubernetes accepts, and its Pods may do and reach no more than they need."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stream_app.config import load
from stream_app.shell.commands import main
from tests.patience import PATIENCE_S
from tests.services import tool

REPOSITORY = Path(__file__).parents[2]
KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
CHECK = KUBERNETES / "check-backup.yaml"
HTTP = yaml.safe_load((REPOSITORY / "deploy" / "stream-app-http.yaml").read_text())
EVERYTHING: dict[str, Any] = {
    "configuration": {"alerts": {"topic": "clicks.alerts"}},
    "pods": {
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "counts", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "high",
        "serviceAccountName": "counts",
        "podAnnotations": {"team": "a"},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
    },
    "image": {"digest": f"sha256:{'0' * 64}", "pullSecrets": [{"name": "registry"}]},
    "secrets": {"apiKeys": "readers"},
    "worker": {
        "scaling": {"enabled": True},
        "state": {"storageClassName": "fast"},
        "extraVolumes": [{"name": "authority", "configMap": {"name": "kafka-ca"}}],
        "extraVolumeMounts": [{"name": "authority", "mountPath": "/etc/kafka-ca", "readOnly": True}],
    },
    "api": {
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "hosts": ["counts.example.org", "counts.example.com"],
            "tlsSecret": "tls",
            "annotations": {"a": "b"},
        }
    },
    "ingest": {"enabled": True, "configuration": HTTP},
    "network": {
        "redisPorts": [6379, 26379],
        "extraEgress": {
            "worker": [
                {"to": [{"podSelector": {"matchLabels": {"app": "registry"}}}], "ports": [{"port": 8081}]}
            ]
        },
    },
    "monitoring": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "apiKey": {"name": "prometheus-reader", "key": "its-key"},
    },
}

pytestmark = pytest.mark.slow


def helm(*words: str | Path) -> str:
    return subprocess.run(
        [tool("helm"), *words], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the manifests with the values as they are shipped, and with everything switched on."""
    folder = tmp_path_factory.mktemp("rendered")
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(EVERYTHING))
    files = {"shipped": folder / "shipped.yaml", "everything": folder / "everything.yaml"}
    rendering = ("template", "private-counts", KUBERNETES / "chart", "-f", KUBERNETES / "example-values.yaml")
    files["shipped"].write_text(helm(*rendering))
    files["everything"].write_text(helm(*rendering, "-f", values))
    return files


def resources(file: Path) -> dict[str, Any]:
    """Return a file's resources by kind and name."""
    read = yaml.safe_load_all(file.read_text())
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in read if one}


def pods(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield each role with the specification of its Pods."""
    for one in resources(file).values():
        if one["kind"] in ("StatefulSet", "Deployment"):
            template = one["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template["spec"]


def test_the_plain_manifests_are_the_rendered_chart(rendered: dict[str, Path]) -> None:
    """``helm template private-counts chart -f example-values.yaml > private-counts.yaml`` makes them anew."""
    assert (KUBERNETES / "private-counts.yaml").read_text() == rendered["shipped"].read_text()


def test_no_stream_is_counted_that_the_values_do_not_name(tmp_path: Path) -> None:
    """Helm merges maps, so an example among the chart's own values would be counted beside the operator's."""
    own = yaml.safe_load((KUBERNETES / "example-values.yaml").read_text())
    own["configuration"]["streams"] = {"orders": own["configuration"]["streams"]["clicks"]}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    text = helm("template", "private-counts", KUBERNETES / "chart", "-f", tmp_path / "own.yaml")
    (tmp_path / "rendered.yaml").write_text(text)
    configuration = resources(tmp_path / "rendered.yaml")["ConfigMap/private-counts"]["data"]
    assert list(yaml.safe_load(configuration["stream-app.yaml"])["streams"]) == ["orders"]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm("template", "private-counts", KUBERNETES / "chart")
    assert "configuration.streams is missing" in refused.value.stderr


def test_the_chart_is_called_as_the_project() -> None:
    chart = yaml.safe_load((KUBERNETES / "chart" / "Chart.yaml").read_text())
    compose = yaml.safe_load((REPOSITORY / "deploy" / "compose.yaml").read_text())
    image = compose["services"]["api"]["image"]
    assert image == f"{chart['name']}:{chart['appVersion']}"
    linted = helm("lint", "--strict", KUBERNETES / "chart", "-f", KUBERNETES / "example-values.yaml")
    assert "0 chart(s) failed" in linted


def test_kubernetes_accepts_every_resource_and_no_wrong_property(
    rendered: dict[str, Path], tmp_path: Path
) -> None:
    text = rendered["everything"].read_text()
    wrong = {
        "readOnlyRootFilesystem": "readOnlyRootFileSystem",
        "maxUnavailable: 1": "maxUnavailable: []",
        "maxReplicaCount": "maxReplicas",
        "authorization:": "authorisation:",
        "expr: sum by (spool)": "expression: sum by (spool)",
    }
    broken = tmp_path / "broken.yaml"
    for right, mistake in wrong.items():
        assert right in text
        text = text.replace(right, mistake)
    broken.write_text(text)
    command = [tool("python"), KUBERNETES / "check_manifests.py", *rendered.values(), CHECK, broken]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    found: Any = json.loads(done.stdout)
    assert {file for file, *_ in found} == {"broken.yaml"}, found
    assert {name.partition("/")[0] for _, _, name, _ in found} == {
        "StatefulSet",
        "Deployment",
        "PodDisruptionBudget",
        "ServiceMonitor",
        "PrometheusRule",
        "ScaledObject",
    }


def test_the_pod_that_checks_a_backup_has_what_a_worker_has_and_no_more(rendered: dict[str, Path]) -> None:
    pod, policy = resources(CHECK).values()
    shipped = resources(rendered["shipped"])
    worker = shipped["StatefulSet/private-counts-worker"]["spec"]["template"]
    spec, of_worker, labels = pod["spec"], worker["spec"], pod["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    reached = shipped["NetworkPolicy/private-counts-worker"]["spec"]["egress"]
    kafka = [rule for rule in reached if {"port": 9092} in rule["ports"]]
    assert policy["spec"]["egress"][1:] == kafka  # the witness; not Redis, which it loads itself
    assert policy["spec"]["ingress"] == []
    # Nothing else selects it: no Service sends it requests, no budget and no scrape counts it as a worker.
    for one in shipped.values():
        selector = one.get("spec", {}).get("selector") or one.get("spec", {}).get("podSelector") or {}
        wanted = selector.get("matchLabels", selector)
        assert not wanted or wanted.items() - labels.items(), one["metadata"]["name"]
    assert spec["securityContext"] == of_worker["securityContext"]
    assert spec["automountServiceAccountToken"] is False
    (check,), (first,) = spec["containers"], spec["initContainers"]
    [counts] = of_worker["containers"]
    assert (check["image"], check["envFrom"]) == (counts["image"], counts["envFrom"])
    assert check["securityContext"] == first["securityContext"] == counts["securityContext"]
    mounts = [{one["name"]: one["mountPath"] for one in each["volumeMounts"]} for each in (check, counts)]
    assert mounts[0] == mounts[1] | {"program": "/program", "backup": "/backup"}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert [volumes[one["name"]] for one in of_worker["volumes"]] == of_worker["volumes"]


PLACED: dict[str, Any] = {
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "counts", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "high",
    "serviceAccountName": "counts",
}


def test_pods_run_where_and_as_the_values_say(tmp_path: Path) -> None:
    """What holds for all Pods is said once; a role replaces it, and a map is merged."""
    (tmp_path / "values.yaml").write_text(
        yaml.safe_dump(
            {
                "pods": {
                    **PLACED,
                    "podAnnotations": {"team": "a"},
                    "extraEnv": [{"name": "A", "value": "1"}],
                },
                "api": {
                    "priorityClassName": "low",
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [],
                    "podAnnotations": {"linkerd.io/inject": "enabled"},
                    "extraEnv": [{"name": "B", "value": "2"}],
                },
                "ingest": {"enabled": True, "configuration": HTTP},
            }
        )
    )
    example = KUBERNETES / "example-values.yaml"
    text = helm(
        "template", "private-counts", KUBERNETES / "chart", "-f", example, "-f", tmp_path / "values.yaml"
    )
    (tmp_path / "rendered.yaml").write_text(text)
    found = dict(pods(tmp_path / "rendered.yaml"))
    own: dict[str, Any] = {
        "priorityClassName": "low",
        "nodeSelector": {**PLACED["nodeSelector"], "disk": "ssd"},
        "tolerations": None,
    }
    for role, pod in found.items():
        wanted = PLACED | own if role == "api" else PLACED
        assert {name: pod.get(name) for name in PLACED} == wanted
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            names = [one["name"] for one in container["env"]]
            token = ["STREAM_APP_OPERATOR_TOKEN"] if container["name"] == "ingest" else []
            assert names == [*token, "B" if role == "api" else "A"]
    assert set(found) == {"worker", "api", "alerts", "ingest"}
    for one in resources(tmp_path / "rendered.yaml").values():
        if one["kind"] in ("StatefulSet", "Deployment"):
            noted = one["spec"]["template"]["metadata"]["annotations"]
            assert len(noted.pop("checksum/configuration")) == 64
            injected = {"linkerd.io/inject": "enabled"} if one["metadata"]["name"].endswith("api") else {}
            assert noted == {"team": "a"} | injected


def test_no_pod_has_rights_that_it_does_not_need(rendered: dict[str, Path]) -> None:
    seen = dict(pods(rendered["everything"]))
    assert set(seen) == {"worker", "api", "alerts", "ingest"}
    for pod in seen.values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]
            assert container["image"].endswith(f"@sha256:{'0' * 64}")


def test_each_process_gets_its_own_secrets_only(rendered: dict[str, Path]) -> None:
    given = {}
    for role, pod in pods(rendered["everything"]):
        for container in pod["containers"]:
            texts = json.dumps([container.get("envFrom"), container.get("env")])
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            names = ("worker", "api", "alerts", "ingest")
            named = {name for name in names if f'"private-counts-{name}"' in texts}
            secret = {"noise-key", "state", "spool", "api-keys", "authority"}
            given[role, container["name"]] = named | mounted & secret
    assert given == {
        ("worker", "worker"): {"worker", "noise-key", "state", "authority"},
        ("api", "api"): {"api", "api-keys"},
        ("alerts", "alerts"): {"api", "alerts"},
        ("ingest", "ingest"): {"ingest", "spool"},
        ("ingest", "worker"): {"worker", "noise-key", "state", "spool"},
    }
    (listener,) = (pod["containers"][0] for role, pod in pods(rendered["everything"]) if role == "ingest")
    assert "envFrom" not in listener
    token, _added = listener["env"]
    assert token["valueFrom"]["secretKeyRef"]["key"] == "STREAM_APP_OPERATOR_TOKEN"


def test_who_reaches_whom(rendered: dict[str, Path]) -> None:
    out, into = {}, {}
    for name, one in resources(rendered["everything"]).items():
        if one["kind"] == "NetworkPolicy":
            role = name.removeprefix("NetworkPolicy/private-counts-")
            spec = one["spec"]
            assert spec["policyTypes"] == ["Ingress", "Egress"]
            assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == role
            out[role] = {port["port"] for rule in spec["egress"] for port in rule["ports"]} - {53}
            into[role] = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
    redis = {6379, 26379}
    assert out == {
        "worker": {*redis, 9092, 8081},
        "api": redis,
        "alerts": {*redis, 443, 9092},  # with alerts.topic only
        "ingest": redis,
    }
    assert into == {"worker": {9464}, "api": {8088, 9466}, "alerts": {9467}, "ingest": {8089, 9464, 9465}}
    watcher = resources(rendered["shipped"])["NetworkPolicy/private-counts-alerts"]["spec"]["egress"]
    assert 9092 not in {port["port"] for rule in watcher for port in rule["ports"]}
    workers = resources(rendered["shipped"])["NetworkPolicy/private-counts-worker"]["spec"]["ingress"]
    assert [rule["from"] for rule in workers] == [
        [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    ]


def test_the_prometheus_operator_scrapes_and_decides_as_prometheus_does(rendered: dict[str, Path]) -> None:
    found = resources(rendered["everything"])
    asked, tokens = {}, {}
    for name, one in found.items():
        if one["kind"] == "ServiceMonitor":
            role = name.removeprefix("ServiceMonitor/private-counts-")
            ports = {
                port["name"]: port["port"]
                for port in found[f"Service/private-counts-{role}"]["spec"]["ports"]
            }
            for endpoint in one["spec"]["endpoints"]:
                job = endpoint["relabelings"][0]["replacement"]
                asked[role, job] = ports[endpoint["port"]]
                if "authorization" in endpoint:
                    token = endpoint["authorization"]["credentials"]
                    tokens[role, job] = (token["name"].removeprefix("private-counts-"), token["key"])
    assert asked == {
        ("worker", "private-counts-workers"): 9464,
        ("api", "private-counts"): 8088,
        ("api", "private-counts-api"): 9466,
        ("alerts", "private-counts-alerts"): 9467,
        ("ingest", "private-counts-workers"): 9464,
        ("ingest", "private-counts-ingest"): 9465,
    }
    operator = "STREAM_APP_OPERATOR_TOKEN"
    assert tokens == {
        ("worker", "private-counts-workers"): ("worker", operator),
        ("api", "private-counts"): ("prometheus-reader", "its-key"),
        ("api", "private-counts-api"): ("api", operator),
        ("alerts", "private-counts-alerts"): ("alerts", operator),
        ("ingest", "private-counts-workers"): ("worker", operator),
        ("ingest", "private-counts-ingest"): ("ingest", operator),
    }
    scraped = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert {job for _, job in asked} == {one["job_name"] for one in scraped}
    rules = yaml.safe_load((REPOSITORY / "deploy/prometheus/operator.rules.yml").read_text())
    assert found["PrometheusRule/private-counts"]["spec"] == rules
    assert not any(
        name.startswith(("ServiceMonitor", "PrometheusRule")) for name in resources(rendered["shipped"])
    )


def test_an_api_with_keys_is_not_scraped_without_one() -> None:
    shipped = ("template", "private-counts", KUBERNETES / "chart", "-f", KUBERNETES / "example-values.yaml")
    monitored = (*shipped, "--set", "monitoring.enabled=true")
    assert "name: private-counts-api" in helm(*monitored)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm(*monitored, "--set", "secrets.apiKeys=readers")
    assert "monitoring.apiKey.name is missing" in refused.value.stderr


def test_what_ends_is_asked_nothing_more_and_has_time(rendered: dict[str, Path]) -> None:
    for role, pod in pods(rendered["everything"]):
        waits = ["lifecycle" in container for container in pod["containers"]]
        assert waits == {"api": [True], "ingest": [True, False]}.get(role, [False])
        if any(waits):
            assert pod["terminationGracePeriodSeconds"] >= 30
        for container in pod["containers"]:
            assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
            assert {"port", "path"} == container["livenessProbe"]["httpGet"].keys()


def test_readers_keys_and_hosts_reach_the_api(rendered: dict[str, Path]) -> None:
    found = resources(rendered["everything"])
    ingress = found["Ingress/private-counts-api"]["spec"]
    assert [rule["host"] for rule in ingress["rules"]] == ingress["tls"][0]["hosts"]
    assert len(ingress["rules"]) == 2
    (api,) = (pod for role, pod in pods(rendered["everything"]) if role == "api")
    (mount,) = (one for one in api["containers"][0]["volumeMounts"] if one["name"] == "api-keys")
    assert mount["mountPath"] == "/etc/private-counts-keys"
    (volume,) = (one for one in api["volumes"] if one["name"] == "api-keys")
    assert volume["secret"]["secretName"] == "readers"


def test_the_processes_are_commands_and_read_the_configuration_of_compose(
    rendered: dict[str, Path], tmp_path: Path
) -> None:
    for _, pod in pods(rendered["everything"]):
        for container in pod["containers"]:
            command, *options = container["args"]
            assert command in main.commands
            assert options == ["--config", "/etc/private-counts/stream-app.yaml"]
    text = resources(rendered["shipped"])["ConfigMap/private-counts"]["data"]["stream-app.yaml"]
    (tmp_path / "stream-app.yaml").write_text(text)
    settings = load(tmp_path / "stream-app.yaml")
    assert settings.operator is not None
    assert settings.operator.port == 9464
    assert settings.api.port == 8088
    said, shipped = yaml.safe_load(text), yaml.safe_load((REPOSITORY / "deploy/stream-app.yaml").read_text())
    assert said.pop("api") | {"hosts": ["api"]} == shipped.pop("api")
    assert said == shipped
