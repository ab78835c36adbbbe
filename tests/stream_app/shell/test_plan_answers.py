"""``plan`` states the errors that the API then answers: each row beside a real release of the same plan."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from dphist.product.answers import Histogram
from stream_app.api.app import create_app
from stream_app.config import StreamSettings, load
from stream_app.config.plans import planned
from stream_app.shell.commands import main
from stream_app.shell.planning import answers
from stream_app.sources.file import FileSource
from tests.stream_app.api.client import SHARED
from tests.stream_app.declared import BIN_US, FIRST_BIN, STREAM
from tests.stream_app.one_source import AT
from tests.stream_app.product_stream import ProductSource, view_of

pytestmark = pytest.mark.slow  # many releases: only ``make test`` runs this module

BINS = 12
EVENTS = 3_000
LAST_DAY = 3  # bins; the tests shorten the day
STREAMS = {
    "plain": "privacy: {epsilon: 1}",
    "causal": "privacy: {epsilon: 0.3}\n    tree: {release: causal, branching: [3, 4]}",
    "users": "privacy: {epsilon: 0.5, unit: {user: user}}\n    count: users",
    "capped": "privacy: {epsilon: 0.5, unit: {user: user, max_events: 5}}",
    "over epochs": "privacy: {epsilon: 1}\n    tree: {epochs: 4}",
    "keys": "privacy: {epsilon: 1}\n    keys: {field: country, list: [FR, DE], other: true}",
    "values": "privacy: {epsilon: 1}\n    value: {field: amount, min: 0, max: 100, buckets: 40}",
    "both": "privacy: {epsilon: 0.5}\n    tree: {release: causal}\n"
    "    keys: {field: country, list: [FR, DE], total: true}\n"
    "    value: {field: amount, min: 0, max: 100, buckets: 10}",
    "sum": "privacy: {epsilon: 1}\n    keys: {field: country, list: [FR, DE]}\n"
    "    sum: {field: amount, min: -10, max: 100, unit: 0.5}",
    "causal sum": "privacy: {epsilon: 1}\n    tree: {release: causal}\n"
    "    sum: {field: amount, min: 0, max: 100, unit: 0.5}",
}


def stream_of(directory: Path, name: str) -> StreamSettings:
    """Return the only stream of a configuration."""
    (directory / "app.yaml").write_text(f"""
streams:
  {STREAM}:
    source: {{file: events.ndjson}}
    time: {{field: at, format: us, bin: 10s, grace: 0s, epoch: {BINS * 10}s}}
    {STREAMS[name]}
""")
    (stream,) = load(directory / "app.yaml").streams
    return stream


class AnyFields(ProductSource):
    """A file with every field that the streams read."""

    def source(self) -> FileSource:
        """Open the file."""
        fields = list(self.strategies[0].declared.cell_fields)
        self.sources.append(FileSource(self.path, "ndjson", AT, self.directory / "notes", fields))
        return self.sources[-1]

    def append_many(self, amount: float | None) -> None:
        """Append events over one epoch, of the same amount or of random ones."""
        rng = np.random.default_rng(3)
        with self.path.open("ab") as file:
            for place in np.sort(rng.uniform(0, BINS, EVENTS)):
                event = {
                    "at": int((FIRST_BIN + place) * BIN_US),
                    "country": ["FR", "DE"][int(rng.integers(0, 2))],
                    "user": f"u{rng.integers(0, 400)}",
                    "amount": round(float(rng.uniform(0, 100)), 1) if amount is None else amount,
                }
                file.write(json.dumps(event).encode() + b"\n")


def answered(
    directory: Path, stream: StreamSettings, paths: Mapping[str, str], amount: float | None = None
) -> Any:
    """Count and release an epoch; return the API's answers, by the names of the paths, and the view."""

    async def ask() -> dict[str, Any]:
        app = create_app(one.store.reader(), apart=SHARED)
        await app.state.replicas.refresh()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            found = {name: await client.get(f"/v1/streams/{STREAM}{path}") for name, path in paths.items()}
        return {name: answer.raise_for_status().json() for name, answer in found.items()}

    with closing(AnyFields(directory, planned(stream))) as one:
        one.append_many(amount)
        one.run_until(FIRST_BIN + BINS)
        return asyncio.run(ask()), asyncio.run(view_of(one.store))


def half(answer: Mapping[str, Any]) -> float:
    """Return half the width of an answer's interval."""
    lower, upper = answer["interval"]
    return float(upper - lower) / 2


def stated(error: str) -> list[float]:
    """Return the numbers of a row of the table."""
    return [float(number.replace(",", "")) for number in re.findall(r"[\d,]+(?:\.\d+)?", error)]


def near(number: float) -> Any:
    """Return what a number may be shown as: whole from 10 on, else two digits."""
    return pytest.approx(number, abs=0.5 if number >= 10 else 0.05 * number)


def at(bin: int) -> str:
    """Return an edge of a bin of the epoch."""
    seconds = (FIRST_BIN + bin) * BIN_US // 10**6
    return f"1970-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


@pytest.mark.parametrize("name", STREAMS)
def test_every_error_of_a_plan_is_the_one_that_the_api_answers(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "DAY_US", LAST_DAY * BIN_US)
    stream = stream_of(tmp_path, name)
    rows = dict(answers.rows_of(stream))
    noun, within = ("users", "users first seen in") if name == "users" else ("events", "events of")
    paths = {
        f"{noun} of an epoch (2m)": "/count",
        f"{within} its last day": f"/count?start={at(BINS - LAST_DAY)}",
        f"{within} its last bin (10s)": f"/count?start={at(BINS - 1)}",
    }
    if "keys" in STREAMS[name]:
        paths["events of one key in an epoch"] = "/count?key=DE"
    if "sum" in STREAMS[name]:
        paths["the sum of amount in an epoch"] = "/sum"
    if "the sum of amount of one key in an epoch" in rows:
        assert {"keys:", "sum:"} <= set(STREAMS[name].split())
        paths["the sum of amount of one key in an epoch"] = "/sum?key=DE"
    found, view = answered(tmp_path, stream, paths)
    for asked in paths:
        assert stated(rows[asked]) == [near(half(found[asked]))], asked
    left = rows.keys() - paths.keys()
    if "value" in STREAMS[name]:
        assert left == {"the median of an epoch", "the 95 % quantile of an epoch"}
        for asked, q in (("the median of an epoch", 0.5), ("the 95 % quantile of an epoch", 0.95)):
            check_quantile(view, q, *stated(rows[asked]))
    elif "sum" in STREAMS[name]:
        assert left == {"the mean of amount in an epoch"}
    else:
        assert not left


def check_quantile(view: Any, q: float, error: float) -> None:
    """Check that the API's interval holds exactly the buckets whose rank differs by at most the error."""
    found = Histogram.of(view.cells()).cdf(0.95)
    quantile = found.quantile(q)
    ranks = found.values - q * found.values[-1]
    inside = ranks[quantile.first : quantile.last]  # the last bucket may reach further
    assert np.abs(inside).max(initial=0.0) <= error + 0.5
    beyond = np.delete(ranks, np.s_[quantile.first : quantile.last + 1])
    assert np.abs(beyond).min(initial=np.inf) > 0.3 * error  # no interval is much shorter than stated


@pytest.mark.parametrize("name", ["sum", "causal sum"])
@pytest.mark.parametrize("amount", ["middle", "end"])
def test_the_error_of_a_mean_is_the_stated_one_over_the_number_of_events(
    tmp_path: Path, name: str, amount: str
) -> None:
    stream = stream_of(tmp_path, name)
    amounts = stream.declared.amounts
    assert amounts is not None
    low, high = float(amounts.low), float(amounts.high)
    value = high - 2 if amount == "end" else (low + high) / 2  # not so near that the interval is cut off
    middle, end = stated(dict(answers.rows_of(stream))["the mean of amount in an epoch"])
    found, _ = answered(tmp_path, stream, {"mean": "/mean"}, value)
    lower, upper = found["mean"]["interval"]
    assert upper < high
    expected = middle if amount == "middle" else end
    assert (upper - lower) / 2 * EVENTS == pytest.approx(expected, rel=0.1)


def test_plan_shows_the_table_within_80_columns(tmp_path: Path) -> None:
    stream_of(tmp_path, "sum")
    command = ["plan", "--config", str(tmp_path / "app.yaml")]
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(main, command).output
    assert max(map(len, shown.splitlines())) <= 80
    assert re.search(r"events of one key in an epoch +│ ± \d", shown)
    assert "half the width of the 95 % interval" in shown
