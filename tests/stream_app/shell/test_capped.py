"""``doctor`` and ``plan`` warn of a cap per user that leaves out many events of a sample."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.ports import free_port
from stream_app.config import load
from stream_app.shell.commands import main
from stream_app.shell.doctor import checks as doctor
from stream_app.shell.doctor.findings import EXACT

CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
api: {{port: {port}}}
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1m, grace: 5s, epoch: 1d}}
    privacy: {{epsilon: 1, unit: {{user: visitor, max_events: {most}}}}}
"""


def configured(folder: Path, most: int) -> Path:
    """Write 100 events of a busy user and 100 of others, and a configuration; return its path."""
    users = ["busy" if n % 2 else f"user {n}" for n in range(200)]
    lines = [json.dumps({"at": 1_700_000_000 + n, "visitor": user}) for n, user in enumerate(users)]
    (folder / "clicks.ndjson").write_text("\n".join([*lines, json.dumps({"at": 1_700_000_500}), ""]))
    (folder / "app.yaml").write_text(CONFIGURATION.format(most=most, port=free_port()))
    return folder / "app.yaml"


@pytest.mark.parametrize(("most", "warned"), [(50, True), (95, False)])
def test_doctor_warns_where_the_cap_leaves_out_more_than_a_few_per_cent(
    tmp_path: Path, most: int, warned: bool
) -> None:
    found = asyncio.run(doctor.examine(load(configured(tmp_path, most), {})))
    said = [one.said for one in found if one.what == "streams.clicks.privacy.unit.max_events"]
    assert len(said) == warned
    if warned:
        assert "max_events 50 leaves out more than 5% of them; raise it, or shorten time.epoch" in said[0]
        assert "Choosing it by the events has a cost" in said[0]
        assert "25" not in said[0]  # no figure of the sample


def test_check_config_says_that_doctor_reads_a_sample(tmp_path: Path) -> None:
    config = configured(tmp_path, 50)
    said = CliRunner().invoke(main, ["check-config", "--config", str(config)]).output
    assert f"not checked: what caps leave out; stream-app doctor --config {config} reads a sample\n" in said


KEYED = "max_keys: 2, max_per_key: 30, max_events: 70"


def configured_with_keys(folder: Path, caps: str) -> Path:
    """Write 100 events of a busy user over four pages and 100 of others, and a configuration; return it."""
    users = ["busy" if n % 2 else f"user {n}" for n in range(200)]
    lines = [
        json.dumps({"at": 1_700_000_000 + n, "visitor": user, "page": f"p{n // 2 % 4}"})
        for n, user in enumerate(users)
    ]
    (folder / "clicks.ndjson").write_text("\n".join([*lines, ""]))
    text = CONFIGURATION.format(most=1, port=free_port()).replace("max_events: 1", caps)
    text += "    keys: {field: page, list: [p0, p1, p2, p3], other: false}\n"
    (folder / "app.yaml").write_text(text)
    return folder / "app.yaml"


def test_doctor_says_the_share_that_a_cap_leaves_out(tmp_path: Path) -> None:
    found = asyncio.run(doctor.examine(load(configured(tmp_path, 95), {})))
    [said] = [one for one in found if one.what == "streams.clicks.privacy.unit"]
    assert (said.state, said.exact) == ("ok", True)
    assert re.fullmatch(r"of the events of a sample the caps leave out: max_events 95: \d\.\d%", said.said)


def test_doctor_and_plan_show_what_each_cap_leaves_out(tmp_path: Path) -> None:
    """The busy user has 25 events on each of four pages: two pages are 50 events, and 70 of 100 may count."""
    config = configured_with_keys(tmp_path, KEYED)
    found = [
        one
        for one in asyncio.run(doctor.examine(load(config, {})))
        if one.what == "streams.clicks.privacy.unit"
    ]
    assert [(one.state, one.exact) for one in found] == [("warn", True), ("warn", True)]
    assert "max_events 70 and max_keys 2 leave out more than 5% of them; raise them" in found[0].said
    said = "of the events of a sample the caps leave out: max_events 70: 15.0%, max_keys 2: 25.0%, "
    said += "max_per_key 30: 0.0%; all of them: 25.0%"
    assert found[1].said == said
    plan = CliRunner(env={"COLUMNS": "300"}).invoke(main, ["plan", "--config", str(config)]).output
    assert f"clicks: {said}\n" in plan
    assert f"{EXACT}\n" in plan
    assert "Counts at most 60 events per user and epoch, at most 30 in each of at most 2 keys" in plan


@pytest.mark.parametrize(("most", "warned"), [(50, True), (95, False)])
def test_plan_says_what_is_counted_and_warns(tmp_path: Path, most: int, warned: bool) -> None:
    config = configured(tmp_path, most)
    said = CliRunner().invoke(main, ["plan", "--config", str(config)]).output
    assert f"clicks: Counts at most {most} events per user and epoch, earliest bins first." in said
    assert ("warning: streams.clicks.privacy.unit: in a sample" in said) == warned
    (tmp_path / "clicks.ndjson").unlink()
    without = CliRunner().invoke(main, ["plan", "--config", str(config)])
    assert (without.exit_code, "warning" in without.output) == (0, False)
