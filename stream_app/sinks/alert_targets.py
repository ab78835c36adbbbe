"""The targets that alert transitions are sent to: webhooks, an Alertmanager, the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from stream_app.core.alerts.targets import Format, alerts_of_alertmanager, identity, shown
from stream_app.core.instants import format_instant
from stream_app.ports.alerts import AlertTarget, NotDelivered, Refused
from stream_app.sinks.alert_texts import Transition, body_of, page_of

log = logging.getLogger(__name__)

ANSWER_S = 10.0
# An Alertmanager drops alerts that are not repeated; reminders are sent every minute.
HELD_FOR = timedelta(minutes=5)
_NEVER = "0001-01-01T00:00:00Z"
SENT = ("firing", "resolved")


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
    if told.get("against") is not None:
        annotations["against"] = f"{told['against']:.2f}"
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

    name = shown = identity = "log"
    former = ""

    async def send(self, transition: Transition) -> str:
        said = [transition[name] for name in ("rule", "kind", "condition")]
        at, key = format_instant(transition["at_us"]), transition["key"]
        log.warning("alert %s is %s: %s at %s (key %s)", *said, at, key)
        return "written into the log"


class HttpTarget(AlertTarget):
    """A URL that notifications are posted to.

    Args: name, its place in the configuration; url, which may hold a secret, so only its host is ever shown;
        site, where readers open the pages.
    """

    kind: str  # in the store, before what identifies the address

    def __init__(self, name: str, url: str, client: httpx.AsyncClient, site: str | None = None) -> None:
        self.name, self.shown = name, f"alerts.{name} ({shown(url)})"
        self.identity, self.former = identity(self.kind, url), f"{self.kind} {shown(url)}"
        self._url, self._client, self._site = url, client, site

    async def _post(self, body: Any, more_headers: Mapping[str, str] | None = None) -> str:
        """Post a body and return the status of the answer. Raises: NotDelivered, Refused."""
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(more_headers or {})}
        try:
            answer = await self._client.post(self._url, content=content, headers=headers, timeout=ANSWER_S)
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            raise NotDelivered(f"not reached: {type(failure).__name__}") from None
        if answer.status_code in (408, 429) or answer.status_code >= 500:
            raise NotDelivered(f"it answered {answer.status_code}")
        if answer.status_code >= 300:
            raise Refused(answer.status_code, answer.text)
        return f"status {answer.status_code}"


class WebhookTarget(HttpTarget):
    """A URL that accepts Alertmanager's webhook body, or a chat service's.

    The header Idempotency-Key names the transition. Args: form, of the body; others, as ``HttpTarget``.
    """

    kind = "webhook"

    def __init__(
        self,
        name: str,
        url: str,
        client: httpx.AsyncClient,
        site: str | None = None,
        form: Format = "alertmanager",
    ) -> None:
        super().__init__(name, url, client, site)
        self._form = form

    async def send(self, transition: Transition) -> str:
        if transition["kind"] not in SENT:
            return ""
        if self._form == "alertmanager":
            body = webhook_body(transition, self._site)
        else:
            body = body_of(self._form, transition, self._site)
        return await self._post(body, {"Idempotency-Key": transition["key"]})


class AlertmanagerTarget(HttpTarget):
    """An Alertmanager, which groups, silences and routes alerts. It identifies an alert by its labels."""

    kind = "alertmanager"

    def __init__(self, name: str, url: str, client: httpx.AsyncClient, site: str | None = None) -> None:
        super().__init__(name, alerts_of_alertmanager(url), client, site)

    async def send(self, transition: Transition) -> str:
        return await self._send([transition]) if transition["kind"] in SENT else ""

    async def remind(self, firing: Sequence[Transition]) -> None:
        if firing:  # an alert that is not sent again counts as resolved
            await self._send(firing)

    async def _send(self, transitions: Sequence[Transition]) -> str:
        held_until = (datetime.now(UTC) + HELD_FOR).isoformat()
        alerts = [alert_of(told, self._site) for told in transitions]
        body = [alert | ({"endsAt": held_until} if alert["endsAt"] == _NEVER else {}) for alert in alerts]
        return await self._post(body)
