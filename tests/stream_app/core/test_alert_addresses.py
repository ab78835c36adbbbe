"""Two spellings of one address are one target; two addresses of one host are two."""

from __future__ import annotations

import pytest

from stream_app.core.alerts.targets import alerts_of_alertmanager, canonical, identity, known_format, shown


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org", "http://example.org/"),
        ("http://example.org/a", "HTTP://EXAMPLE.org/a"),
        ("http://example.org/a", "http://example.org:80/a"),
        ("https://example.org/a", "https://example.org:443/a"),
        ("http://example.org/a", "http://example.org./a"),
        ("http://example.org/a", "http://example.org/a#part"),
        ("http://example.org/a", "http://example.org/b/../a"),
        ("http://example.org/a/", "http://example.org/./a/."),
        ("http://example.org/~a", "http://example.org/%7ea"),
        ("http://example.org/%2f", "http://example.org/%2F"),
        ("http://example.org/?a=%2d", "http://example.org/?a=-"),
        ("http://bücher.example/a", "http://xn--bcher-kva.example/a"),
        ("http://[::1]:9000/a", "http://[0:0::1]:9000/a"),
        ("http://u:%70@example.org/a", "http://u:p@example.org/a"),
    ],
)
def test_spellings_of_one_address_are_one(one: str, other: str) -> None:
    assert canonical(one) == canonical(other) == canonical(canonical(other))


@pytest.mark.parametrize(
    "other",
    [
        "http://example.org/b",
        "http://example.org/A",
        "http://example.org/a/",
        "http://example.org/a?x",
        "http://example.org/%61%2f",
        "https://example.org/a",
        "http://example.org:8080/a",
        "http://www.example.org/a",
        "http://user@example.org/a",
        "http://user:p@example.org/a",
    ],
)
def test_addresses_of_one_host_are_two_and_look_the_same(other: str) -> None:
    one = "http://example.org/a"
    assert canonical(one) != canonical(other)
    assert identity("webhook", one) != identity("webhook", other)
    assert shown(other).count("/") == 2


def test_the_stored_name_of_an_address_never_changes() -> None:
    name = identity("webhook", "HTTPS://hooks.example.org:443/services/T0/B0/x")
    assert name == "webhook 74eca19e787bf09f199331e124f970a5"
    assert identity("alertmanager", "https://hooks.example.org/services/T0/B0/x") != name


@pytest.mark.parametrize(
    "url", ["http://am:9093", "http://am:9093/", "http://am:9093//", "http://am:9093/#x"]
)
def test_an_alertmanager_with_and_without_a_slash_is_one(url: str) -> None:
    assert alerts_of_alertmanager(url) == "http://am:9093/api/v2/alerts"


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack"),
        ("https://HOOKS.slack.com./services/T/B/x", "slack"),
        ("https://discord.com/api/webhooks/1/x", "discord"),
        ("https://canary.discord.com/api/webhooks/1/x", "discord"),
        ("https://discordapp.com/api/webhooks/1/x/slack", "slack"),
        ("https://chat.googleapis.com/v1/spaces/A/messages?key=x", "google_chat"),
        ("https://acme.webhook.office.com/webhookb2/x", "teams"),
        ("https://prod-1.westeurope.logic.azure.com:443/workflows/x", "teams"),
        ("https://default1.2.environment.api.powerplatform.com/powerautomate/x", "teams"),
        ("https://events.pagerduty.com/v2/enqueue", None),
        ("https://hooks.slack.com.evil.example/x", None),
        ("https://notdiscord.com/x", None),
        ("http://127.0.0.1:9000/hook", None),
    ],
)
def test_hosts_of_chat_services_are_known(url: str, form: str | None) -> None:
    assert known_format(url) == form
