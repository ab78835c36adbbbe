"""A target of notifications: its address, and the form of body that it takes. Pure functions."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal, get_args
from urllib.parse import urlsplit, urlunsplit

Format = Literal["alertmanager", "slack", "teams", "discord", "google_chat"]
FORMATS: tuple[Format, ...] = get_args(Format)
# Hosts that answer 400 to Alertmanager's body. A host below one of these counts, too.
_FORMAT_OF_HOST: dict[str, Format] = {
    "hooks.slack.com": "slack",
    "hooks.slack-gov.com": "slack",
    "webhook.office.com": "teams",
    "logic.azure.com": "teams",
    "api.powerplatform.com": "teams",
    "discord.com": "discord",
    "discordapp.com": "discord",
    "chat.googleapis.com": "google_chat",
}
_PORTS = {"http": 80, "https": 443}
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that takes notifications, which may hold a secret. Args: form, of their bodies."""

    url: str
    form: Format = "alertmanager"


@dataclass(frozen=True, slots=True)
class Email:
    """Who gets alerts by e-mail. Args: server, a URL that may hold a password; sender and to, addresses."""

    server: str
    sender: str
    to: tuple[str, ...]


def canonical(url: str) -> str:
    """Return the one spelling of an address; two URLs of one address have the same.

    >>> canonical("HTTP://Example.org:80/%7ea/../b#part")
    'http://example.org/b'
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    try:
        address = ip_address(host)
        host = f"[{address}]" if address.version == 6 else str(address)
    except ValueError:
        host = host if host.isascii() else host.encode("idna").decode()
    user, at, _ = parts.netloc.rpartition("@")
    port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
    path = _without_dots(_spelled(parts.path))
    return urlunsplit((parts.scheme, f"{_spelled(user)}{at}{host}{port}", path, _spelled(parts.query), ""))


def alerts_of_alertmanager(url: str) -> str:
    """Return where an Alertmanager takes alerts. Args: url, its own, with or without a path."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/api/v2/alerts", fragment=""))


def identity(kind: str, url: str) -> str:
    """Return the name of an address in the store. It shows nothing of the URL's secrets.

    The function is slow on purpose: a reader of the store must not find a short password by trying all.
    """
    salt = b"private-counts alert target"
    digest = hashlib.scrypt(canonical(url).encode(), salt=salt, n=1 << 14, r=8, p=1, dklen=16)
    return f"{kind} {digest.hex()}"


def shown(url: str) -> str:
    """Return scheme, host and port of a URL; nothing else of it may be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def known_format(url: str) -> Format | None:
    """Return the format that a well-known host takes; None for other hosts.

    >>> known_format("https://hooks.slack.com/services/T/B/x"), known_format("https://example.org")
    ('slack', None)
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    for known, form in _FORMAT_OF_HOST.items():
        if host == known or host.endswith(f".{known}"):
            # Discord also takes Slack's bodies, under a separate path.
            return "slack" if form == "discord" and parts.path.rstrip("/").endswith("/slack") else form
    return None


def _spelled(part: str) -> str:
    """Return a part of a URL with one spelling of each percent-encoded character."""

    def one(found: re.Match[str]) -> str:
        character = chr(int(found[1], 16))
        return character if _UNRESERVED.fullmatch(character) else found[0].upper()

    return re.sub("%([0-9A-Fa-f]{2})", one, part)


def _without_dots(path: str) -> str:
    """Return a path with . and .. resolved, as clients send it."""
    kept: list[str] = []
    names = path.split("/")[1:]
    for name in names:
        if name == "..":
            del kept[-1:]
        elif name != ".":
            kept.append(name)
    if names and names[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)
