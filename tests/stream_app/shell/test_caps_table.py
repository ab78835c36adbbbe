"""``plan --caps``: events left out against noise, for rising caps, by a sample."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stream_app.config import load
from stream_app.core.answers.caps import proposed
from stream_app.shell.commands import main
from stream_app.shell.planning.caps import sampled, trades
from stream_app.sources.lines import ENOUGH_RECORDS
from tests.stream_app.client.test_client import running
from tests.world.counted import counted
from tests.world.features import FEATURES
from tests.world.settings import EPOCH_BINS

pytestmark = pytest.mark.slow

CONFIG = """
redis: {url: "embedded:redis"}
streams:
  visits:
    source: {file: visits.ndjson}
    time: {field: at, format: s, bin: 1h, grace: 5m, epoch: 1d, first: "2024-01-01T00:00:00Z"}
    privacy: {epsilon: 1, unit: UNIT}
"""
MIDNIGHT_S = 1_704_067_200
EVENTS = {"ann": 1, "bob": 3, "cid": 12}  # of each day


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write(tmp_path, "{user: who, max_events: 4}")


def write(directory: Path, unit: str) -> Path:
    file = directory / "app.yaml"
    file.write_text(CONFIG.replace("UNIT", unit))
    events = [
        {"at": MIDNIGHT_S + 86_400 * day + 60 * number, "who": who}
        for day in range(2)
        for who, most in EVENTS.items()
        for number in range(most)
    ]
    (directory / "sample.ndjson").write_text("".join(json.dumps(event) + "\n" for event in events))
    return file


def test_each_cap_loses_what_a_recount_loses_and_needs_noise_in_proportion(config: Path) -> None:
    [stream] = load(config).streams
    records = sampled(stream, config.parent / "sample.ndjson")
    found = {trade.most: trade for trade in trades(stream, records)}
    assert list(found) == [1, 2, 5, 10, 20]
    for most, trade in found.items():
        kept = sum(min(most, events) for events in EVENTS.values())
        assert trade.bias == pytest.approx(sum(EVENTS.values()) - kept)
        assert trade.share == pytest.approx(trade.bias / sum(EVENTS.values()))
        assert trade.noise == pytest.approx(most * found[1].noise, rel=0.1)
        assert trade.together == pytest.approx(math.hypot(trade.bias, trade.noise))
    assert Counter(trade.bias == 0 for trade in found.values()) == {True: 1, False: 4}


def test_table_marks_the_least_error_and_says_that_it_is_private(config: Path) -> None:
    ran = CliRunner().invoke(
        main, ["plan", "-c", str(config), "--caps", str(config.parent / "sample.ndjson")]
    )
    assert ran.exit_code == 0, ran.output
    assert ran.output.count(" <") == 1
    said = " ".join(ran.output.split())
    assert "Exact and private" in said
    events = 2 * sum(EVENTS.values())
    assert f"{events} events were read: of a larger file only the first megabyte" in said


def test_table_says_how_much_of_a_large_sample_it_read(config: Path) -> None:
    file = config.parent / "sample.ndjson"
    file.write_text(file.read_text() * 2_000)
    ran = CliRunner().invoke(main, ["plan", "-c", str(config), "--caps", str(file)])
    assert ran.exit_code == 0, ran.output
    [said] = re.findall(r"([\d,]+) events were read", " ".join(ran.output.split()))
    assert ENOUGH_RECORDS <= int(said.replace(",", "")) < file.read_bytes().count(b"\n")


@pytest.mark.parametrize("bins", [EPOCH_BINS - 1, EPOCH_BINS + 1])
def test_a_running_service_proposes_caps_from_its_released_histogram(config: Path, bins: int) -> None:
    with counted(FEATURES["numbers-of-users"], "causal", bins) as (world, _):
        found = proposed(world.view())

        async def asked() -> Result:
            async with running(world) as url:
                return await asyncio.to_thread(
                    CliRunner().invoke, main, ["plan", "-c", str(config), "--caps", url]
                )

        ran = asyncio.run(asked())  # in real time
    said = " ".join(ran.output.split())
    if found is None:
        assert ran.exit_code == 2
        assert "visits has released no histogram of users; write privacy.propose_caps" in said
    else:
        assert ran.exit_code == 0, ran.output
        assert found.sentence in said
        assert ran.output.count(" <") == 1


def test_stream_without_caps_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "app.yaml"
    write(tmp_path, "event")
    ran = CliRunner().invoke(main, ["plan", "-c", str(config), "--caps", str(tmp_path / "sample.ndjson")])
    assert ran.exit_code == 2
    assert "--caps: streams.visits has no caps; write privacy.unit" in ran.output
