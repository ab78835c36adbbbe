"""Reads one request to a web site: the page, the referrer, the device, and who visited, for one day.

A log of a web server and the snippets that pages send are read by the same rules. Each field depends on the
request alone. Agents, addresses and URLs come from strangers, so nothing here may take long or fail.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

TIME, VISITOR = "time", "visitor"
FIELDS = (
    *(TIME, VISITOR, "page", "path", "uri", "method", "status", "status_class", "bytes", "host"),
    *("referrer", "device", "browser", "bot"),
)
# Of an event that a page's script has sent; properties are below ``props``.
OF_SCRIPTS = (TIME, VISITOR, "name", "page", "path", "host", "referrer", "device", "browser", "props")
DAY_US = 86_400_000_000
VISITOR_BYTES = 12  # 96 bits: among a billion visitors of a day, two get one name with probability 1e-11
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # addresses of IPv4 behind a translator (RFC 6052)
_SITE_BITS = 64  # of an address of IPv6: what one household or phone has; the rest changes by itself

# The host of a URL, behind a name and a password, which belong to nobody else.
_URL = re.compile(
    r"\s*(?:https?|android-app)://(?:[^/?#\s]*@)?(\[[0-9a-f:.]+\]|[^/:?#@\s\"\\\[\]]+)", re.IGNORECASE
)
_LONGEST_HOST = 253
# Without brackets a port is what follows IPv4, is a ninth group, or has five digits, as no group has.
_WITH_PORT = re.compile(
    rb"\[([^\]]*)\](?::\d+)?|"
    rb"((?:[\da-f:]*:)?\d+\.[\d.]+|(?:[\da-f]{1,4}:){7}[\da-f]{1,4}|[\da-f:]+(?=:\d{5}\Z)):\d+",
    re.IGNORECASE,
)
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_FILE = re.compile(
    r"\.(?:css|m?js|map|json|xml|rss|atom|txt|ico|cur|a?png|jpe?g|jfif|jxl|gif|svgz?|webp|avif|hei[cf]|bmp|tiff?|"
    r"woff2?|tt[fc]|otf|eot|mp[34]|m4[av]|m3u8|mov|avi|mkv|webm|vtt|og[gav]|opus|flac|wav|wasm|"
    r"zip|gz|tgz|br|xz|bz2|tar|7z|dmg|exe|webmanifest)$",
    re.IGNORECASE,
)
# People's browsers call themselves Mozilla or Opera, and Facebook's app FBAN; programs have their own names,
# or one of these words.
_READ_OF_AGENT = 512  # characters: more than any browser's; a stranger's longer text would take long
_BROWSER = re.compile(r"Mozilla/|Opera/|\[FBAN/")
_BOT = re.compile(
    r"(?<!cu)bot|crawl|spider|slurp|(?<!cam)scan(?!pal)|monitor|preview|fetch|headless|lighthouse|pingdom|"
    r"facebookexternal|python|curl|wget|phantomjs|playwright|selenium|zgrab|nessus|https?:|libwww|linkcheck|"
    r"@(?:[\w-]+\.)+[a-z]{2}|synthetic|statuscake|catchpoint|gomez|ptst|observatory|-user/|-google|"
    r"google[ -](?:favicon|page|search|safety)|compatible;(?! ?(?:msie|konqueror|u;|win|wow))",
    re.IGNORECASE,
)
_DEVICES = (
    ("tv", re.compile(r"smart-?\s?tv|appletv|googletv|bravia|hbbtv|roku|web0s|crkey|\baft[a-z]", re.I)),
    (
        "tablet",
        re.compile(
            r"ipad|\btablet\b(?! pc)|kindle|silk/(?!.*mobile)|^(?!.*(?:mobi|opera mini)).*android", re.I
        ),
    ),
    ("mobile", re.compile(r"mobi|iphone|ipod|android|opera mini|blackberry", re.I)),
    ("desktop", re.compile(r"windows nt|macintosh|x11|cros|linux", re.I)),
)


class Agent(NamedTuple):
    """A program by its name: its class of devices, its family of browsers, and if it is a bot."""

    device: str | None
    browser: str | None
    bot: bool


class Request(NamedTuple):
    """A request line: the method, the address as sent, and the path in it."""

    method: str | None
    uri: str | None
    path: str | None


def agent_of(agent: str, *, with_browser: bool = True) -> Agent:
    """Return the facts in the name of a program. Args: with_browser, else the browser is None.

    Only the first 512 characters are read.
    Cost: 20 microseconds for a browser's name, at most a millisecond; callers remember the answer.

    >>> agent_of("Mozilla/5.0 (iPad; CPU OS 17_4 like Mac OS X) Safari/605.1", with_browser=False)
    Agent(device='tablet', browser=None, bot=False)
    >>> agent_of("curl/8.5.0", with_browser=False).bot, agent_of("", with_browser=False).bot
    (True, True)
    """
    return _facts(agent[:_READ_OF_AGENT], with_browser)


@lru_cache(1 << 10)
def _facts(agent: str, with_browser: bool) -> Agent:
    bot = _BROWSER.match(agent) is None or _BOT.search(agent) is not None
    device = next((name for name, pattern in _DEVICES if pattern.search(agent)), None)
    return Agent(device, _browser(agent) if with_browser else None, bot)


def _browser(agent: str) -> str | None:
    from ua_parser import parse_user_agent  # of the extra ``web``

    found = parse_user_agent(agent)
    return None if found is None else str(found.family)


def request_of(line: str) -> Request:
    """Return the parts of a request line such as ``GET /a?b HTTP/1.1``; empty for any other text.

    >>> request_of("GET /a?b=1 HTTP/1.1")
    Request(method='GET', uri='/a?b=1', path='/a')
    >>> request_of("-").path, request_of("GET http://example.org HTTP/1.1").path
    (None, '/')
    """
    method, _, rest = line.partition(" ")
    uri, _, version = rest.rpartition(" ")
    if not version.startswith("HTTP/") or not uri or not method.replace("-", "").isalpha():
        return Request(None, None, None)
    return Request(method, uri, path_of(uri))


def path_of(uri: str) -> str | None:
    """Return the path of an address, without host, query and fragment; None if it has none.

    >>> path_of("https://example.org/a/?x#y"), path_of("*")
    ('/a/', None)
    """
    if not uri.startswith("/"):
        if not (host := _ABSOLUTE.match(uri)):
            return None
        uri = uri[host.end() :] or "/"
        uri = uri if uri.startswith("/") else f"/{uri}"
    return uri.partition("?")[0].partition("#")[0]


def page_of(request: Request, status: int | None) -> str | None:
    """Return the path if a person was shown a page: of an answered GET that asks for no picture or script.

    >>> [page_of(request_of(f"GET {uri} HTTP/2.0"), 200) for uri in ("/a?b", "/a.css", "/a.html")]
    ['/a', None, '/a.html']
    """
    if request.method != "GET" or request.path is None or _FILE.search(request.path):
        return None
    return request.path if status is not None and (200 <= status < 300 or status == 304) else None


def host_name(written: str) -> str | None:
    """Return the name of a host: in lower case, without its port and a dot at its end; None for none.

    >>> host_name("Shop.example.:8443"), host_name("[2001:db8::1]:443"), host_name("b\u00fccher.example")
    ('shop.example', '[2001:db8::1]', 'xn--bcher-kva.example')
    """
    name = written.strip().lower()
    name = name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0].removesuffix(".")
    if not name.isascii() and _may_be_host(name):
        with suppress(UnicodeError):
            name = name.encode("idna").decode()
    return name or None


def _may_be_host(name: str) -> bool:
    """Return whether a name is short, also where IDNA writes out characters, up to 18 for one."""
    return len(name) <= _LONGEST_HOST and len(unicodedata.normalize("NFKC", name)) <= _LONGEST_HOST


def host_in(url: str) -> str | None:
    """Return the name of the host in a URL, or None."""
    found = _URL.match(url)
    return None if found is None else host_name(found[1])


def host_of(url: str, own: str | None = None) -> str | None:
    """Return the host of a referrer, without ``www.``; None for none, and for the site itself.

    Args: own, the host that was asked, if it is known.

    >>> host_of("https://www.Example.org/a"), host_of("-"), host_of("http://a.org/x", own="www.a.org:8080")
    ('example.org', None, None)
    """
    host, asked = (
        None if name is None else name.removeprefix("www.") for name in (host_in(url), host_name(own or ""))
    )
    return None if host == asked else host


def status_class(status: int | None) -> str | None:
    """Return the class of a status: ``2xx`` for 204.

    >>> status_class(204), status_class(None)
    ('2xx', None)
    """
    return None if status is None else f"{status // 100}xx"


def visitor_of(key: bytes, address: str, agent: str) -> str:
    """Return the name of a visitor for one day. Args: as of ``visitors_by``.

    >>> one, other = (visitor_of(bytes(32), address, "x") for address in ("2001:db8::1", "2001:db8::2"))
    >>> len(one), one == other, one == visitor_of(bytes(32), "192.0.2.1", "x")
    (24, True, False)
    """
    return visitors_by(key)(address.encode(), agent.encode())


def visitors_by(key: bytes) -> Callable[[bytes, bytes], str]:
    """Return a function from addresses and agents to visitors' names: keyed hashes, for one day.

    Guarantee: without the key a name reveals neither, not even to somebody who tries all addresses.
        Addresses of IPv6 with the same first 64 bits are one.
    Args: key, of the day, of 32 to 64 bytes. Cost: a microsecond per name.
    """

    keyed = hashlib.blake2b(digest_size=VISITOR_BYTES, key=key)

    def name(address: bytes, agent: bytes) -> str:
        hashed = keyed.copy()
        hashed.update(b"%s %s" % (_household_of(address) if b":" in address else address, agent))
        return hashed.hexdigest()

    return name


def without_port(address: bytes) -> bytes:
    """Return an address without brackets and without the port, which differs between connections.

    >>> without_port(b"192.0.2.1:5000"), without_port(b"[2001:db8::1]:5000"), without_port(b"2001:db8::1")
    (b'192.0.2.1', b'2001:db8::1', b'2001:db8::1')
    """
    found = _WITH_PORT.fullmatch(address)
    return address if found is None else found[1] or found[2]


def _household_of(address: bytes) -> bytes:
    """Return the part of an IPv6 address that names one household; any other text stays, without a port."""
    address = without_port(address)
    try:
        whole = ipaddress.IPv6Address(address.decode().partition("%")[0])
    except ValueError:
        return address
    if whole.ipv4_mapped or whole in _TRANSLATED:
        return str(ipaddress.IPv4Address(int(whole) & 0xFFFF_FFFF)).encode()
    return b"%x" % (int(whole) >> _SITE_BITS)
