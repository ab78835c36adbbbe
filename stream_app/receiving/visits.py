"""Events of pages that send them with Plausible's or Umami's script.

Who visits becomes a hash here (``core.visits``), before anything is stored; address and agent are forgotten.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import msgspec
from starlette.datastructures import Headers

from stream_app.core.visits import DAY_US, agent_of, host_of, path_of, visitor_of

PATHS = {"/api/event": 202, "/api/send": 200}  # of Plausible's and of Umami's script, with the answers
_VIEW = "pageview"
_MOST_PROPERTIES = 30  # as Plausible has it


class UnknownSiteError(LookupError):
    """No site has the name that an event gives."""


class _Plausible(msgspec.Struct):
    name: str = msgspec.field(name="n", default="")
    url: str = msgspec.field(name="u", default="")
    site: str = msgspec.field(name="d", default="")
    referrer: str | None = msgspec.field(name="r", default=None)
    properties: dict[str, Any] | str | None = msgspec.field(name="p", default=None)


class _PlausibleInWords(msgspec.Struct):
    """The same, as programs send it to Plausible's API."""

    name: str
    url: str
    site: str = msgspec.field(name="domain")
    referrer: str | None = None
    properties: dict[str, Any] | str | None = msgspec.field(name="props", default=None)


class _Umami(msgspec.Struct):
    website: str
    url: str = ""
    hostname: str = ""
    referrer: str = ""
    name: str | None = None
    data: dict[str, Any] | None = None


class _UmamiBody(msgspec.Struct):
    type: str
    payload: _Umami


@dataclass(frozen=True)
class Sites:
    """The sites whose pages send events.

    Args: spools, of each site, by its domain (Plausible) or the website's id (Umami); key_of_day, of
        visitors' names; proxy_header, by which proxies at ``proxies`` give the visitor's address; now_us.
    """

    spools: Mapping[str, str]
    key_of_day: Callable[[int], bytes]
    proxy_header: str | None = None
    proxies: tuple[str, ...] = ()
    now_us: Callable[[], int] = lambda: time.time_ns() // 1_000

    def event_of(self, path: str, body: bytes, headers: Headers, address: str) -> tuple[str, bytes]:
        """Return the spool of an event, and the event as a line; no line for what is not stored.

        Bots are not stored, nor what says who a visitor is.
        Args: path, one of ``PATHS``; address, of the connection.
        Raises: ValueError, one line, for a body that is no event; UnknownSiteError.
        """
        try:
            sent = _sent(path, body)
        except msgspec.MsgspecError as refusal:
            raise ValueError(f"the body is no event of a page: {refusal}") from None
        site = next((one for one in sent.site.split(",") if one in self.spools), None)
        if site is None:
            raise UnknownSiteError(f"no site is named {sent.site[:80]!r}; add it to ingest.sites")
        who, agent = self._address(headers, address), headers.get("user-agent", "")
        known = agent_of(agent, with_browser=find_spec("ua_parser") is not None)
        if known.bot or not sent.name:
            return self.spools[site], b""
        now_us = self.now_us()
        own = host_of(sent.url) or sent.host
        page = path_of(sent.url)
        event = {
            "time": now_us,
            "visitor": visitor_of(self.key_of_day(now_us // DAY_US), who, agent),
            "name": sent.name,
            "page": page if sent.name == _VIEW else None,
            "path": page,
            "host": own,
            "referrer": host_of(sent.referrer, own),
            "device": known.device,
            "browser": known.browser,
            "props": dict(_properties(sent.properties)),
        }
        kept = {name: value for name, value in event.items() if value not in (None, {})}
        return self.spools[site], json.dumps(kept, separators=(",", ":")).encode() + b"\n"

    def _address(self, headers: Headers, address: str) -> str:
        """Return the visitor's address: of the connection, or the last one that is no proxy's.

        Raises: ValueError if a named proxy does not say it.
        """
        if self.proxy_header is None or address not in self.proxies:
            return address
        said = [one.strip() for one in headers.get(self.proxy_header, "").split(",")]
        found = next((one for one in reversed(said) if one and one not in self.proxies), None)
        if found is None:
            raise ValueError(f"the proxy sent no {self.proxy_header}; let it set this header")
        return found


@dataclass(frozen=True)
class _Sent:
    """What a script sends. Args: name, empty for what is no event; host, of the page if its URL has none."""

    name: str
    url: str
    site: str
    referrer: str
    properties: object
    host: str | None = None


def _sent(path: str, body: bytes) -> _Sent:
    """Return what a script has sent. Raises: msgspec.MsgspecError."""
    if path == "/api/send":
        sent = msgspec.json.decode(body, type=_UmamiBody)
        one, name = sent.payload, sent.payload.name or _VIEW
        # ``identify`` says who the visitor is.
        name = name if sent.type == "event" else ""
        return _Sent(name, one.url, one.website, one.referrer, one.data, one.hostname.lower() or None)
    with suppress(msgspec.ValidationError):
        word = msgspec.json.decode(body, type=_PlausibleInWords)
        return _Sent(word.name, word.url, word.site, word.referrer or "", word.properties)
    short = msgspec.json.decode(body, type=_Plausible)
    return _Sent(short.name, short.url, short.site, short.referrer or "", short.properties)


def _properties(given: object) -> Iterator[tuple[str, str | int | float | bool]]:
    """Yield the properties of an event that are texts, numbers or truth values."""
    if isinstance(given, str):  # as older scripts of Plausible send them
        with suppress(msgspec.MsgspecError):
            given = msgspec.json.decode(given)
    for name, value in list(given.items())[:_MOST_PROPERTIES] if isinstance(given, dict) else ():
        if isinstance(value, str | int | float):
            yield str(name), value
