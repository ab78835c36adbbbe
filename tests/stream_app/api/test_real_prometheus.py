"""A real Prometheus scrapes the service and answers with released values."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy.ports import free_port
from stream_app.api.admission.access import AccessRules
from stream_app.config import load
from stream_app.core.alerts.states import evaluate
from stream_app.ports.access import Scrapes
from tests.patience import PATIENCE_S
from tests.services import prometheus, required
from tests.stream_app.api.client import released, served
from tests.stream_app.declared import FIRST_BIN, STREAM
from tests.stream_app.product_stream import ProductSource, product_strategy, view_of


@contextlib.contextmanager
def scraping(target: str, directory: Path, rules: str = "") -> Iterator[str]:
    """Run a Prometheus that scrapes one target every second, and yield its address."""
    config = directory / "prometheus.yml"
    (directory / "rules.yml").write_text(rules or "groups: []\n")
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{directory / 'rules.yml'}']\n"
        f"scrape_configs: [{{job_name: counts, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    port = free_port()
    command = [
        str(required(prometheus, "prometheus")),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stderr=log, stdout=log) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.mark.slow
async def test_prometheus_scrapes_and_answers(tmp_path: Path) -> None:
    stream = await released([5] * 10)
    async with served(stream.store.reader()) as client:
        with scraping(client.base_url.netloc.decode(), tmp_path) as url:
            first = (await client.get("/v1/streams/departures/count")).json()
            await seen(url, first)
            await stream.close([700])
            await seen(url, {"value": None, "interval": None}, above=600)
            second = (await client.get("/v1/streams/departures/count")).json()
            await seen(url, second)


OPERATOR_RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "operator.rules.yml"
RULES = """\
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 0s, epoch: 1d}}
    privacy: {{epsilon: 1.0}}
    keys: {{field: carrier, list: [UA, AA, "7"]}}
alerts: {{rules: {{busy: {{when: "{when}"}}, quiet: {{when: "{quiet}"}}}}}}
"""


@pytest.mark.slow
async def test_prometheus_holds_every_key_and_sends_firing_alerts(tmp_path: Path) -> None:
    one = ProductSource(tmp_path, product_strategy())
    events = [(FIRST_BIN + 0.5, carrier, 5) for carrier in ["UA"] * 30 + ["AA"] * 7]
    one.append_events(events)
    await asyncio.to_thread(one.run_until, FIRST_BIN + 1)
    when, quiet = f"count({STREAM}['UA']) > 20", f"count({STREAM}['AA']) > 20"
    (tmp_path / "app.yaml").write_text(RULES.format(when=when, quiet=quiet).replace("clicks:", f"{STREAM}:"))
    every = yaml.safe_load(OPERATOR_RULES.read_text())["groups"]
    fires = [rule for group in every for rule in group["rules"] if rule["alert"] == "PrivateCountsRuleFires"]
    passing = yaml.safe_dump({"groups": [{"name": "passed on", "rules": fires}]})
    rules = load(tmp_path / "app.yaml", {}).alerts.rules

    states: dict[str, bytes] = {}
    view = await view_of(one.store)
    for name, state in evaluate(rules, {}, view, now_us=1).states.items():
        states[name] = state.to_json()
    assert set(states) == {"busy"}
    reader = one.store.reader()
    reader.alerts = lambda: asyncio.sleep(0, (states, {}))  # type: ignore[method-assign]
    async with served(reader, AccessRules(scrapes=Scrapes(keys_of=frozenset({STREAM})))) as client:
        with scraping(client.base_url.netloc.decode(), tmp_path, passing) as url:
            await passed_on(url)
    await asyncio.to_thread(one.close)


async def passed_on(url: str) -> None:
    """Wait until Prometheus has the values of all keys and one firing alert."""
    found: dict[str, float] = {}
    firing: list[dict[str, Any]] = []
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        for _ in range(int(PATIENCE_S * 10)):
            with contextlib.suppress(
                httpx.TransportError, KeyError, ValueError
            ):  # while Prometheus starts: "Service Unavailable"
                query = {"query": "private_counts_key_running"}
                answer = (await client.get("/api/v1/query", params=query)).json()
                found = {one["metric"]["key"]: float(one["value"][1]) for one in answer["data"]["result"]}
                firing = (await client.get("/api/v1/alerts")).json()["data"]["alerts"]
                if firing and len(found) == 4:
                    break
            await asyncio.sleep(0.1)
    assert found == pytest.approx({"UA": 30, "AA": 7, "7": 0, "other": 0}, abs=0.01)
    [alert] = firing
    assert alert["state"] == "firing"
    assert (alert["labels"]["alertname"], alert["labels"]["rule"]) == ("PrivateCountsRuleFires", "busy")


async def seen(url: str, answer: dict[str, Any], above: float | None = None) -> None:
    """Wait until Prometheus has the given value and interval, or any value above 1."""
    metrics = ("private_counts_running", "private_counts_running_lower", "private_counts_running_upper")
    values: list[float] = []
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        for _ in range(int(PATIENCE_S * 10)):
            with contextlib.suppress(httpx.TransportError, IndexError, ValueError):
                values = [await value_of(client, metric) for metric in metrics]
                if above is not None and values[0] > above:
                    return
                if above is None and values == pytest.approx([answer["value"], *answer["interval"]]):
                    return
            await asyncio.sleep(0.1)
    raise AssertionError(f"Prometheus holds {values}, the service said {answer}")


async def value_of(client: httpx.AsyncClient, metric: str) -> float:
    answer = await client.get("/api/v1/query", params={"query": f'{metric}{{stream="departures"}}'})
    return float(answer.json()["data"]["result"][0]["value"][1])
