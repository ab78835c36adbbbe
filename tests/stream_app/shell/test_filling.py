"""``doctor`` and ``plan`` warn where a sample shows that an epoch may fill its sum."""

from __future__ import annotations

import asyncio
import json
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
  sales:
    source: {{file: sales.ndjson}}
    time: {{field: at, format: ms, bin: 1m, grace: 5s, epoch: 1d}}
    privacy: {{epsilon: 1}}
    tree: {{branching: [1440], release: causal}}
    sum: {{field: amount, min: 0, max: {most}, unit: 0.01}}
"""
# With 100,000 units an epoch holds 2^44 / 100,000 = 175,921,860 events; a day with 204 a second has a tenth.
STEPS_MS = [(4, True), (6, False)]


def configured(folder: Path, step_ms: int) -> Path:
    """Write 500 events, one every some milliseconds, and a configuration; return its path."""
    lines = [json.dumps({"at": 1_700_000_000_000 + n * step_ms, "amount": 3}) for n in range(500)]
    (folder / "sales.ndjson").write_text("\n".join([*lines, ""]))
    (folder / "app.yaml").write_text(CONFIGURATION.format(most=1000, port=free_port()))
    return folder / "app.yaml"


@pytest.mark.parametrize(("step_ms", "warned"), STEPS_MS)
def test_doctor_warns_where_an_epoch_may_fill_its_sum(tmp_path: Path, step_ms: int, warned: bool) -> None:
    found = asyncio.run(doctor.examine(load(configured(tmp_path, step_ms), {})))
    said = [one.said for one in found if one.what == "streams.sales.sum.unit"]
    assert len(said) == warned
    if warned:
        assert "an epoch fills more than 10% of the 175,921,860 events that its sum can hold" in said[0]
        assert "take a coarser sum.unit" in said[0]
        assert "epsilon does not cover that" in said[0]
        assert [one.exact for one in found if one.what == "streams.sales.sum.unit"] == [True]


@pytest.mark.parametrize(("step_ms", "warned"), STEPS_MS)
def test_plan_warns_and_says_what_an_epoch_holds(tmp_path: Path, step_ms: int, warned: bool) -> None:
    config = configured(tmp_path, step_ms)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["plan", "--config", str(config)])
    assert result.exit_code == 0, result.output
    assert ("warning: streams.sales.sum.unit: at the rate of a sample" in result.output) == warned
    assert (EXACT in result.output) == warned
    rows = [line.strip("│").split("│") for line in result.output.splitlines() if line.startswith("│")]
    facts = {name.strip(): text.strip() for name, text in (row for row in rows if len(row) == 2)}
    assert facts["an epoch holds"] == "at most 175,921,860 events; the stream stops beyond"
    assert facts["sum"].startswith("amount, from 0 to 1000 in steps of 0.01")
    # Two ends, each with noise of scale w / epsilon at every level: here one level, so w sqrt(2 * 1440) / 1.
    error = float(facts["the sum of amount in an epoch"].removeprefix("± ").replace(",", ""))
    assert error == pytest.approx(1.96 * 1000 * (2 * 1440) ** 0.5, rel=0.01)
