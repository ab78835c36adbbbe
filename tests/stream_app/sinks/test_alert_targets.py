"""Targets receive alerts in Alertmanager's format, with the key. No error message contains a secret."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from stream_app.ports.alerts import NotDelivered
from stream_app.sinks.alert_targets import AlertmanagerTarget, WebhookTarget
from stream_app.sinks.alert_topic import cloud_event

TOLD: dict[str, Any] = {
    "key": "0123456789abcdef0123456789abcdef",
    "kind": "firing",
    "rule": "busy",
    "condition": "sum(clicks, 1h) > 5",
    "confidence": 0.99,
    "stream": "clicks",
    "seq": 7,
    "at_us": 3_600_000_000,
    "now_us": 3_700_000_000,
    "since_us": 0,
    "fired_us": 3_700_000_000,
    "value": 9.5,
    "stderr": 1.25,
    "private": True,
    "labels": {"severity": "page", "stream": "an impostor"},
    "summary": "too many",
}


def sent(
    kind: str,
    target: type = WebhookTarget,
    status: int = 200,
    told: dict[str, Any] | None = None,
    site: str | None = None,
) -> list[httpx.Request]:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(status)

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            await target("https://user:word@example.org:8443/secret?token=x", client, site).send(
                (told or TOLD) | {"kind": kind}
            )

    asyncio.run(run())
    return requests


def test_a_webhook_gets_the_body_of_alertmanager_version_4() -> None:
    [request] = sent("firing")
    body = json.loads(request.content)
    assert (body["version"], body["status"], body["alerts"][0]["status"]) == ("4", "firing", "firing")
    assert set(body) == {
        *("version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels"),
        *("commonAnnotations", "externalURL", "alerts"),
    }
    [alert] = body["alerts"]
    assert alert["labels"] == {"alertname": "busy", "stream": "clicks", "severity": "page"}
    assert alert["annotations"]["private"] == "true"
    assert alert["annotations"]["value"] == "9.50"
    assert (alert["startsAt"], alert["endsAt"]) == ("1970-01-01T01:01:40Z", "0001-01-01T00:00:00Z")
    assert request.headers["idempotency-key"] == TOLD["key"] == alert["annotations"]["idempotency_key"]
    [resolved] = sent("resolved")
    assert json.loads(resolved.content)["alerts"][0]["endsAt"] == "1970-01-01T01:01:40Z"


@pytest.mark.parametrize(
    ("site", "page"),
    [
        (None, ""),
        ("https://counts.example.org/private", "https://counts.example.org/private/streams/a%2Fb%20c"),
    ],
)
def test_alert_links_to_page_of_its_stream_if_site_is_known(site: str | None, page: str) -> None:
    told = TOLD | {"stream": "a/b c"}
    [webhook], [manager] = (
        sent("firing", target, told=told, site=site) for target in (WebhookTarget, AlertmanagerTarget)
    )
    body = json.loads(webhook.content)
    assert (body["externalURL"], body["alerts"][0]["generatorURL"]) == (site or "", page)
    assert json.loads(manager.content)[0].get("generatorURL", "") == page
    assert cloud_event(told, site)["data"].get("url", "") == page


def test_a_target_gets_firing_and_resolved_transitions_only() -> None:
    assert sent("pending") == sent("inactive") == []
    silent = TOLD | {"value": None, "stderr": None}
    assert "value" not in json.loads(sent("firing", told=silent)[0].content)["alerts"][0]["annotations"]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_target_that_is_busy_is_tried_again(status: int) -> None:
    with pytest.raises(NotDelivered, match=f"it answered {status}"):
        sent("firing", status=status)


def test_a_refusal_is_logged_without_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    sent("firing", status=403)
    assert "refused by webhook https://example.org:8443 with 403" in caplog.text
    assert "secret" not in caplog.text
    assert "token" not in caplog.text
    assert "word" not in caplog.text


def test_a_reminder_holds_an_alert_for_minutes() -> None:
    [request] = sent("firing", AlertmanagerTarget)
    [alert] = json.loads(request.content)
    assert request.url.path.endswith("/api/v2/alerts")
    assert alert["endsAt"] > "2020"
