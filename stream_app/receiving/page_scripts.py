"""Events of pages that send them with Plausible's or Umami's script.

Who visits becomes a hash here (``core.visits``), before anything is stored; address and agent are forgotten.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec
from starlette.datastructures import Headers

from stream_app.core.json_objects import value_of
from stream_app.core.visits import (
    DAY_US,
    agent_of,
    host_in,
    host_name,
    host_of,
    path_of,
    visitor_of,
    without_port,
)

PATHS = {"/api/event": 202, "/api/send": 200}  # of Plausible's and of Umami's script, with the answers
_VIEW = "pageview"
_ENGAGEMENT = "engagement"  # Plausible's script says itself how long a page was in view; that is no visit
_MOST_PROPERTIES = 30  # as Plausible has it


class UnknownSiteError(LookupError):
    """No site has the name that an event gives."""


class PastDayError(Exception):
    """The key of the day that the clock shows was destroyed, so no visitor can be named on that day."""


@dataclass(frozen=True)
class Sites:
    """The sites whose pages send events.

    Args:
        spools: the spool of each site, by its domain (Plausible) or the website's id (Umami).
        key_of_day: returns the key that hashes a day's visitors; None if it was destroyed.
        proxy_header: the header in which proxies at the addresses ``proxies`` give the visitor's address.
        with_browser: whether the extra ``web`` is installed, which knows families of browsers.
        origins: of the sites' pages.
    """

    spools: Mapping[str, str]
    key_of_day: Callable[[int], bytes | None]
    proxy_header: str | None = None
    proxies: tuple[str, ...] = ()
    now_us: Callable[[], int] = lambda: time.time_ns() // 1_000
    with_browser: bool = find_spec("ua_parser") is not None
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Load the patterns of browsers, which takes a second, before senders wait."""
        agent_of("", with_browser=self.with_browser)

    def event_of(self, path: str, body: bytes, headers: Headers, address: str) -> tuple[list[str], bytes]:
        """Return the spools of an event, and the event as a line; None for an event that is not stored.

        Bots are not stored, nor any field that identifies a visitor.
        Args: path, one of ``PATHS``; address, of the connection.
        Raises: ValueError, one line, for a body that is no event; UnknownSiteError; PastDayError.
        """
        try:
            sent = _sent(path, body)
        except (ValueError, msgspec.MsgspecError) as refusal:
            raise ValueError(f"the body is no event of a page: {refusal}") from None
        named = (one.strip().lower() for one in sent.site.split(","))
        spools = list(dict.fromkeys(self._by_name[site] for site in named if site in self._by_name))
        if not spools:
            raise UnknownSiteError(f"no site is named {sent.site[:80]!r}; add it to ingest.sites")
        who, agent = self._address(headers, address), headers.get("user-agent", "")
        known = agent_of(agent, with_browser=self.with_browser)
        if known.bot or not sent.name:
            return spools, b""
        now_us = self.now_us()
        own = host_in(sent.url) or sent.host
        if own is not None and not f".{own}".endswith(self._hosts):
            raise UnknownSiteError(
                f"no site has the host {own[:80]!r}; add it to ingest.sites or ingest.origins"
            )
        page = path_of(sent.url)
        if page is not None and sent.hash_is_page and (part := sent.url.partition("#")[2]):
            page += f"#{part.partition('?')[0]}"
        key = self.key_of_day(now_us // DAY_US)
        if key is None:
            raise PastDayError("the listener's clock shows a day that is over; correct it")
        event = {
            "time": now_us,
            "visitor": visitor_of(key, who, agent),
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
        return spools, json.dumps(kept, separators=(",", ":")).encode() + b"\n"

    @cached_property
    def _by_name(self) -> dict[str, str]:
        return {site.lower(): spool for site, spool in self.spools.items()}

    @cached_property
    def _hosts(self) -> tuple[str, ...]:
        """The ends of the hosts of pages, each with a dot before it: subdomains belong to a site."""
        hosts = (host_of(url) for url in (*(f"https://{site}" for site in self.spools), *self.origins))
        return tuple(f".{host}" for host in hosts if host is not None)

    def _address(self, headers: Headers, address: str) -> str:
        """Return the visitor's address: of the connection, or the last one that is no proxy's.

        Raises: ValueError if a named proxy does not say it.
        """
        if self.proxy_header is None or _plain(address) not in self.proxies:
            return address
        # A proxy may add a line of its own behind the one that the visitor sent: all lines are one list.
        said = ",".join(headers.getlist(self.proxy_header)).split(",")
        for one in filter(None, map(str.strip, reversed(said))):
            found = _plain(one)
            if found is None:
                break  # what is before it may be the visitor's own words
            if found not in self.proxies:
                return found
        raise ValueError(f"the proxy sent no address in {self.proxy_header}; let it set this header")


def _plain(address: str) -> str | None:
    """Return an address in its shortest form, without a port, which changes with each connection, or None.

    >>> [_plain(address) for address in ("192.0.2.1:80", "[2001:DB8::1]:80", "::ffff:192.0.2.1", "unix:")]
    ['192.0.2.1', '2001:db8::1', '192.0.2.1', None]
    """
    try:
        found = ipaddress.ip_address(without_port(address.strip('"').encode()).decode())
    except ValueError:
        return None
    return str((found.version == 6 and found.ipv4_mapped) or found)


class _Sent(NamedTuple):
    """The fields that a page's script has sent.

    Args: name, empty if it is no event; host, of a page whose URL has none; hash_is_page, whether the text
        behind ``#`` is a part of the path, as where a page's script changes what it shows.
    """

    name: str
    url: str
    site: str
    referrer: str
    properties: object
    host: str | None = None
    hash_is_page: bool = False


def _sent(path: str, body: bytes) -> _Sent:
    """Read the fields that a page's script has sent. Raises: ValueError; msgspec.MsgspecError."""
    sent = msgspec.convert(value_of(body), dict[str, Any])
    if path == "/api/event":  # programs write the names in words
        name, url, site, referrer, properties = (
            sent.get(short, sent.get(word))
            for short, word in (
                ("n", "name"),
                ("u", "url"),
                ("d", "domain"),
                ("r", "referrer"),
                ("p", "props"),
            )
        )
        if not name:
            raise ValueError("it has no name; send n or name, for example pageview")
        of_hash = sent.get("h") in (1, True)
        name = "" if name == _ENGAGEMENT else _text(name)
        return _Sent(name, _text(url), _text(site), _text(referrer), properties, None, of_hash)
    one = msgspec.convert(sent.get("payload"), dict[str, Any])
    name = _text(one.get("name")) or _VIEW
    # ``identify`` says who the visitor is.
    name = name if sent.get("type") == "event" else ""
    url, site, referrer = (_text(one.get(key)) for key in ("url", "website", "referrer"))
    return _Sent(name, url, site, referrer, one.get("data"), host_name(_text(one.get("hostname"))))


def _text(value: object) -> str:
    """Return a text; empty for null. Raises: msgspec.ValidationError for anything else."""
    return msgspec.convert("" if value is None else value, str)


def _properties(given: object) -> Iterator[tuple[str, str | int | float | bool]]:
    """Yield the properties of an event that are texts, numbers or truth values."""
    if isinstance(given, str):  # as older scripts of Plausible send them
        with suppress(msgspec.MsgspecError):
            given = msgspec.json.decode(given)
    for name, value in list(given.items())[:_MOST_PROPERTIES] if isinstance(given, dict) else ():
        if isinstance(value, str | int | float):
            yield str(name), value
