"""The targets that alert transitions are sent to: webhooks, an Alertmanager, the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from stream_app.core.instants import format_instant
from stream_app.ports.alerts import AlertTarget, NotDelivered

log = logging.getLogger(__name__)

Transition = Mapping[str, Any]

ANSWER_S = 10.0
# An Alertmanager drops alerts that are not repeated; reminders are sent every minute.
HELD_FOR = timedelta(minutes=5)
_NEVER = "0001-01-01T00:00:00Z"
_SENT = ("firing", "resolved")


def page_of(told: Transition, site: str | None) -> str:
    """Return the address of the page that shows a rule's stream; empty without a site.

    Args: site, where readers open the pages, as ``api.url``.

    >>> page_of({"stream": "a b"}, "https://counts.example.org")
    'https://counts.example.org/streams/a%20b'
    """
    return "" if site is None else f"{site}/streams/{quote(told['stream'], safe='')}"


def alert_of(told: Transition, site: str | None) -> dict[str, Any]:
    """Return labels, annotations, times and link of a transition in Alertmanager's format."""
    labels = {
        **{name: str(value) for name, value in told["labels"].items()},
        "alertname": told["rule"],
        "stream": told["stream"],
    }
    annotations = {
        "condition": told["condition"],
        "bin_end": format_instant(told["at_us"]),
        "idempotency_key": told["key"],
        # Not a label: labels identify the alert, and this value may change before it is resolved.
        "private": str(told["private"]).lower(),
    }
    if told["summary"]:
        annotations["summary"] = told["summary"]
    if told["value"] is not None:
        annotations |= {"value": f"{told['value']:.4g}", "confidence": str(told["confidence"])}
    if told["stderr"] is not None:
        annotations |= {"value": f"{told['value']:.2f}", "stderr": f"{told['stderr']:.2f}"}
    if told.get("unit"):  # of a rate; a transition of an older version has none
        annotations["unit"] = f"{told.get('counted_in', 'events')}{told['unit']}"
    if told.get("meaning"):
        annotations["meaning"] = told["meaning"]
    ends = format_instant(told["now_us"]) if told["kind"] == "resolved" else _NEVER
    return {
        "labels": labels,
        "annotations": annotations,
        "startsAt": format_instant(told["fired_us"]),
        "endsAt": ends,
    } | ({} if site is None else {"generatorURL": page_of(told, site)})


def webhook_body(told: Transition, site: str | None = None) -> dict[str, Any]:
    """Return the body that Alertmanager's webhooks, version 4, send for a group of one alert."""
    alert = alert_of(told, site)
    status = "resolved" if told["kind"] == "resolved" else "firing"
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{told["rule"]}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "private-counts",
        "groupLabels": {"alertname": told["rule"]},
        "commonLabels": alert["labels"],
        "commonAnnotations": alert["annotations"],
        "externalURL": site or "",
        "alerts": [{"generatorURL": "", **alert, "status": status, "fingerprint": told["key"][:16]}],
    }


class LogTarget(AlertTarget):
    """One line in the log for every transition."""

    name = "log"

    async def send(self, transition: Transition) -> None:
        said = [transition[name] for name in ("rule", "kind", "condition")]
        at, key = format_instant(transition["at_us"]), transition["key"]
        log.warning("alert %s is %s: %s at %s (key %s)", *said, at, key)


class WebhookTarget(AlertTarget):
    """A URL that accepts Alertmanager's webhook body; the header Idempotency-Key names the transition.

    Args: url; it may hold a secret, so only its host is ever shown; site, where readers open the pages.
    """

    def __init__(self, url: str, client: httpx.AsyncClient, site: str | None = None) -> None:
        self.name = f"webhook {_shown(url)}"
        self._url, self._client, self._site = url, client, site

    async def send(self, transition: Transition) -> None:
        if transition["kind"] in _SENT:
            key = {"Idempotency-Key": transition["key"]}
            await _post(self._client, self.name, self._url, webhook_body(transition, self._site), key)


class AlertmanagerTarget(AlertTarget):
    """An Alertmanager, which groups, silences and routes alerts. It identifies an alert by its labels."""

    def __init__(self, url: str, client: httpx.AsyncClient, site: str | None = None) -> None:
        self.name = f"alertmanager {_shown(url)}"
        base = httpx.URL(url)
        self._url = str(base.copy_with(path=f"{base.path.rstrip('/')}/api/v2/alerts"))
        self._client, self._site = client, site

    async def send(self, transition: Transition) -> None:
        if transition["kind"] in _SENT:
            await self._send([transition])

    async def remind(self, firing: Sequence[Transition]) -> None:
        if firing:  # an alert that is not sent again counts as resolved
            await self._send(firing)

    async def _send(self, transitions: Sequence[Transition]) -> None:
        held_until = (datetime.now(UTC) + HELD_FOR).isoformat()
        alerts = [alert_of(told, self._site) for told in transitions]
        body = [alert | ({"endsAt": held_until} if alert["endsAt"] == _NEVER else {}) for alert in alerts]
        await _post(self._client, self.name, self._url, body)


async def _post(
    client: httpx.AsyncClient, name: str, url: str, body: Any, more_headers: Mapping[str, str] | None = None
) -> None:
    content = json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **(more_headers or {})}
    try:
        answer = await client.post(url, content=content, headers=headers, timeout=ANSWER_S)
    except httpx.HTTPError as failure:
        raise NotDelivered(f"not reached: {type(failure).__name__}") from None
    if answer.status_code in (408, 429) or answer.status_code >= 500:
        raise NotDelivered(f"it answered {answer.status_code}")
    if answer.status_code >= 300:
        # Repeating a refused alert would block all later ones for ever.
        log.error("alert refused by %s with %d; it is not repeated", name, answer.status_code)


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
