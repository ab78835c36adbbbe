"""``make smoke``: the shipped configuration files end to end, as processes of this machine.

Kafka with TLS and passwords, Redis with its users, two workers, API, watcher of rules, Prometheus and
Alertmanager run with the files under deploy/. Events in the topic must reach the operator as a firing alert.
A worker is killed meanwhile, and the operator must be notified of that as well. It takes about five minutes.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from stream_app.state.embedded import find_server
from tests.deployment.shipped import LOOPBACK, Shipped
from tests.deployment.test_redis import deployed
from tests.ending import end_all_with_this_run

PATIENCE_S = 900.0
SEND_EVERY_S, EVENTS = 15.0, 2_000
NO_RECEIVER = "# email_configs: "


class Receiver(ThreadingHTTPServer):
    """A webhook of the operator that keeps the alerts that Alertmanager has sent."""

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.alerts: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def firing(self, name: str, **labels: str) -> bool:
        """Return whether an alert with these labels has arrived as firing."""
        wanted = {"alertname": name, **labels}.items()
        return any(wanted <= one["labels"].items() for one in self.alerts if one["status"] == "firing")


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        """Keep what Alertmanager sends."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.alerts += body["alerts"]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log no request."""


class Smoke:
    """One run. Args: shipped, the deployment; receiver, of the operator's alerts."""

    def __init__(self, shipped: Shipped, receiver: Receiver) -> None:
        self.shipped, self.receiver = shipped, receiver
        self.began_s = time.monotonic()

    def say(self, text: str) -> None:
        """Print what has happened, and when."""
        print(f"{time.monotonic() - self.began_s:5.0f} s  {text}", flush=True)

    def until(self, what: str, holds: Callable[[], bool], every_s: float = 0.5) -> None:
        """Wait until a condition holds; fail if a process ends."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            self.shipped.check_running()
            assert time.monotonic() < deadline_s, f"not yet: {what}\n{self.shipped.said()}"
            time.sleep(every_s)
        self.say(what)

    def run(self) -> None:
        """Start everything, send events, kill a worker, and wait for both alerts."""
        self._start_services()
        self._start_monitoring()
        self.until("Prometheus scrapes both workers, the API and the watcher", self._scraped)
        self._send()
        self.say(f"{EVENTS} events are in the topic; killing worker-2")
        gone = f"{LOOPBACK}:{self.shipped.ports['worker-2']}"
        self.shipped.kill("worker-2")
        self.until("the rule busy fires by released values", self._busy, SEND_EVERY_S)
        told = self.receiver.firing
        self.until("the operator has the alert about the events",
                   lambda: told("PrivateCountsRuleFires", rule="busy", stream="clicks"))  # fmt: skip
        self.until("the operator has the alert about the worker",
                   lambda: told("PrivateCountsWorkerGone", instance=gone))  # fmt: skip
        names = {one["labels"]["alertname"] for one in self.receiver.alerts}
        assert names <= {"PrivateCountsRuleFires", "PrivateCountsWorkerGone", "PrivateCountsResultsLate"}, (
            names
        )
        statuses = self.shipped.stop()
        assert {statuses[name] for name in ("worker-1", "api", "alerts")} == {0}, statuses
        self.say(f"everything ended: {statuses}")

    def _start_services(self) -> None:
        shipped, ports = self.shipped, self.shipped.ports
        shipped.start_kafka()
        shipped.make_noise_key()
        self.until("Kafka answers", lambda: _listens(ports["kafka"]))
        addresses = {"kafka:9092": f"{LOOPBACK}:{ports['kafka']}", "0.0.0.0": LOOPBACK}
        workers = ("worker-1", "worker-2")
        for name in workers:
            shipped.configure(name, {**addresses, "port: 9464": f"port: {ports[name]}"})
        own = {"port: 8088": f"port: {ports['api']}", "port: 9466": f"port: {ports['api-operator']}"}
        own["port: 9467"] = f"port: {ports['alerts-operator']}"
        for name in ("api", "alerts"):
            shipped.configure(name, {**addresses, **own})
        empty = shipped.folder / "empty.ndjson"
        empty.touch()
        shipped.produce(empty, "clicks", "--partitions", "4", "--limit", "0")
        for name in (*workers, "api", "alerts"):
            shipped.start(name)
        streams = f"{shipped.url('api')}/v1/streams"
        self.until("the API answers about the stream", lambda: bool((_json(streams) or {}).get("streams")))

    def _start_monitoring(self) -> None:
        shipped, ports = self.shipped, self.shipped.ports
        usual = {"worker-1": 9464, "worker-2": 9464, "api": 8088, "alertmanager": 9093}
        addresses = {f"{name}:{port}": f"{LOOPBACK}:{ports[name]}" for name, port in usual.items()}
        addresses["api:9466"] = f"{LOOPBACK}:{ports['api-operator']}"
        addresses["alerts:9467"] = f"{LOOPBACK}:{ports['alerts-operator']}"
        shipped.configure("prometheus", addresses)
        hook = f"http://{LOOPBACK}:{self.receiver.server_address[1]}/"
        # The shipped file has no receiver, and says to put one there.
        shipped.configure("alertmanager", {NO_RECEIVER: f'webhook_configs: [{{url: "{hook}"}}] # '})
        for name in ("alertmanager", "prometheus"):
            shipped.start(name)

    def _scraped(self) -> bool:
        asked = _json(f"{self.shipped.url('prometheus')}/api/v1/query?query=up==1")
        found = [] if asked is None else [one["metric"]["job"] for one in asked["data"]["result"]]
        jobs = ["private-counts", "private-counts-alerts", "private-counts-api"]
        return sorted(found) == [*jobs, *["private-counts-workers"] * 2]

    def _send(self) -> None:
        events = self.shipped.folder / "events.ndjson"
        events.write_text(f'{{"at": "{datetime.now(UTC).isoformat()}"}}\n' * EVENTS)
        self.shipped.produce(events, "clicks")

    def _busy(self) -> bool:
        """Return whether the rule fires; else send events again: those before the first bin do not count."""
        shown = _json(f"{self.shipped.url('api')}/v1/alerts") or {"alerts": []}
        if any(one["rule"] == "busy" and one["phase"] == "firing" for one in shown["alerts"]):
            return True
        self._send()
        return False


def _listens(port: int) -> bool:
    """Return whether a process listens. The broker opens its port to clients when it can serve them."""
    with socket.socket() as client:
        return client.connect_ex((LOOPBACK, port)) == 0


def _json(url: str) -> Any:
    """Return the JSON of a successful answer, or None."""
    try:
        answer = httpx.get(url, timeout=10, verify=False)
    except httpx.HTTPError:
        return None
    return answer.json() if answer.status_code == 200 else None


def main() -> int:
    """Run once, and print every line that was rewritten; return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends what it has started
    with tempfile.TemporaryDirectory() as name, Receiver() as receiver:
        secrets = Path(name) / "secrets"
        secrets.mkdir(mode=0o700)
        with deployed(secrets, Path(find_server())) as redis:
            shipped = Shipped(Path(name), secrets, redis)
            try:
                Smoke(shipped, receiver).run()
            finally:
                shipped.close()
        receiver.shutdown()
        print("\nthese lines of the shipped files were rewritten, and these commands and variables used:")
        for line in dict.fromkeys(shipped.changes):
            print("  " + line.replace(name, "..."))
    return 0


if __name__ == "__main__":
    end_all_with_this_run()
    sys.exit(main())
