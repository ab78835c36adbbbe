"""Pages with Plausible's and Umami's own scripts are counted, and no visitor's address is kept anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser
from starlette.datastructures import Headers

from stream_app.config import ConfigError, load_text
from stream_app.core.visits import DAY_US, visitor_of
from stream_app.receiving.page_scripts import Sites
from stream_app.vault.visitor_keys import VisitorKeys
from tests.blocks.pages import blocks
from tests.stream_app.api.browsing import eventually
from tests.stream_app.receiving.running import Running, settings_of
from tests.stream_app.receiving.test_senders import silent_site

pytestmark = pytest.mark.slow

TRACKERS = Path(__file__).parents[2] / "vendor" / "trackers"
WEBSITE = "94db1cb1-74f4-4a40-ad6c-962362670409"
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/137.0.0.0 Safari/537.36"
SITES = f"sites: {{shop.example: clicks, {WEBSITE}: clicks}}"
PROXY = "proxy: {header: X-Forwarded-For, addresses: [127.0.0.1]}"
PAGE = """<!doctype html><title>Shop</title><script type="module">
import {{init, track}} from "./plausible.js";
init({{domain: "shop.example", endpoint: "{listener}/api/event", captureOnLocalhost: true}});
window.track = track;
</script>
<script defer src="umami.js" data-website-id="{website}" data-host-url="{listener}"></script>"""


def events_of(running: Running) -> list[dict[str, Any]]:
    """Return the stored events."""
    return [json.loads(line) for line in running.stored().splitlines()]


def plausible(running: Running, address: str, **changed: Any) -> httpx.Response:
    """Send an event as Plausible's script does, through a proxy that names the visitor's address."""
    body = {"n": "pageview", "u": "https://shop.example/a?b", "d": "shop.example", "r": None} | changed
    headers = {"content-type": "text/plain", "user-agent": AGENT, "x-forwarded-for": f"10.9.9.9, {address}"}
    return httpx.post(
        f"http://127.0.0.1:{running.port}/api/event", content=json.dumps(body), headers=headers, verify=False
    )


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[str]:
    """The origin of a second site, whose pages have both scripts."""
    with silent_site(tmp_path / "site") as origin:
        for script in ("plausible.js", "umami.js"):
            (tmp_path / "site" / script).write_bytes((TRACKERS / script).read_bytes())
        yield origin


@pytest.mark.slow
def test_both_scripts_send_unchanged(tmp_path: Path, site: str, browser: Browser) -> None:
    with Running(settings_of(tmp_path, f', origins: ["{site}"], {SITES}')) as running:
        page_text = PAGE.format(listener=f"http://127.0.0.1:{running.port}", website=WEBSITE)
        (tmp_path / "site" / "a.html").write_text(page_text)
        context = browser.new_context(user_agent=AGENT)
        page = context.new_page()
        page.goto(f"{site}/a.html?secret=1")
        eventually(page, lambda: len(events_of(running)) >= 2)
        page.evaluate('track("Signup", {props: {plan: "large"}})')
        page.evaluate('umami.track("buy", {price: 5})')  # with the answer of the first request as a header
        eventually(page, lambda: len(events_of(running)) >= 4)
        context.close()
        events = events_of(running)
        views = [one for one in events if one["name"] == "pageview"]
        assert [(one["page"], one["host"], one["device"]) for one in views] == [
            ("/a.html", "localhost", "desktop")
        ] * 2
        assert {one["name"]: one.get("props") for one in events if one["name"] != "pageview"} == {
            "Signup": {"plan": "large"},
            "buy": {"price": 5},
        }
        assert len({one["visitor"] for one in events}) == 1
        assert "secret" not in running.stored().decode()


def test_visitors_have_hashes_and_addresses_stay_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Running(settings_of(tmp_path, f", {SITES}, {PROXY}")) as running:
        addresses = [f"203.0.113.{number}" for number in range(100)]
        for address in addresses * 2:
            assert plausible(running, address).status_code == 202
        found = [event["visitor"] for event in events_of(running)]
        assert found[:100] == found[100:]
        assert len(set(found)) == 100
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3
    text = b"".join(path.read_bytes() for path in files).decode("latin-1") + caplog.text
    assert not re.search(r"203\.0\.113|10\.9\.9\.9|Mozilla", text)


@pytest.mark.parametrize(
    ("changed", "status", "stored"),
    [
        ({}, 202, {"page": "/a", "name": "pageview"}),
        ({"r": "https://www.News.example/x"}, 202, {"referrer": "news.example"}),
        ({"r": "https://shop.example/other"}, 202, {"referrer": None}),
        (
            {"n": "Signup", "p": '{"plan": "large", "list": [1]}'},
            202,
            {"page": None, "props": {"plan": "large"}},
        ),
        ({"d": "other.example,shop.example"}, 202, {"host": "shop.example"}),
        ({"d": "other.example"}, 404, None),
        ({"u": "https://Blog.shop.example:8443/a"}, 202, {"host": "blog.shop.example"}),
        ({"u": "https://www.pages.example/a"}, 202, {"host": "www.pages.example"}),  # of an origin
        ({"u": "https://evil.example/BUY"}, 404, None),
        ({"u": "https://shop.example.evil.example/BUY"}, 404, None),
        ({"u": "https://myshop.example/BUY"}, 404, None),
        ({"n": 5}, 400, None),
        ({"n": ""}, 400, None),
        ({"d": "other.example, Shop.Example"}, 202, {"page": "/a"}),
        (
            {"u": "https://ann:secret@www.Shop.example:8443/a#b"},
            202,
            {"page": "/a", "host": "www.shop.example"},
        ),
        ({"u": "https://shop.example/#/about?token=1", "h": 1}, 202, {"page": "/#/about"}),
        ({"u": "/a"}, 202, {"page": "/a", "host": None}),
        ({"u": "about:blank"}, 202, {"page": None, "name": "pageview"}),
        (
            {"p": {"t": "\ud83d", "n": float("nan"), "o": {"a": 1}, "": "x"}},
            202,
            {"props": {"t": "\ufffd", "": "x"}},
        ),
    ],
)
def test_event_of_plausible_is_stored_by_its_rules(
    tmp_path: Path, changed: dict[str, Any], status: int, stored: dict[str, Any] | None
) -> None:
    origins = "origins: [https://www.pages.example]"
    with Running(settings_of(tmp_path, f", {SITES}, {PROXY}, {origins}")) as running:
        assert plausible(running, "203.0.113.1", **changed).status_code == status
        events = events_of(running)
        assert [{name: one.get(name) for name in stored or {}} for one in events] == (
            [] if stored is None else [stored]
        )


def test_names_in_words_are_read_and_what_is_no_visit_of_a_person_is_not_stored(tmp_path: Path) -> None:
    with Running(settings_of(tmp_path, f", {SITES}")) as running:
        url = f"http://127.0.0.1:{running.port}"
        words = {"name": "pageview", "url": "https://shop.example/w", "domain": "shop.example"}
        engagement = {"n": "engagement", "sd": 40, "e": 4_000, "u": words["url"], "d": "shop.example"}
        identity = {"type": "identify", "payload": {"website": WEBSITE, "data": {"email": "ann@example.org"}}}
        for path, body, agent in (
            ("event", words, AGENT),
            ("event", words, "curl/8"),
            ("event", words, ""),
            ("event", engagement, AGENT),  # one for each view, which would take the views' place in a cap
            ("event", words | {"name": "engagement"}, AGENT),
            ("send", identity, AGENT),
        ):
            sent = httpx.post(f"{url}/api/{path}", json=body, headers={"user-agent": agent}, verify=False)
            assert sent.status_code == (202 if path == "event" else 200)
        assert [event["page"] for event in events_of(running)] == ["/w"]


def test_proxy_that_names_no_address_is_refused_and_others_name_none(tmp_path: Path) -> None:
    with Running(settings_of(tmp_path, f", {SITES}, {PROXY}")) as running:
        refused = plausible(running, "127.0.0.1", d="shop.example")
        assert refused.status_code == 202  # the address before the proxy's own counts
        body = json.dumps({"n": "pageview", "u": "/", "d": "shop.example"})
        url = f"http://127.0.0.1:{running.port}/api/event"
        refused = httpx.post(url, content=body, headers={"user-agent": AGENT}, verify=False)
        assert (refused.status_code, "sent no address in X-Forwarded-For" in refused.text) == (400, True)
    with Running(settings_of(tmp_path, f", {SITES}")) as running:
        for address in ("203.0.113.1", "203.0.113.2"):
            plausible(running, address)
        assert len({event["visitor"] for event in events_of(running)[1:]}) == 1


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        (["203.0.113.5", "198.51.100.7"], "198.51.100.7"),  # the visitor's own line, then the proxy's
        (["203.0.113.5, 198.51.100.7", "10.0.0.9"], "198.51.100.7"),
        (["198.51.100.7:4000"], "198.51.100.7"),
        (["203.0.113.5, [2001:DB8::7]:4001"], "2001:db8::7"),
        (["2001:DB8:0:1:2:3:4:5:4001"], "2001:db8:0:1:2:3:4:5"),
        (["198.51.100.7, 10.0.0.9, "], "198.51.100.7"),
        (["203.0.113.5", '"198.51.100.7"', "10.0.0.9:80, ::ffff:127.0.0.1"], "198.51.100.7"),
        (["203.0.113.5", "unknown"], None),
        (["203.0.113.5, unix:"], None),
        (["10.0.0.9"], None),
        ([], None),
    ],
)
def test_visitor_cannot_choose_the_address_that_a_proxy_says(lines: list[str], address: str | None) -> None:
    key = bytes(32)
    sites = Sites({"shop.example": "clicks"}, lambda _day: key, "X-Forwarded-For", ("127.0.0.1", "10.0.0.9"))
    body = b'{"n": "pageview", "u": "https://shop.example/", "d": "shop.example"}'
    sent = [(b"user-agent", AGENT.encode()), *((b"x-forwarded-for", line.encode()) for line in lines)]
    if address is None:
        with pytest.raises(ValueError, match="the proxy sent no address in X-Forwarded-For"):
            sites.event_of("/api/event", body, Headers(raw=sent), "127.0.0.1")
        return
    for proxy in ("127.0.0.1", "::ffff:10.0.0.9"):  # as a listener on all addresses of IPv6 sees it
        _, event = sites.event_of("/api/event", body, Headers(raw=sent), proxy)
        assert json.loads(event)["visitor"] == visitor_of(key, address, AGENT)


def test_event_of_several_sites_is_stored_for_each() -> None:
    sites = Sites({"shop.example": "a", "two.example": "b", "three.example": "a"}, lambda _: b"k" * 32)
    headers = Headers({"user-agent": AGENT})
    for domain, spools in (("two.example,shop.example", ["b", "a"]), ("three.example,shop.example", ["a"])):
        body = json.dumps({"n": "pageview", "u": "/", "d": domain}).encode()
        for sent in (body, b"\xef\xbb\xbf" + body, body + b"\0"):
            assert sites.event_of("/api/event", sent, headers, "203.0.113.1")[0] == spools
    for wrong in (b"", b"n=pageview", b"[]", b'{"n": "caf\xe9"}'):
        with pytest.raises(ValueError, match="the body is no event of a page"):
            sites.event_of("/api/event", wrong, headers, "203.0.113.1")


def test_key_of_a_day_is_destroyed_after_it(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, f", {SITES}")
    assert settings.ingest is not None
    keys = VisitorKeys(settings.ingest.directory / "@visitors")
    keys.key(7)
    with Running(settings) as running:
        plausible(running, "203.0.113.1")
        [event] = events_of(running)
        left = [int(path.stem) for path in (settings.ingest.directory / "@visitors").glob("*.key")]
        assert left == [event["time"] // DAY_US]


def test_page_is_told_to_send_again_while_the_clock_shows_a_past_day(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, f", {SITES}")
    assert settings.ingest is not None
    keys = VisitorKeys(settings.ingest.directory / "@visitors")
    keys.key(7)
    keys.destroy_before(1 << 20)
    with Running(settings) as running:
        assert plausible(running, "203.0.113.1").status_code == 503
        assert events_of(running) == []


def test_origins_are_compared_as_browsers_write_them(tmp_path: Path) -> None:
    written = [
        "https://Shop.example:443/",
        "http://a.example:80",
        "http://a.example:443",
        "http://[::1]:8000",
    ]
    ingest = settings_of(tmp_path, f", origins: {json.dumps(written)}").ingest
    assert ingest is not None
    sent = ["https://shop.example", "http://a.example", "http://a.example:443", "http://[::1]:8000"]
    assert list(ingest.origins) == sent


def test_configurations_of_the_page_are_read(tmp_path: Path) -> None:
    written = [one.text for one in blocks("docs/events.md") if one.text.startswith("ingest:\n")]
    assert len(written) == 2
    for text in written:
        assert load_text(text, tmp_path / "app.yaml", {}).ingest is not None
    with pytest.raises(ConfigError, match="late must be drop or dead_letter: a visitor's events count"):
        load_text(written[0].replace("    late: drop\n", ""), tmp_path / "app.yaml", {})
