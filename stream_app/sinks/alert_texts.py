"""Notifications for people: the text of a transition, and the bodies of chat services that hold it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from stream_app.core.alerts.targets import Format
from stream_app.core.instants import format_instant

Transition = Mapping[str, Any]

_MOST = 1_500  # characters, before a link; Discord takes 2,000, the others more


def page_of(transition: Transition, site: str | None) -> str:
    """Return the address of the page that shows a rule's stream; empty without a site.

    Args: site, where readers open the pages, as ``api.url``.

    >>> page_of({"stream": "a b"}, "https://counts.example.org")
    'https://counts.example.org/streams/a%20b'
    """
    return "" if site is None else f"{site}/streams/{quote(transition['stream'], safe='')}"


def text_of(transition: Transition) -> str:
    """Return a transition in lines for a person: the rule, the value, its certainty, since when."""
    unit = f"{transition.get('counted_in', 'events')}{transition['unit']}" if transition.get("unit") else ""
    lines = [
        f"{transition['kind'].upper()}: {transition['rule']} (stream {transition['stream']})",
        transition["summary"],
    ]
    certain = "" if transition["value"] is None else f" (confidence {transition['confidence']:.6g})"
    lines.append(f"Condition: {transition['condition']}{certain}")
    if transition["value"] is not None:
        against = (
            ""
            if transition.get("against") is None
            else f", against an estimate of {transition['against']:,.6g}"
        )
        lines.append(f"Estimate: {_value(transition)}{f' {unit}' if unit else ''}{against}")
    lines.append(transition.get("meaning") or "")
    if not transition["private"]:
        lines.append("Not private: this value protects nobody")
    if transition["kind"] == "resolved":
        lines.append(f"Resolved with the interval that ended {format_instant(transition['at_us'])}")
    else:
        lines.append(f"Since: {format_instant(transition['since_us'])}")
    return "\n".join(line for line in lines if line)


def _value(transition: Transition) -> str:
    value, reach = transition["value"], transition.get("reach")
    if reach is None:
        error = "" if transition["stderr"] is None else f" (standard error {transition['stderr']:,.4g})"
        return f"{value:,.6g}{error}"
    return f"{value:,.6g} (95 % interval {value - reach:,.6g} to {value + reach:,.6g})"


def body_of(form: Format, transition: Transition, site: str | None) -> dict[str, Any]:
    """Return the body of a chat service's webhook. Args: form, not alertmanager; site, as ``page_of``."""
    return _BODIES[form](_cut(text_of(transition)), page_of(transition, site))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def _slack(text: str, link: str) -> dict[str, Any]:
    # Slack's three control characters; without this, a key could call everybody of a channel.
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": f"{safe}\n<{link}|Open the chart>" if link else safe}


def _discord(text: str, link: str) -> dict[str, Any]:
    plain = _cut(re.sub(r"([\\*_`~|>#\[\]])", r"\\\1", text))
    return {"content": f"{plain}\n{link}" if link else plain, "allowed_mentions": {"parse": []}}


def _google_chat(text: str, link: str) -> dict[str, Any]:
    # A < that touches a word could mention everybody; Google Chat has no escape for it.
    safe = re.sub(r"<(?=\S)", "<\u200b", text)
    return {"text": f"{safe}\n<{link}|Open the chart>" if link else safe}


def _teams(text: str, link: str) -> dict[str, Any]:
    lines = [{"type": "TextBlock", "text": line, "wrap": True} for line in text.split("\n")]
    lines[0] |= {"weight": "Bolder"}
    action = [{"type": "Action.OpenUrl", "title": "Open the chart", "url": link}]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": lines,
        **({"actions": action} if link else {}),
    }
    held = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [held]}


_BODIES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "slack": _slack,
    "discord": _discord,
    "google_chat": _google_chat,
    "teams": _teams,
}
