"""The targets that alert transitions are sent to: webhooks, an Alertmanager, e-mail by SMTP, the log."""

from __future__ import annotations

import asyncio
import json
import logging
import smtplib
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from stream_app.core.alerts.targets import Email, Format, alerts_of_alertmanager, identity, shown
from stream_app.core.instants import format_instant
from stream_app.ports.alerts import AlertTarget, NotDelivered, Refused
from stream_app.sinks.alert_texts import Transition, body_of, page_of, text_of

log = logging.getLogger(__name__)

ANSWER_S = 10.0
# An Alertmanager drops alerts that are not repeated; reminders are sent every minute.
HELD_FOR = timedelta(minutes=5)
_NEVER = "0001-01-01T00:00:00Z"
SENT = ("firing", "resolved")
_PORTS = {"smtp": 587, "smtps": 465}


def alert_of(transition: Transition, site: str | None) -> dict[str, Any]:
    """Return labels, annotations, times and link of a transition in Alertmanager's format."""
    labels = {
        **{name: str(value) for name, value in transition["labels"].items()},
        "alertname": transition["rule"],
        "stream": transition["stream"],
    }
    annotations = {
        "condition": transition["condition"],
        "bin_end": format_instant(transition["at_us"]),
        "idempotency_key": transition["key"],
        # Not a label: labels identify the alert, and this value may change before it is resolved.
        "private": str(transition["private"]).lower(),
    }
    if transition["summary"]:
        annotations["summary"] = transition["summary"]
    if transition["value"] is not None:
        annotations |= {"value": f"{transition['value']:.4g}", "confidence": str(transition["confidence"])}
    if transition["stderr"] is not None:
        annotations |= {"value": f"{transition['value']:.2f}", "stderr": f"{transition['stderr']:.2f}"}
    if transition.get("against") is not None:
        annotations["against"] = f"{transition['against']:.2f}"
    if transition.get("unit"):  # of a rate; a transition of an older version has none
        annotations["unit"] = f"{transition.get('counted_in', 'events')}{transition['unit']}"
    if transition.get("meaning"):
        annotations["meaning"] = transition["meaning"]
    ends = format_instant(transition["now_us"]) if transition["kind"] == "resolved" else _NEVER
    return {
        "labels": labels,
        "annotations": annotations,
        "startsAt": format_instant(transition["fired_us"]),
        "endsAt": ends,
    } | ({} if site is None else {"generatorURL": page_of(transition, site)})


def webhook_body(transition: Transition, site: str | None = None) -> dict[str, Any]:
    """Return the body that Alertmanager's webhooks, version 4, send for a group of one alert."""
    alert = alert_of(transition, site)
    status = "resolved" if transition["kind"] == "resolved" else "firing"
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{transition["rule"]}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "private-counts",
        "groupLabels": {"alertname": transition["rule"]},
        "commonLabels": alert["labels"],
        "commonAnnotations": alert["annotations"],
        "externalURL": site or "",
        "alerts": [{"generatorURL": "", **alert, "status": status, "fingerprint": transition["key"][:16]}],
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
        alerts = [alert_of(transition, self._site) for transition in transitions]
        body = [alert | ({"endsAt": held_until} if alert["endsAt"] == _NEVER else {}) for alert in alerts]
        return await self._post(body)


def message_of(transition: Transition, email: Email, site: str | None) -> EmailMessage:
    """Return a transition as a message; its Message-ID is the idempotency key."""
    subject = f"{transition['kind'].upper()}: {transition['rule']} ({transition['stream']})"
    message = EmailMessage()
    message["From"], message["To"] = email.sender, ", ".join(email.to)
    # A key may hold a line break, also an encoded one, which would begin another header.
    printable = "".join(letter for letter in subject[:200] if letter.isprintable())
    message["Subject"] = printable.replace("=?", "= ?")
    message["Date"] = format_datetime(datetime.fromtimestamp(transition["now_us"] / 1e6, UTC))
    message["Message-ID"] = f"<{transition['key']}@{email.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    text = "\n".join(filter(None, (text_of(transition), page_of(transition, site))))
    message.set_content(text.encode(errors="replace").decode() + "\n")
    return message


class EmailTarget(AlertTarget):
    """Receivers of e-mail. If the server offers STARTTLS, all goes over TLS; no password goes without TLS."""

    name = identity = "email"
    former = ""

    def __init__(self, email: Email, site: str | None = None) -> None:
        self.shown = f"alerts.email ({shown(email.server)})"
        self._email, self._site = email, site

    async def send(self, transition: Transition) -> str:
        if transition["kind"] not in SENT:
            return ""
        return await asyncio.to_thread(self._deliver, message_of(transition, self._email, self._site))

    def _deliver(self, message: EmailMessage) -> str:
        try:
            with self._connected() as server:
                refused = server.send_message(message, self._email.sender, self._email.to)
        except smtplib.SMTPRecipientsRefused as failure:
            refused = failure.recipients
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as failure:
            raise _refusal(failure.smtp_code, failure.smtp_error) from None
        except smtplib.SMTPResponseException as failure:  # also a wrong password, which can be corrected
            raise NotDelivered(f"it answered {failure.smtp_code}") from None
        except (smtplib.SMTPException, OSError) as failure:
            raise NotDelivered(f"not reached: {type(failure).__name__}") from None
        for code, answer in refused.values():
            raise _refusal(code, answer)
        return f"accepted for {len(self._email.to)} receiver(s)"

    def _connected(self) -> smtplib.SMTP:
        """Return a connection by TLS, logged in if the URL names a user."""
        parts = urlsplit(self._email.server)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        trusted = ssl.create_default_context()
        if parts.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=ANSWER_S, context=trusted)
        else:
            server = smtplib.SMTP(host, port, timeout=ANSWER_S)
        try:
            server.ehlo()
            if parts.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=trusted)
            elif parts.scheme == "smtp" and parts.username:
                raise NotDelivered("it offers no STARTTLS, so it gets no password")
            if parts.username:
                server.login(unquote(parts.username), unquote(parts.password or ""))
        except BaseException:
            server.close()
            raise
        return server


def _refusal(code: int, answer: bytes | str) -> NotDelivered | Refused:
    """Return the error of an answer: codes from 500 are final, those from 400 are tried again."""
    said = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return Refused(code, said) if code >= 500 else NotDelivered(f"it answered {code}")
