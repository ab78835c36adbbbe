"""From an event in a file to a real Alertmanager, and to a webhook, over a kill -9 of everything."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.service import Service, answers, free_port, get
from tests.services import alertmanager, required

CONFIG = """\
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1s, grace: 500ms, epoch: 1h}}
    privacy: {{epsilon: 1.0e9, not_private: true}}
api: {{port: {port}}}
alerts:
  rules:
    busy: {{when: "sum(clicks, 8s) > 100", labels: {{team: web}}}}
    busier: {{when: "sum(clicks, 8s) > 150", labels: {{team: web}}}}
  webhooks: ["http://127.0.0.1:{hook}/"]
  alertmanagers: ["http://127.0.0.1:{manager}"]
"""


class Hook(ThreadingHTTPServer):
    """A webhook that writes down what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HookHandler)
        self.got: list[tuple[str, dict[str, Any]]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def kinds(self, rule: str) -> list[str]:
        """Return what was told of a rule, each key once, in order."""
        told = {key: body["status"] for key, body in self.got if body["groupLabels"]["alertname"] == rule}
        return list(told.values())


class _HookHandler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.headers["Idempotency-Key"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


MANAGER = """\
route: {{receiver: hook, group_by: [team], group_wait: 1s, group_interval: 1s}}
receivers: [{{name: hook, webhook_configs: [{{url: "http://127.0.0.1:{hook}/", send_resolved: true}}]}}]
"""


@contextlib.contextmanager
def managing(directory: Path, hook: int) -> Iterator[int]:
    """Run an Alertmanager that groups by team and tells a webhook; yield its port."""
    directory.mkdir()
    config = directory / "alertmanager.yml"
    config.write_text(MANAGER.format(hook=hook))
    port = free_port()
    command = [
        str(required(alertmanager, "prometheus-alertmanager")),
        f"--config.file={config}",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield port
        finally:
            process.terminate()
            process.wait(20)


def groups(port: int) -> list[list[str]]:
    """Return the names of the alerts that are active, by group."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/api/v2/alerts/groups", timeout=5).json()
    except httpx.HTTPError:
        return []
    return [sorted(alert["labels"]["alertname"] for alert in group["alerts"]) for group in answer]


def burst(file: Path, count: int) -> None:
    """Write events of this moment."""
    at = (datetime.now(UTC) + timedelta(milliseconds=50)).isoformat()
    with file.open("a") as events:
        events.writelines(json.dumps({"at": at}) + "\n" for _ in range(count))


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_event_reaches_alertmanager_and_a_restart_loses_and_doubles_nothing(tmp_path: Path) -> None:
    file, hook, groups_hook, port = tmp_path / "clicks.ndjson", Hook(), Hook(), free_port()
    file.touch()
    with managing(tmp_path / "manager", groups_hook.server_address[1]) as manager:
        text = CONFIG.format(port=port, hook=hook.server_address[1], manager=manager)
        (tmp_path / "app.yaml").write_text(text)
        arguments = ["run", "--config", "app.yaml"]
        with Service(arguments, tmp_path) as service:
            released = lambda: get(port, "/v1/streams")["streams"][0]["seq"] >= 3  # noqa: E731
            service.until_true(lambda: quietly(released), "bins are released")
            burst(file, 200)
            service.until_true(lambda: groups(manager) == [["busier", "busy"]], "both alerts in one group")
            service.until_true(lambda: hook.kinds("busy") == ["firing"], "the webhook knows")
            service.kill_everything()
        time.sleep(1)
        with Service(arguments, tmp_path) as service:
            service.until_true(lambda: hook.kinds("busy") == ["firing", "resolved"], "it is resolved")
            service.until_true(lambda: groups(manager) == [], "both are resolved")
            burst(file, 120)
            expected = ["firing", "resolved", "firing"]
            service.until_true(lambda: hook.kinds("busy") == expected, "it fires again")
            service.until_true(lambda: answers(port, "/v1/alerts"), "the API is back")
            service.until_true(lambda: firing(port) == ["busy"], "the API shows it")
            [alert] = [one for one in get(port, "/v1/alerts")["alerts"] if one["rule"] == "busy"]
            assert (alert["phase"], alert["stream"], alert["private"]) == ("firing", "clicks", False)
            metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
            assert 'private_counts_alert_firing{rule="busy",stream="clicks"} 1.0' in metrics
            assert service.interrupt() == 0
    assert hook.kinds("busier") == ["firing", "resolved"]
    for one in (hook, groups_hook):
        one.shutdown()
        one.server_close()


def firing(port: int) -> list[str]:
    """Return the rules that fire, as the API knows them."""
    return [one["rule"] for one in get(port, "/v1/alerts")["alerts"] if one["phase"] == "firing"]


def quietly(condition: Any) -> bool:
    """Return a condition's answer, or False while there is none."""
    try:
        return bool(condition())
    except (httpx.HTTPError, IndexError, KeyError, AssertionError):
        return False
