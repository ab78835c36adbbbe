"""Targets receive alerts in Alertmanager's format, with the key. No error message contains a secret."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from stream_app.core.alerts.targets import FORMATS, Format
from stream_app.loops.alert_delivery import send_waiting
from stream_app.ports.alerts import NotDelivered, Refused
from stream_app.sinks.alert_targets import AlertmanagerTarget, HttpTarget, WebhookTarget
from stream_app.sinks.alert_texts import body_of, text_of
from stream_app.sinks.alert_topic import cloud_event
from tests.models.memory_alerts import MemoryAlertStore

pytestmark = pytest.mark.anyio

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
            url = "https://user:word@example.org:8443/secret?token=x"
            await target("webhooks[0]", url, client, site).send((told or TOLD) | {"kind": kind})

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


@dataclass
class Hosts:
    """Answers of the targets, by URL, and the keys that each accepted."""

    status: dict[str, int]
    taken: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer one notification."""
        status = self.status.get(str(request.url), 200)
        if status == 200:
            body = json.loads(request.content)
            alert = body[0] if isinstance(body, list) else body["alerts"][0]
            self.taken[str(request.url)].append(alert["annotations"]["idempotency_key"])
        return httpx.Response(status, text="no_text")


AT = "http://hooks.example.org"
MANAGED = "api/v2/alerts"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((WebhookTarget, f"{AT}/a"), (WebhookTarget, f"{AT}/b")),
        ((WebhookTarget, f"{AT}/a"), (WebhookTarget, f"{AT}/a/")),
        ((WebhookTarget, f"{AT}/A"), (WebhookTarget, f"{AT}/a")),
        ((WebhookTarget, f"{AT}/a%2Fb"), (WebhookTarget, f"{AT}/a/b")),
        ((WebhookTarget, f"{AT}/?token=1"), (WebhookTarget, f"{AT}/?token=2")),
        ((WebhookTarget, f"{AT}/?token=1"), (WebhookTarget, f"{AT}/?token=1&x")),
        ((WebhookTarget, "https://hooks.example.org/a"), (WebhookTarget, f"{AT}/a")),
        ((WebhookTarget, f"{AT}:8080/a"), (WebhookTarget, f"{AT}:8081/a")),
        ((AlertmanagerTarget, f"{AT}/{MANAGED}"), (AlertmanagerTarget, f"{AT}/team/{MANAGED}")),
        ((AlertmanagerTarget, f"{AT}/x/{MANAGED}"), (AlertmanagerTarget, f"{AT}/y/{MANAGED}")),
        ((AlertmanagerTarget, f"{AT}/{MANAGED}"), (WebhookTarget, f"{AT}/{MANAGED}/x")),
    ],
)
async def test_targets_of_one_host_each_get_every_transition(
    first: tuple[type[HttpTarget], str], second: tuple[type[HttpTarget], str]
) -> None:
    hosts = Hosts({second[1]: 503})
    store = MemoryAlertStore()
    async with httpx.AsyncClient(transport=httpx.MockTransport(hosts.answer)) as client:
        both = [
            target(f"webhooks[{n}]", url.removesuffix(f"/{MANAGED}"), client)
            for n, (target, url) in enumerate((first, second))
        ]
        await store.begin({target.identity: target.former for target in both})
        for target in both:
            await store.register(target.identity)
        for seq in range(1, 4):
            await store.commit("clicks", seq - 1 or None, seq, {}, [TOLD | {"key": f"k{seq}"}])
            await send_waiting(store, both[0])
            with pytest.raises(NotDelivered):
                await send_waiting(store, both[1])
        hosts.status.clear()
        assert await send_waiting(store, both[0]) == 0
        assert await send_waiting(store, both[1]) == 3
    assert hosts.taken == {url: ["k1", "k2", "k3"] for _, url in (first, second)}


def test_a_refusal_is_logged_and_shown_without_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    url = "https://user:word@example.org:8443/secret?token=x"
    hosts = Hosts({url: 403})

    async def run() -> dict[str, list[str]]:
        store = MemoryAlertStore()
        async with httpx.AsyncClient(transport=httpx.MockTransport(hosts.answer)) as client:
            target = WebhookTarget("webhooks[1]", url, client)
            await store.register(target.identity)
            await store.commit("clicks", None, 1, {}, [TOLD, TOLD | {"kind": "pending"}])
            assert await send_waiting(store, target) == 2
            assert await send_waiting(store, target) == 0  # it is not repeated
            with pytest.raises(Refused, match="status 403") as refused:
                await target.send(TOLD)
            assert refused.value.said == "no_text"
        assert not {"secret", "token", "word"} & set(re.findall(r"\w+", f"{target.identity} {target.former}"))
        return store.refusals()

    assert asyncio.run(run()) == {"busy": ["webhooks[1] (status 403)"]}
    assert "refused by alerts.webhooks[1] (https://example.org:8443) (status 403)" in caplog.text
    assert not re.search("secret|token|word", caplog.text)


def chat(form: Format, **told: Any) -> dict[str, Any]:
    """Return the body that a chat service gets."""
    return body_of(form, TOLD | told, "https://counts.example.org")


def words(form: Format, body: dict[str, Any]) -> str:
    """Return the text of a body, as each service documents it."""
    if form == "teams":
        [card] = body["attachments"]
        assert card["contentType"] == "application/vnd.microsoft.card.adaptive"
        assert [one["url"] for one in card["content"]["actions"]] == [
            "https://counts.example.org/streams/clicks"
        ]
        return "\n".join(block["text"] for block in card["content"]["body"])
    return str(body["content" if form == "discord" else "text"])


CHATS = [form for form in FORMATS if form != "alertmanager"]


@pytest.mark.parametrize("form", CHATS)
def test_a_chat_gets_a_text_that_a_person_can_read(form: Format) -> None:
    told = chat(
        form, summary="too many", reach=2.4, value=1234.5, since_us=0, condition="sum(clicks, 1h) over 5"
    )
    text = words(form, told)
    for part in (
        "FIRING: busy",
        "too many",
        "sum(clicks, 1h) over 5",
        "1,234.5 (95 % interval 1,232.1 to 1,236.9)",
        "Since: 1970-01-01T00:00:00Z",
    ):
        assert part in text
    assert form == "teams" or "https://counts.example.org/streams/clicks" in text
    assert "https" not in json.dumps(body_of(form, TOLD, None)).replace("adaptive", "")
    assert json.dumps(told)  # no number that JSON lacks
    assert "Resolved" in words(form, chat(form, kind="resolved"))
    no_data = words(form, chat(form, value=None, stderr=None, condition="no_data(clicks, 1h)"))
    assert "Estimate" not in no_data
    assert "confidence" not in no_data


@pytest.mark.parametrize("form", CHATS)
@pytest.mark.parametrize(
    "key",
    [
        "<!channel>",
        "@everyone",
        "<users/all>",
        "<@U024BE7LH>",
        "*bold* _x_",
        "`code`",
        "&lt;",
        "x" * 5_000,
        "[a](b)",
        "*" * 5_000,
        "<" * 5_000,
        "&" * 5_000,
        "\n" * 50,
        "\ud800",
    ],
)
def test_no_key_calls_everybody_of_a_chat_or_makes_the_text_too_long(form: Format, key: str) -> None:
    body = chat(form, rule=f"busy[{key}]")
    text = words(form, body)
    assert len(text) <= (10_000 if form == "slack" else 4_000)
    assert json.dumps(body).encode()
    assert form in ("discord", "teams") or not re.search(r"<[!@u#]", text)
    assert form != "discord" or (body["allowed_mentions"] == {"parse": []} and len(text) <= 2_000)


def test_a_value_without_an_interval_says_its_standard_error_or_none() -> None:
    rate = TOLD | {"unit": "/m", "reach": 1.0}
    assert "Estimate: 9.5 (95 % interval 8.5 to 10.5) events/m" in text_of(rate)
    assert "Estimate: 9.5 (standard error 1.25)" in text_of(TOLD)
    assert "Estimate: 9.5 (standard error 1.25), against an estimate of 19" in text_of(
        TOLD | {"against": 19.0}
    )
    assert "Not private: this value protects nobody" in text_of(TOLD | {"private": False})
    assert "Not private" not in text_of(TOLD)
    assert "Estimate: 9.5\n" in text_of(TOLD | {"stderr": None, "meaning": "Counts clicks."})


def test_a_chat_webhook_is_sent_its_format_with_the_key() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200 if "text" in json.loads(request.content) else 400)  # as Slack does

    async def run() -> str:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            return await WebhookTarget("webhooks[0]", f"{AT}/x", client, None, "slack").send(TOLD)

    assert asyncio.run(run()) == "status 200"
    assert requests[0].headers["idempotency-key"] == TOLD["key"]


def test_a_reminder_holds_an_alert_for_minutes() -> None:
    [request] = sent("firing", AlertmanagerTarget)
    [alert] = json.loads(request.content)
    assert request.url.path.endswith("/api/v2/alerts")
    assert alert["endsAt"] > "2020"
