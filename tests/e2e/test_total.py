"""A stream reaches its total in a real service: no epoch opens, every surface says so, nothing is kept."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from playwright.sync_api import Browser, expect
from redis import Redis

from deploy.ports import free_port
from stream_app.state.embedded import running_url
from tests.e2e.service import Service, get
from tests.patience import PATIENCE_S, eventually
from tests.services import promtool, required
from tests.stream_app.api.browsing import opened

pytestmark = [pytest.mark.redis, pytest.mark.browser, pytest.mark.slow]

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "operator.rules.yml"
EPOCH_S, EPOCHS = 3, 2
PRIVACY = "/v1/streams/clicks/privacy"
CONFIGURATION = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
operator: {{port: {operator_port}}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: ms, bin: 1s, grace: 0s, epoch: {epoch}s, max_ahead: 30s}}
    privacy:
      epsilon: 5
      unit: {{user: name, max_events: 100}}
      total: {{epsilon: 10, per: source}}
"""
SECRETS = ("cells", "untallied", "users", "open_bins", "open_windows", "ahead", "noise")


def line(ahead_s: float = 0.0) -> bytes:
    """Return an event now, or a little ahead."""
    return json.dumps({"at": int((time.time() + ahead_s) * 1000), "name": "ann"}).encode() + b"\n"


def scraped(port: int) -> dict[str, float]:
    """Return the operator's figures of the stream; none while the worker starts."""
    try:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60, verify=False).text
    except httpx.HTTPError:
        return {}
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(figure) for name, figure in pairs if 'stream="clicks"' in name}


def exact_counts(folder: Path) -> list[str]:
    """Return the keys of the store that hold exact counts, users or noise."""
    url = running_url(folder / "redis")
    assert url is not None
    with Redis.from_url(url, protocol=2) as client:
        names = [name.decode() for name in client.scan_iter("dp:*:sec:*")]
    return [name for name in names if name.split(":sec:")[1].split(":")[0] in SECRETS]


def fires(folder: Path, figure: float) -> None:
    """Let Prometheus evaluate the rule with the worker's figure. Raises: AssertionError if it is silent."""
    tested = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": 'stream_app_stopped{stream="clicks"}', "values": f"{figure}x5"}],
                "promql_expr_test": [
                    {
                        "expr": 'count(ALERTS{alertname="PrivateCountsTotalSpent",stream="clicks"})',
                        "eval_time": "5m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    }
                ],
            }
        ],
    }
    (folder / "rules_test.yml").write_text(yaml.safe_dump(tested))
    command = [str(required(promtool, "prometheus")), "test", "rules", str(folder / "rules_test.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def said(port: int) -> dict[str, Any]:
    """Return what readers learn about the stream, without the time of the answer."""
    answers = {
        "total": get(port, PRIVACY)["total"],
        "count": get(port, "/v1/streams/clicks/count"),
        "next": get(port, "/v1/streams/clicks")["next_release"],
    }
    answers["rows"] = answers["count"].pop("seq", None)
    return answers


def test_a_stream_ends_at_its_total_and_a_restart_changes_nothing(tmp_path: Path, browser: Browser) -> None:
    port, operator_port = free_port(), free_port()
    text = CONFIGURATION.format(port=port, operator_port=operator_port, epoch=EPOCH_S)
    (tmp_path / "app.yaml").write_text(text)
    (tmp_path / "clicks.ndjson").touch()
    events = tmp_path / "clicks.ndjson"
    with Service(["run", "--config", "app.yaml"], tmp_path) as service, events.open("ab", 0) as log:
        service.until("bins closed")
        began_s = time.time()
        while "would exceed its total" not in service.output:
            assert time.time() < began_s + PATIENCE_S, service.output
            log.write(line() + line(ahead_s=20.0))
            time.sleep(0.05)
        before = _checked(port, operator_port, tmp_path)
        log.write(line() * 50 + line(ahead_s=5.0) * 50)
        time.sleep(EPOCH_S)
        assert _checked(port, operator_port, tmp_path) == before
        fires(tmp_path, scraped(operator_port)['stream_app_stopped{stream="clicks"}'])
        with opened(browser, f"http://127.0.0.1:{port}/streams/clicks") as page:
            expect(page.locator("#spent")).to_contain_text("Nothing is counted from")
            expect(page.locator("#spent")).to_contain_text(before["total"]["until"][:10])
        said_stops = service.output.count("would exceed its total")
        assert service.kill_child("shell.child worker")
        service.until("it again, nothing is lost")
        log.write(line() * 50)
        service.until_true(
            lambda: service.output.count("would exceed its total") > said_stops, "the new worker stops it"
        )
        time.sleep(2.0)
        assert _checked(port, operator_port, tmp_path) == before
        assert service.interrupt() == 0


def _checked(port: int, operator_port: int, folder: Path) -> dict[str, Any]:
    """Check that the stream is over on every surface; return what it says."""
    eventually(
        lambda: scraped(operator_port).get('stream_app_stopped{stream="clicks"}') == 1.0,
        "the worker says that the stream is stopped",
    )
    eventually(
        lambda: get(port, "/v1/streams/clicks")["released_until"] == get(port, PRIVACY)["total"]["until"],
        "the last rows become visible",
    )
    found = said(port)
    total, metrics = found["total"], httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S).text
    assert (total["epochs_left"], total["spent"], found["next"]) == (0, True, None)
    assert total["sentence"].startswith(f"Nothing is counted from {total['until']} on: one more epoch")
    assert 'private_counts_epochs_left{private="true",stream="clicks"} 0.0' in metrics
    assert exact_counts(folder) == []
    ledger = get(port, PRIVACY)
    assert json.dumps(ledger).count('"epoch": ') <= EPOCHS
    return found
