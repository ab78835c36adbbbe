"""A real Prometheus scrapes the service and answers with what was released."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stream_app.state.memory import MemoryStore
from tests.e2e.service import free_port
from tests.services import prometheus, required
from tests.stream_app.api.test_server import served
from tests.stream_app.published import Published


@contextlib.contextmanager
def scraping(target: str, directory: Path) -> Iterator[str]:
    """Run a Prometheus that scrapes one target every 200 ms; yield its address."""
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
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
            process.wait(20)


@pytest.mark.slow
def test_prometheus_scrapes_and_answers(tmp_path: Path) -> None:
    async def run() -> None:
        stream = Published(MemoryStore())
        await stream.open()
        await stream.close([5] * 10)
        async with served(stream) as client:
            with scraping(str(client.base_url).removeprefix("http://").rstrip("/"), tmp_path) as url:
                first = (await client.get("/v1/streams/departures/count")).json()
                await seen(url, first)
                await stream.close([700])
                await seen(url, {"value": None, "interval": None}, above=600)
                second = (await client.get("/v1/streams/departures/count")).json()
                await seen(url, second)

    asyncio.run(run())


async def seen(url: str, answer: dict, above: float | None = None) -> None:
    """Wait until Prometheus holds an answer's value and interval, or any value above one."""
    metrics = ("private_counts_running", "private_counts_running_lower", "private_counts_running_upper")
    values: list[float] = []
    async with httpx.AsyncClient(base_url=url) as client:
        for _ in range(300):
            with contextlib.suppress(httpx.TransportError, IndexError):
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
