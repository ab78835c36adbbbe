"""compose.yaml is valid by the specification's schema, and every file and name in it exists."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.kafka import make_secrets
from deploy.redis import make_users
from deploy.redis.make_users import VARIABLES
from stream_app import health
from stream_app.config import REDIS_ALERTS_URL, REDIS_API_URL, REDIS_URL, load
from stream_app.config.access import OPERATOR_TOKEN, check_operator
from stream_app.ports import OperatorError
from stream_app.shell.commands import main as stream_app
from stream_app.wiring.topics import cluster_of
from tests.deployment.compose_files import merged
from tests.patience import PATIENCE_S
from tests.services import tool

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
CONFIGURATIONS = ("stream-app.yaml", "stream-app-secured.yaml")


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.mark.slow
def test_the_compose_file_is_valid_and_a_misspelt_one_is_not(tmp_path: Path) -> None:
    files = [DEPLOY / "compose.yaml", DEPLOY / "compose.secured.yaml"]
    text = files[0].read_text()
    for right, wrong in (("networks:", "network:"), ("restart: unless", "restarts: unless")):
        assert right in text
        files.append(tmp_path / f"{wrong.split(':')[0]}.yaml")
        files[-1].write_text(text.replace(right, wrong))
    command = [str(tool("check-jsonschema")), "-o", "json", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["parse_errors"] == []
    assert {Path(one["filename"]).name for one in found["errors"]} == {"network.yaml", "restarts.yaml"}


def test_every_mounted_file_exists(compose: Any) -> None:
    mounted = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
        if volume.startswith(".")
    ]
    assert len(mounted) >= 6
    tokens = {f"./secrets/{role}.token" for role in make_users.MEASURED}
    written = {"./secrets/users.acl", *(f"./secrets/{name}" for name in make_users.GRAFANAS), *tokens}
    for path in mounted:  # make_users.py writes the secrets
        assert path in written or (DEPLOY / path).exists(), path
    named = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
        if not volume.startswith(".")
    }
    assert named == set(compose["volumes"])


def test_each_process_gets_its_own_password_only(compose: Any) -> None:
    assert VARIABLES["worker"] == REDIS_URL
    assert VARIABLES["api"] == REDIS_API_URL
    assert make_users.OPERATOR_TOKEN == OPERATOR_TOKEN
    files = {name: service.get("env_file") for name, service in compose["services"].items()}
    assert VARIABLES["alerts"] == REDIS_ALERTS_URL
    assert files.pop("api") == ["secrets/api.env"]
    assert files.pop("alerts") == ["secrets/api.env", "secrets/alerts.env"]
    assert files.pop("ingest") == ["secrets/ingest.env"]  # no password at all
    assert files.pop("rotate-key") == ["secrets/worker.env"]
    workers = {name: file for name, file in files.items() if name.startswith("worker")}
    assert len(workers) >= 2
    assert set(map(tuple, workers.values())) == {("secrets/worker.env",)}
    states = [v for name in workers for v in compose["services"][name]["volumes"] if "private-counts" in v]
    directories = [volume.split(":")[0] for volume in states if volume.startswith("worker")]
    assert len(set(directories)) == len(workers)


def test_the_image_s_health_check_asks_a_port_that_each_of_our_services_has(compose: Any) -> None:
    assert 'CMD ["python", "-m", "stream_app.health"]' in (DEPLOY / "Dockerfile").read_text()
    asked = set()
    for name, service in compose["services"].items():
        if not service["image"].startswith("private-counts") or name in ENDING | CHECKS:
            continue
        assert "healthcheck" not in service
        (configured,) = [volume.split(":")[0] for volume in service["volumes"] if "stream-app" in volume]
        written = yaml.safe_load((DEPLOY / configured).read_text())
        section = written[{"worker": "operator"}.get(service["command"][0], service["command"][0])]
        asked.add(section.get("port") or section["operator_port"])
    assert asked == set(health.PORTS)


def test_the_image_is_labelled_with_the_version_that_it_is_named_by(compose: Any) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    built = [one for one in compose["services"].values() if "build" in one]
    assert len(built) >= 4
    for service in built:
        assert service["image"] == f"private-counts:{version}"
        assert service["build"]["args"] == {"VERSION": version, "REVISION": "${REVISION:-unknown}"}


CHECKS = {"check-backup", "check-backup-http"}
ENDING = {"noise-key", "rotate-key"}  # they do one thing and end
WORKERS = {"worker-1", "worker-2"}
ALL_WORKERS = WORKERS | {"worker-http"}
# Which service can connect to which; all other pairs must be separate.
REACHED_BY = {
    "kafka": WORKERS | {"check-backup"},
    "redis": ALL_WORKERS | {"rotate-key", "api", "alerts"},
    "worker-1": {"worker-2", "worker-http", "rotate-key", "check-backup", "kafka", "redis", "prometheus"},
    "worker-2": {"worker-1", "worker-http", "rotate-key", "check-backup", "kafka", "redis", "prometheus"},
    "worker-http": {"worker-1", "worker-2", "rotate-key", "redis", "prometheus"},
    "rotate-key": ALL_WORKERS | {"redis"},
    "ingest": {"prometheus"},
    "api": {"redis", "alerts", "grafana", "prometheus"},
    "alerts": {"redis", "api", "grafana", "prometheus"},
    "noise-key": set(),
    "redis-program": set(),
    "check-backup": WORKERS | {"kafka"},
    "check-backup-http": set(),
    "prometheus": ALL_WORKERS | {"ingest", "api", "alerts", "alertmanager", "grafana-operator"},
    "alertmanager": {"prometheus", "grafana-operator"},
    "grafana-operator": {"prometheus", "alertmanager"},
    "grafana": {"api", "alerts"},
}
# The services with a way out of the machine, and the addresses on it that some of them publish.
OUTSIDE = {"api", "alerts", "ingest", "alertmanager", "grafana", "grafana-operator"}
PUBLISHED = {
    "api": "127.0.0.1:8088:8088",
    "ingest": "127.0.0.1:8089:8089",
    "grafana": "127.0.0.1:3000:3000",
    "grafana-operator": "127.0.0.1:3001:3000",
}


def networks_of(service: Any) -> set[str]:
    """Return a service's networks; a service that names none is in the default network."""
    assert not service.keys() & {"links", "external_links", "extra_hosts"}
    if "network_mode" in service:
        assert service["network_mode"] == "none"
        return set()
    return set(service.get("networks", ["default"]))


def test_nobody_reaches_more_ports_than_the_table_says(compose: Any) -> None:
    networks = {name: networks_of(service) for name, service in compose["services"].items()}
    reached_by = {
        name: {other for other in networks if other != name and networks[other] & networks[name]}
        for name in networks
    }
    assert reached_by == REACHED_BY


def test_what_prometheus_scrapes_cannot_read_the_numbers_of_prometheus(compose: Any) -> None:
    prometheus = compose["services"]["prometheus"]
    (listening,) = [word for word in prometheus["command"] if word.startswith("--web.listen-address=")]
    name, _, port = listening.partition("=")[2].partition(":")
    named = {network: (one or {}).get("aliases", []) for network, one in prometheus["networks"].items()}
    assert [network for network, aliases in named.items() if name in aliases] == ["watching"]
    assert port == "9090"
    watching = {one for one, service in compose["services"].items() if "watching" in networks_of(service)}
    assert watching == {"prometheus", "alertmanager", "grafana-operator"}


def test_a_secured_kafka_changes_nothing_else(tmp_path: Path) -> None:
    plain, secured = (yaml.safe_load((DEPLOY / name).read_text()) for name in CONFIGURATIONS)
    added = secured.pop("kafka")
    assert {key: added[key] for key in plain["kafka"]} == plain.pop("kafka")
    assert secured == plain
    tmp_path.chmod(0o755)
    before = os.umask(0o077)
    try:
        make_secrets.write(tmp_path, "kafka")
    finally:
        os.umask(before)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    services = merged("compose.yaml", "compose.secured.yaml")
    mounted = {volume.split(":")[0] for service in services.values() for volume in service["volumes"]}
    for file in ("broker.pem", "ca.pem", "kafka.jaas"):
        assert f"./secrets/{file}" in mounted
        assert (tmp_path / file).stat().st_mode & 0o777 == 0o644
    files = {name: service["env_file"] for name, service in services.items()}
    for name in WORKERS:
        assert files[name] == ["secrets/worker.env", "secrets/kafka-worker.env"]
    assert not any("kafka" in file for name in ("api", "alerts") for file in files[name])
    assert not (mounted & {"./secrets/ca.key", "./secrets"})


def test_readers_load_the_configuration_of_a_secured_kafka_without_its_password() -> None:
    settings = load(DEPLOY / "stream-app-secured.yaml", ENVIRONMENT)
    assert settings.kafka is not None
    with pytest.raises(OperatorError, match=r"^kafka\.sasl\.password: is missing"):
        cluster_of(settings, "").client()


def test_passwords_and_authority_are_kept_while_the_certificate_is_made_anew(tmp_path: Path) -> None:
    make_secrets.write(tmp_path / "secrets", "kafka")
    before = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    make_secrets.write(tmp_path / "secrets", "kafka")
    after = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert before.keys() == after.keys() == {
        "broker.pem", "ca.key", "ca.pem", "kafka-producer.env", "kafka-worker.env", "kafka.jaas"
    }  # fmt: skip
    # The broker's password for itself is in one file only, so a new one is as good.
    assert {name for name in before if before[name] != after[name]} == {"broker.pem", "kafka.jaas"}
    for user in make_secrets.USERS:
        password = before[f"kafka-{user}.env"].strip().partition("=")[2]
        assert len(password) >= 40
        assert f'user_{user}="{password}"' in after["kafka.jaas"]


def test_readers_reach_neither_events_nor_a_workers_secret_metrics(compose: Any) -> None:
    for reader in ("api", "alerts"):
        assert compose["services"][reader]["command"][0] == reader
        assert not any(reader in REACHED_BY[name] for name in (*WORKERS, "kafka"))
    outside = {name for name, network in compose["networks"].items() if not (network or {}).get("internal")}
    assert {name for name, one in compose["services"].items() if networks_of(one) & outside} == OUTSIDE
    published = {name: one["ports"] for name, one in compose["services"].items() if "ports" in one}
    assert published == {name: [address] for name, address in PUBLISHED.items()}


def test_a_grafana_for_readers_reaches_released_values_only(compose: Any) -> None:
    assert REACHED_BY["grafana"] == {"api", "alerts"}
    mounted = {name: compose["services"][name]["volumes"] for name in ("grafana", "grafana-operator")}
    assert not any("grafana/operator" in volume for volume in mounted["grafana"])
    for name in mounted:  # without it Grafana's first password is known to everybody
        assert "GF_SECURITY_ADMIN_PASSWORD__FILE" in compose["services"][name]["environment"]
    first = {name: {one for one in volumes if "/secrets/" in one} for name, volumes in mounted.items()}
    assert first == {
        name: {f"./secrets/{name}.password:/run/grafana.password:ro"}
        for name in ("grafana", "grafana-operator")
    }
    assert "GF_AUTH_ANONYMOUS_ENABLED" not in compose["services"]["grafana-operator"]["environment"]


def test_the_operators_network_holds_workers_and_prometheus_and_their_metrics_need_a_token(
    compose: Any,
) -> None:
    inside = {name for name, service in compose["services"].items() if "operator" in networks_of(service)}
    assert inside == ALL_WORKERS | {"prometheus"}
    without = {name: url for name, url in ENVIRONMENT.items() if name != OPERATOR_TOKEN}
    with pytest.raises(OperatorError, match=r"^operator\.host: 0\.0\.0\.0 is not loopback"):
        check_operator(load(DEPLOY / "stream-app.yaml", without).operator)
    check_operator(load(DEPLOY / "stream-app.yaml", ENVIRONMENT).operator)


ENVIRONMENT = {
    REDIS_URL: "redis://worker:x@redis:6379/0",
    REDIS_API_URL: "redis://api:x@redis:6379/0",
    REDIS_ALERTS_URL: "redis://alerts:x@redis:6379/0",
    OPERATOR_TOKEN: "0123456789abcdef",
}


def test_every_process_ends_on_sigterm_even_while_it_loads(compose: Any) -> None:
    """The kernel drops a signal to a container's first process if that process has no handler for it."""
    heard = {name for name, service in compose["services"].items() if service.get("init")}
    assert heard == {*ALL_WORKERS, *CHECKS, "rotate-key", "api", "alerts", "ingest"}


def test_configuration_is_valid_in_the_environment_of_each_service() -> None:
    settings = load(DEPLOY / "stream-app.yaml", ENVIRONMENT)
    assert settings.api.host == "0.0.0.0"
    assert settings.api.port == 8088
    assert settings.redis.alerts_url == ENVIRONMENT[REDIS_ALERTS_URL]
    assert settings.alerts.rules
    assert settings.operator is not None
    assert settings.operator.host == "0.0.0.0"
    assert settings.state_dir == Path("/var/lib/private-counts/state")
    assert settings.kafka is not None
    assert settings.kafka.bootstrap_servers == "kafka:9092"
    # Several workers need shared keys of stored noise, and a shared witness.
    assert settings.noise_key_file == Path("/var/lib/noise-key/noise.key")
    assert all(settings.output_of(stream.name) for stream in settings.streams)


def test_only_the_commands_of_keys_may_write_the_key_that_workers_read(compose: Any) -> None:
    key = load(DEPLOY / "stream-app.yaml", ENVIRONMENT).noise_key_file
    assert key is not None
    mounted = {
        name: volume
        for name, one in compose["services"].items()
        for volume in one.get("volumes", ())
        if volume.startswith("noise-key:")
    }
    writable, read_only = f"noise-key:{key.parent}", f"noise-key:{key.parent}:ro"
    assert mounted == dict.fromkeys(ENDING, writable) | dict.fromkeys(WORKERS | {"check-backup"}, read_only)
    service = compose["services"]["rotate-key"]
    said = CliRunner().invoke(stream_app, [*service["entrypoint"][1:], *service["command"]])
    assert (said.exit_code, service["entrypoint"][0]) == (0, "stream-app")
    assert "{begin|finish|lost|move}" in said.output
    assert (service["profiles"], service["restart"]) == (["rotate"], "no")
    page = (REPOSITORY / "docs/how-to/rotate.md").read_text()
    for step in ("begin", "finish"):
        assert f"docker compose -f deploy/compose.yaml run --rm --no-deps rotate-key {step}" in page


def test_a_key_of_stored_noise_that_is_there_stays(compose: Any, tmp_path: Path) -> None:
    service = compose["services"]["noise-key"]
    words = [word.replace("/var/lib/noise-key", str(tmp_path)) for word in service["command"]]
    keys = set()
    for _ in range(2):  # before every start of a worker
        subprocess.run([*service["entrypoint"], *words], check=True, timeout=PATIENCE_S)
        keys.add((tmp_path / "noise.key").read_bytes())
    [key] = keys
    assert len(key) == 45


def test_events_over_http_have_one_worker_and_keys_in_their_volume(compose: Any) -> None:
    settings = load(DEPLOY / "stream-app-http.yaml", ENVIRONMENT)
    ingest = settings.ingest
    assert ingest is not None
    assert ingest.operator is not None
    assert (ingest.host, ingest.port, ingest.operator.port) == ("0.0.0.0", 8089, 9465)
    assert ingest.keys == Path("/var/lib/spool/writers.ndjson")
    assert "/var/lib/spool" in (DEPLOY / "Dockerfile").read_text()  # which this user may write
    using = {
        name for name, one in compose["services"].items() if "spool:/var/lib/spool" in one.get("volumes", ())
    }
    assert using == {"ingest", "worker-http"}
    assert all(compose["services"][name]["profiles"] == ["http"] for name in using)


def test_image_copies_existing_files_and_does_not_run_as_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if re.match(r"COPY (?!--from)", line)]
    allowed = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    for source in [path for paths in copied for path in paths]:
        assert (REPOSITORY / source).exists(), source
        assert source in allowed
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert [line for line in lines if line.startswith("ENTRYPOINT")] == ['ENTRYPOINT ["stream-app"]']
    assert "stream-app" in scripts
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]
