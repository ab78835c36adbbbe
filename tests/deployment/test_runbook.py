"""The runbook has one section for each of the operator's rules, and names only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from stream_app.shell.commands import main
from tests.deployment.test_prometheus import exposed, rules

REPOSITORY = Path(__file__).parents[2]
RUNBOOK = (REPOSITORY / "docs" / "runbook.md").read_text()
PARTS = ("Means", "Affected", "Look", "Do")


def sections() -> dict[str, str]:
    """Return the text of each alert's section."""
    found = re.split(r"^### (\w+)\n", RUNBOOK, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def test_each_rule_has_one_section_and_each_section_a_rule() -> None:
    titles = re.findall(r"^### (.+)$", RUNBOOK, flags=re.MULTILINE)
    assert sorted(titles) == sorted(rule["alert"] for rule in rules())


@pytest.mark.parametrize("alert", [rule["alert"] for rule in rules()])
def test_each_section_says_what_it_means_for_whom_where_to_look_and_what_to_do(alert: str) -> None:
    text = sections()[alert].split("\n## ")[0]
    found = re.findall(r"^\*\*(\w+)\.\*\* (.+)$", text, flags=re.MULTILINE)
    assert [part for part, _ in found] == list(PARTS)
    assert all(len(said) > 10 for _, said in found)


def test_every_command_file_service_and_metric_in_it_exists() -> None:
    code = re.findall(r"`([^`\n]+)`", RUNBOOK)
    commands = {word for text in code for word in re.findall(r"stream-app ([a-z-]+)", text)}
    assert len(commands) > 5
    assert commands <= set(main.commands)
    files = {word for text in code for word in re.findall(r"deploy/[\w./-]+", text)} - {"deploy/secrets"}
    assert [file for file in files if not (REPOSITORY / file).exists()] == []
    compose = yaml.safe_load((REPOSITORY / "deploy" / "compose.yaml").read_text())["services"]
    asked = [text for text in code if text.startswith("docker compose")]
    assert asked
    for text in asked:
        assert set(text.split()) & set(compose), text
    assert "`worker-1`, `worker-2`, `worker-http`, `api`, `alerts` and `ingest`" in RUNBOOK
    for unit in re.findall(r"(?:journalctl -u|systemctl restart) ([\w-]+)", RUNBOOK):
        assert (REPOSITORY / "deploy" / "systemd" / f"{unit}.service").exists()
    manifests = yaml.safe_load_all((REPOSITORY / "deploy" / "kubernetes" / "private-counts.yaml").read_text())
    sets = {one["metadata"]["name"] for one in manifests if one and one["kind"] == "StatefulSet"}
    pods = set(re.findall(r"kubectl [^`|]*?(private-counts-\w+)-0", RUNBOOK))
    assert pods
    assert pods <= sets
    metrics = {word for text in code for word in re.findall(r"\b(?:stream_app|process)_[a-z_]+", text)}
    assert len(metrics) > 5
    assert metrics <= exposed()


def test_every_key_of_the_configuration_in_it_exists() -> None:
    known = set(
        re.findall(r"^\| `([\w.<>]+)`", (REPOSITORY / "docs" / "configuration.md").read_text(), re.MULTILINE)
    )
    sections = {key.partition(".")[0] for key in known} - {"streams"}
    named = {text for text in re.findall(r"`([a-z_]+\.[a-z_]+)`", RUNBOOK) if text.split(".")[0] in sections}
    assert len(named) > 5
    assert {
        key for key in named if not any(one == key or one.startswith(f"{key}.") for one in known)
    } == set()
