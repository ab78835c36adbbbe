"""compose.yaml: valid by the specification's own schema, and every file and name in it is there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.redis.make_users import VARIABLES
from stream_app.config import REDIS_ALERTS_URL, REDIS_API_URL, REDIS_URL, load
from tests.services import compose_schema

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def validate(file: Path) -> subprocess.CompletedProcess[str]:
    program = compose_schema()
    assert program is not None, "the Compose schema is missing; run: python tests/services.py install"
    command = [program, "--builtin-schema", "vendor.compose-spec", file]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_it_is_valid_by_the_specification_and_a_misspelt_one_is_not(tmp_path: Path) -> None:
    good = validate(DEPLOY / "compose.yaml")
    assert good.returncode == 0, good.stdout + good.stderr
    for number, (right, wrong) in enumerate(
        [("networks:", "network:"), ("restart: unless", "restarts: unless")]
    ):
        text = (DEPLOY / "compose.yaml").read_text()
        assert right in text
        broken = tmp_path / f"{number}.yaml"
        broken.write_text(text.replace(right, wrong))
        assert validate(broken).returncode == 1


def test_every_file_that_it_mounts_is_there(compose: Any) -> None:
    mounted = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
        if volume.startswith(".")
    ]
    assert len(mounted) >= 6
    written = {"./secrets/users.acl"}  # by make_users.py
    for path in mounted:
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
    files = {name: service.get("env_file") for name, service in compose["services"].items()}
    assert VARIABLES["alerts"] == REDIS_ALERTS_URL
    assert files.pop("api") == ["secrets/api.env"]
    assert files.pop("alerts") == ["secrets/api.env", "secrets/alerts.env"]
    workers = {name: file for name, file in files.items() if name.startswith("worker")}
    assert len(workers) >= 2
    assert set(map(tuple, workers.values())) == {("secrets/worker.env",)}
    states = [v for name in workers for v in compose["services"][name]["volumes"] if "private-counts" in v]
    directories = [volume.split(":")[0] for volume in states if volume.startswith("worker")]
    assert len(set(directories)) == len(workers)


def test_readers_reach_neither_events_nor_the_operators_door(compose: Any) -> None:
    networks = {name: set(service["networks"]) for name, service in compose["services"].items()}
    readers = {"api", "alerts"}
    for name in readers:
        assert networks[name] == {"store", "public"}
        assert not networks[name] & networks["kafka"]
        assert compose["services"][name]["command"][0] == name
    for name, service in compose["services"].items():
        if name != "api":
            assert "ports" not in service, name
        if name not in readers:
            assert all(compose["networks"][network].get("internal") for network in networks[name]), name


def test_its_configuration_can_be_read_with_the_environment_that_it_gets() -> None:
    urls = {REDIS_URL: "worker", REDIS_API_URL: "api", REDIS_ALERTS_URL: "alerts"}
    environment = {name: f"redis://{user}:x@redis:6379/0" for name, user in urls.items()}
    settings = load(DEPLOY / "stream-app.yaml", environment)
    assert settings.api.host == "0.0.0.0"
    assert settings.api.port == 8088
    assert settings.redis.alerts_url == environment[REDIS_ALERTS_URL]
    assert settings.alerts.rules
    assert settings.operator is not None
    assert settings.operator.host == "0.0.0.0"
    assert settings.state_dir == Path("/var/lib/private-counts/state")
    assert settings.kafka is not None
    assert settings.kafka.bootstrap_servers == "kafka:9092"
    # Several workers need a second record of releases that they share.
    assert all(settings.output_of(stream.name) for stream in settings.streams)


def test_the_image_copies_what_is_there_and_does_not_run_as_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if re.match(r"COPY (?!--from)", line)]
    allowed = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    for source in [path for paths in copied for path in paths]:
        assert (REPOSITORY / source).exists(), source
        assert source in allowed
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    assert [line for line in lines if line.startswith("ENTRYPOINT")] == ['ENTRYPOINT ["stream-app"]']
    assert "stream-app" in scripts
    assert [line for line in lines if line.startswith("USER")] == ["USER counts"]
