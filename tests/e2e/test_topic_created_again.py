"""A topic is deleted and created again while workers count it: only the stream over this topic stops."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from playwright.sync_api import Browser, expect

from deploy.ports import free_port
from stream_app.shell.processes import REFUSED
from stream_app.state.embedded import EmbeddedRedis
from tests.brokers import Topic
from tests.e2e.service import Service, get
from tests.patience import eventually
from tests.stream_app.api.browsing import opened

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.browser, pytest.mark.slow]

HEAD = """
kafka: {{bootstrap_servers: "{servers}", group: "{group}"}}
redis: {{url: "{redis}"}}
state: {{dir: ./{state}}}
secrets: {{key_file: noise.key}}
operator: {{port: {operator}}}
api: {{port: {api}}}
publish_every: 250ms
streams:
"""
STREAM = """
  {name}:
    source: {source}
    time: {{field: at, format: us, bin: 1s, grace: 1s, epoch: 1h, first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
"""
HURT, FILE = "second", "lines"
TOPICS = ("first", HURT, "third")
DELETED = "it no longer holds the records that come next"
KEY = "0123456789abcdef" * 4
ANEW = f"stream {HURT}: source.topic_id was "

T = TypeVar("T")


def completed(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns; another thread runs it, as the browser has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class Cell:
    """Three topics with a stream each, a file with a stream, and two workers: one does not read the file."""

    def __init__(self, folder: Path, servers: str, redis_url: str, resources: ExitStack) -> None:
        self.folder, self.resources = folder, resources
        self.topics = {name: completed(Topic.create(servers, partitions=2)) for name in TOPICS}
        self.sent = dict.fromkeys((*TOPICS, FILE), 0)
        self.ports = {"both": free_port(), "topics": free_port()}
        self.api = free_port()
        first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 5))
        sources = {name: f"{{topic: {topic.name}, format: json}}" for name, topic in self.topics.items()}
        (folder / "lines.ndjson").touch()
        (folder / "noise.key").write_text(KEY)
        (folder / "noise.key").chmod(0o600)
        for config, more in (("topics", {}), ("both", {FILE: "{file: lines.ndjson}"})):
            head = HEAD.format(
                servers=servers,
                group=self.topics["first"].name,
                redis=redis_url,
                state=f"state-{config}",
                operator=self.ports[config],
                api=self.api,
            )
            logs = (sources | more).items()
            streams = (STREAM.format(name=name, source=source, first=first) for name, source in logs)
            (folder / f"{config}.yaml").write_text(head + "".join(streams))
        self.start("api", "both")

    def start(self, command: str, config: str) -> Service:
        service = Service([command, "--config", f"{config}.yaml"], self.folder)
        return self.resources.enter_context(service)

    def send(self, *names: str, events: int = 20) -> None:
        """Send events dated now to each partition of topics, or to the file."""
        for name in names:
            lines = [json.dumps({"at": time.time_ns() // 1_000, "n": n}).encode() for n in range(events)]
            if name == FILE:
                with (self.folder / "lines.ndjson").open("ab") as file:
                    file.write(b"".join(line + b"\n" for line in lines))
            else:
                for partition in range(2):
                    half = lines[partition::2]
                    completed(self.topics[name].send(half, partition=partition))
            self.sent[name] += events

    def released(self, *names: str) -> None:
        """Wait until the API answers for each stream the number of events that were sent."""

        def all_are() -> bool:
            return all(self._count(name) == self.sent[name] for name in names)

        eventually(all_are, lambda: f"{names} are counted:\n{self.said()}")

    def goes_on(self, *names: str) -> None:
        """Count more events of streams; each of all events counts once, and new bins are released."""
        before = {name: self._seq(name) for name in names}
        self.send(*names)
        self.released(*names)

        def all_do() -> bool:
            return all(self._seq(name) >= seen + 3 for name, seen in before.items())

        eventually(all_do, lambda: f"{names} go on:\n{self.said()}")
        self.released(*names)

    def _count(self, name: str) -> float | None:
        asked = f"http://127.0.0.1:{self.api}/v1/streams/{name}/count"
        try:
            answer = httpx.get(asked, verify=False, timeout=60)
        except httpx.HTTPError:
            return None
        value = answer.json().get("value")
        return None if value is None else round(float(value), 3)

    def _seq(self, name: str) -> int:
        return int(get(self.api, f"/v1/streams/{name}")["seq"])

    def halted(self) -> set[str]:
        """Return the streams that the API says a fault has stopped."""
        return {name for name in self.sent if get(self.api, f"/v1/streams/{name}").get("halted")}

    def operator(self, config: str, path: str) -> str:
        return httpx.get(f"http://127.0.0.1:{self.ports[config]}{path}", verify=False, timeout=60).text

    def said(self) -> str:
        return "\n".join(str((name, self._count(name), sent)) for name, sent in self.sent.items())


@pytest.fixture
def cell(tmp_path: Path, bootstrap_servers: str) -> Iterator[Cell]:
    with ExitStack() as resources:
        redis = resources.enter_context(EmbeddedRedis(tmp_path / "redis"))
        yield Cell(tmp_path, bootstrap_servers, redis.worker_url, resources)


def test_only_the_stream_over_the_topic_stops(cell: Cell, browser: Browser) -> None:
    others = (*(name for name in TOPICS if name != HURT), FILE)
    workers = {config: cell.start("worker", config) for config in cell.ports}
    cell.send(*cell.sent)
    cell.released(*cell.sent)
    assert cell.halted() == set()

    completed(cell.topics[HURT].delete())
    completed(cell.topics[HURT].create_again(2))
    stopped = f"topic {cell.topics[HURT].name}: {DELETED}"
    for worker in workers.values():
        worker.until(f"stopped: {HURT}; all other streams go on")
        assert stopped in worker.output, worker.output
    cell.goes_on(*others)
    eventually(lambda: cell.halted() == {HURT}, "the API names the stopped stream")
    for config in workers:
        total = len(TOPICS) + (config == "both")
        assert cell.operator(config, "/readyz") == f"ready; 1 of {total} streams stopped, see the log\n"
        shown = [line for line in cell.operator(config, "/metrics").splitlines() if "_halted{" in line]
        assert shown == [f'stream_app_halted{{stream="{HURT}"}} 1.0']
    for name, state in ((HURT, "halted"), ("first", "live")):
        with opened(browser, f"http://127.0.0.1:{cell.api}/streams/{name}") as page:
            expect(page.locator("#stream-state")).to_have_attribute("data-state", state)
    for worker in workers.values():
        worker.process.send_signal(signal.SIGTERM)
    for worker in workers.values():
        assert worker.wait() == REFUSED, worker.output
        assert worker.lines[-1].startswith(f"stream-app: {stopped}")
        assert sum(stopped in line for line in worker.lines) == 2, worker.output
        assert "Traceback" not in worker.output

    cell.send(*others)  # while no worker runs
    again = cell.start("worker", "both")
    again.until(f"stopped: {HURT}; all other streams go on")
    assert ANEW in again.output
    cell.goes_on(*others)
    assert cell.halted() == {HURT}
    again.process.send_signal(signal.SIGTERM)
    assert again.wait() == REFUSED
    assert again.lines[-1].startswith(f"stream-app: {ANEW}")
    assert "Traceback" not in again.output
