"""From an access log, or a script in pages, to exact counts; and no visitor's address stays anywhere."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Browser, Page, Route

from deploy.ports import free_port
from stream_app.config.storage import READ_LETTERS
from tests.blocks.pages import block
from tests.e2e.service import Service, answers, get
from tests.formats.dumps import dump
from tests.patience import PATIENCE_S
from tests.stream_app.receiving.test_page_scripts import AGENT, TRACKERS
from tests.stream_app.receiving.test_senders import silent_site
from tests.stream_app.web_traffic import SITE, Truth, made

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

LINES, DAYS = 6_000, 2
STREAM_APP = [sys.executable, "-m", "stream_app"]
EXACTLY = {"epsilon: 1,": "epsilon: 1e9, not_private: true,", "epsilon: 0.5,": "epsilon: 5e8,"}


@pytest.fixture
def site(tmp_path: Path) -> tuple[Path, Truth, datetime]:
    """Make a log of two days until today, the first half of it rotated and compressed."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    lines, truth = made(LINES, DAYS, first := today - timedelta(days=DAYS))
    whole = list(lines)
    (tmp_path / "access.log").write_bytes(b"".join(whole[LINES // 2 :]))
    (tmp_path / "access.log.1").write_bytes(b"".join(whole[: LINES // 2]))
    subprocess.run(["gzip", tmp_path / "access.log.1"], check=True)
    return tmp_path, truth, first


def counts(port: int, stream: str, first: datetime) -> dict[str, Any]:
    """Return the released count of each key since an instant, and of all others."""
    keys = {*get(port, f"/v1/streams/{stream}/keys/list", limit=1000)["keys"], "other"}
    since = first.isoformat()
    return {key: get(port, f"/v1/streams/{stream}/count", key=key, start=since)["value"] for key in keys}


def test_page_from_a_log_is_exact_and_keeps_no_address(site: tuple[Path, Truth, datetime]) -> None:
    folder, truth, first = site
    port = free_port()
    options = ["--site", SITE, "--first", first.strftime("%Y-%m-%d"), "--epsilon", "1"]
    init, run = block("docs/how-to/web-log.md: $ stream-app init access.log").commands
    command = [*STREAM_APP, *init.split()[1:], *options]
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)
    configuration = folder / "stream-app.yaml"
    text = configuration.read_text()
    for private, exact in EXACTLY.items():
        assert private in text
        text = text.replace(private, exact)
    configuration.write_text(f"api: {{port: {port}}}\ndead_letters: {{content: true}}\n{text}")
    with (folder / "access.log").open("ab") as log:
        log.write(b"198.51.1.1 no request\n")
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    released = (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H")

    with Service(run.split()[1:], folder) as service:

        def is_released() -> bool:
            if not answers(port, "/v1/streams"):
                return False
            streams = get(port, "/v1/streams")["streams"]
            ends = {one["stream"]: one["released_until"] or "" for one in streams}
            day = first + timedelta(days=DAYS)
            is_over = ends.pop("visitors", "") >= f"{day:%Y-%m-%dT%H}"
            return len(ends) == 2 and is_over and min(ends.values()) >= released

        service.until_true(is_released, "all streams have released what the log holds", 300)
        visitors = counts(port, "visitors", first)
        assert visitors == {
            **{one: truth.count_of(one) for one in ("desktop", "mobile", "tablet")},
            "other": 0,
        }
        pages = counts(port, "pages", first)
        shown = {page: count for page, count in truth.pages.items() if page in pages}
        assert len(shown) > 5
        assert pages == {**shown, "other": truth.pages.total() - sum(shown.values())}
        assert counts(port, "referrers", first) == {**truth.referrers, "other": 0}
        board = get(port, "/v1/boards/site")
        assert [panel["show"] for panel in board["panels"]] == ["bins", "keys", "keys", "keys"]
        keys = folder / "state" / "noise_keys" / "@visitors"
        service.until_true(lambda: len(list(keys.rglob("*.key"))) <= 1, "spent days' keys are destroyed", 120)
        output = service.output
    assert f"board site: http://127.0.0.1:{port}/boards/site\n" in output
    _assert_nowhere(folder, output, truth.addresses)


def _assert_nowhere(folder: Path, output: str, addresses: set[str]) -> None:
    """Check that no file but the log itself, and no output, has an address or an agent."""
    files = [path for path in (folder / "state").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        content = path.read_bytes()
        assert b"Mozilla/" not in content, path
        assert b"198.51." not in content, path
    assert "198.51." not in output
    assert len(addresses) > 1000


VISITS, PAGES = 1_000, 7
PHONE = "Mozilla/5.0 (Linux; Android 15; K) AppleWebKit/537.36 Chrome/137.0.0.0 Mobile Safari/537.36"
ADDRESSES = [f"203.0.113.{n}" for n in range(1, 200)] + [f"2001:db8:77:{n:x}::{n:x}" for n in range(1, 52)]
PLAUSIBLE = """<!doctype html><title>Shop</title><script type="module">
import {{init}} from "./plausible.js";
init({{domain: "shop.example", endpoint: "http://127.0.0.1:{port}/api/event", captureOnLocalhost: true}});
</script>"""
OF_PAGES = """
redis: {{url: "embedded:./redis"}}
state: {{dir: ./state}}
api: {{port: {port}, operator_port: {api_operator}}}
operator: {{port: {operator}}}
kafka: {{bootstrap_servers: "{servers}"}}
dead_letters: {{content: true, topic: {topic}-letters, accept: "{accept}"}}
publish_every: 250ms
ingest:
  port: {listener}
  operator_port: {ingest_operator}
  origins: ["{site}"]
  sites: {{shop.example: site}}
  proxy: {{header: X-Forwarded-For, addresses: [127.0.0.1]}}
streams:
  visitors:
    source: &site {{http: site}}
    time: &time {{field: time, format: us, bin: 10s, epoch: 2d, grace: 5s, first: {first}}}
    count: users
    where: {{page: {{present: true}}}}
    privacy: {{epsilon: 1.0e9, not_private: true, unit: {{user: visitor}}}}
    late: drop
    keys: {{field: device, list: [desktop, mobile]}}
  pages:
    source: *site
    time: *time
    where: {{page: {{present: true}}}}
    privacy: &twice
      {{epsilon: 1.0e9, not_private: true, unit: {{user: visitor, max_events: 4}}, accept: measured again}}
    late: dead_letter
    keys: {{field: page, list: {pages}}}
  referrers:
    source: *site
    time: *time
    where: {{page: {{present: true}}}}
    privacy: *twice
    late: drop
    keys: {{field: referrer, list: [news.example]}}
outputs: [{{stream: pages, topic: {topic}}}]
"""


@pytest.mark.kafka
def test_thousand_visits_with_plausibles_script_are_exact_and_leave_no_address(
    tmp_path: Path, browser: Browser, bootstrap_servers: str
) -> None:
    folder, topic = tmp_path / "service", f"visits-{uuid4().hex[:12]}"
    folder.mkdir()
    names = ("port", "api_operator", "operator", "listener", "ingest_operator")
    ports = {name: free_port() for name in names}
    pages = [f"/p{number}.html" for number in range(PAGES)]
    first = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with silent_site(tmp_path / "site") as site:
        (tmp_path / "site" / "plausible.js").write_bytes((TRACKERS / "plausible.js").read_bytes())
        for page in pages:
            (tmp_path / "site" / page[1:]).write_text(PLAUSIBLE.format(port=ports["listener"]))
        (folder / "app.yaml").write_text(
            OF_PAGES.format(
                **ports, servers=bootstrap_servers, topic=topic, accept=READ_LETTERS, site=site, pages=pages,
                first=first.strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
        )  # fmt: skip
        with Service(["-v", "run", "--config", "app.yaml"], folder) as service:
            service.until_true(lambda: answers(ports["port"], "/v1/streams/pages"), "the service answers")
            bad = httpx.post(f"http://127.0.0.1:{ports['listener']}/v1/ingest/site", content=b'{"page": 1}\n')
            assert bad.status_code == 200
            visitors, views, arrivals = _visited(browser, site, pages)
            until = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())

            def is_released() -> bool:
                streams = get(ports["port"], "/v1/streams")["streams"]
                return all((one["released_until"] or "") > until for one in streams)

            service.until_true(is_released, "all bins of the visits are released")
            assert counts(ports["port"], "visitors", first) == {**visitors, "other": 0}
            assert counts(ports["port"], "pages", first) == {**views, "other": 0}
            assert counts(ports["port"], "referrers", first)["news.example"] == arrivals
            said = [
                _text(port, path)
                for port in (ports["port"], *(ports[name] for name in names if "operator" in name))
                for path in ("/metrics", "/healthz", "/", "/streams/pages", "/v1/streams/pages/privacy")
            ]
            place, password = folder / "redis", json.loads((folder / "redis/credentials.json").read_text())
            store_at = f"unix://operator:{password['operator']}@{place / 'redis.sock'}"
            with redis.Redis.from_url(store_at) as store:
                said += dump(store)
            assert service.interrupt() == 0
        rows, letters = _records(bootstrap_servers, topic), _records(bootstrap_servers, f"{topic}-letters")
    assert rows
    assert letters
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    _assert_no_address([*files, *rows, *letters, *(one.encode() for one in (*said, service.output))])


def _visited(browser: Browser, site: str, pages: list[str]) -> tuple[dict[str, int], Counter[str], int]:
    """Visit pages; return visitors by device, each once a day, views by page, and arrivals from elsewhere."""
    tabs = {"desktop": _tab(browser, AGENT), "mobile": _tab(browser, PHONE)}
    who = 0

    def through_proxy(route: Route) -> None:
        headers = {**route.request.headers, "x-forwarded-for": f"10.9.9.9, {ADDRESSES[who]}"}
        route.continue_(headers=headers)

    for tab in tabs.values():
        tab.route("**/api/event", through_proxy)
    visitors, views, arrivals = defaultdict[str, set[tuple[int, int]]](set), Counter[str](), 0
    for number in range(VISITS):
        who = number % len(ADDRESSES)
        device, page = ("desktop", "mobile")[who % 3 == 0], pages[number % 10 % PAGES]
        tab, comes = tabs[device], number % 5 == 0
        with tab.expect_response(lambda answer: "pageview" in (answer.request.post_data or "")) as sent:
            tab.goto(f"{site}{page}?id={who}", referer="https://www.news.example/x" if comes else None)
        assert sent.value.status == 202
        visitors[device].add((int(time.time() // 86_400), who))
        views[page] += 1
        arrivals += comes
    return {device: len(found) for device, found in visitors.items()}, views, arrivals


def _tab(browser: Browser, agent: str) -> Page:
    return browser.new_context(user_agent=agent).new_page()


def _text(port: int, path: str) -> str:
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S, verify=False).text


def _records(servers: str, topic: str) -> list[bytes]:
    """Return keys and values of all records of a topic of one partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False})
    try:
        place = TopicPartition(topic, 0, 0)
        consumer.assign([place])
        _, end = consumer.get_watermark_offsets(place, PATIENCE_S)
        return list(_read(consumer, end))
    finally:
        consumer.close()


def _read(consumer: Consumer, end: int) -> Iterator[bytes]:
    deadline_s = time.monotonic() + PATIENCE_S
    while consumer.position(consumer.assignment())[0].offset < end:
        assert time.monotonic() < deadline_s
        if (message := consumer.poll(0.5)) is not None and message.error() is None:
            yield (message.key() or b"") + b" " + (message.value() or b"")


def _assert_no_address(texts: list[bytes]) -> None:
    """Check that no text has an address, in any usual form, its plain digest, or an agent."""
    written = {"10.9.9.9", AGENT, PHONE, "Mozilla/5.0"}
    for address in map(ipaddress.ip_address, ADDRESSES):
        written |= {str(address), address.exploded, f"{int(address)}"}
    digests = [
        made for text in ADDRESSES[:: len(ADDRESSES) - 1] for kind in ("md5", "sha1", "sha256", "blake2b")
        for made in [hashlib.new(kind, text.encode())]
    ]  # fmt: skip
    forms = [re.escape(text.encode()) for text in written]
    forms += [re.escape(ipaddress.ip_address(text).packed) for text in ADDRESSES if ":" in text]
    forms += [re.escape(one) for made in digests for one in (made.digest(), made.hexdigest().encode())]
    pattern = re.compile(rb"(?<![0-9a-f:.])(?:" + b"|".join(forms) + rb")(?![0-9])")
    assert len(texts) > 50
    for text in texts:
        assert (found := pattern.search(text)) is None, (found, text[:200])
