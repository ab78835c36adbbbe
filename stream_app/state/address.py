"""Takes the address of Redis apart: one server, a primary that Sentinels name, or a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

FORMS = (
    "redis://host:port/0, rediss://..., unix://..., redis+sentinel://host:port,host:port/name, "
    "redis+cluster://host:port,host:port"
)
_PORTS = {"sentinel": 26379, "cluster": 6379}
_OF_SENTINELS = {"sentinel_username", "sentinel_password"}  # options for the Sentinels, not for Redis


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis is, and who logs in there.

    Args:
        kind: the kind of address: one server, the Sentinels of a primary, or nodes of a cluster.
        hosts: the Sentinels or the nodes, each ``host:port``; none for one server.
        service: the name by which the Sentinels know the primary.
    """

    kind: Literal["server", "sentinel", "cluster"]
    url: str
    hosts: tuple[str, ...] = ()
    service: str = ""

    def of_server(self, host: str) -> str:
        """Return the URL of one server at ``host:port``, as redis-py reads it."""
        parts = urlsplit(self.url)
        database = parts.path.strip("/").removeprefix(self.service).strip("/") or "0"
        options = [(name, value) for name, value in parse_qsl(parts.query) if name not in _OF_SENTINELS]
        login, at, _ = parts.netloc.rpartition("@")
        return f"{self._scheme}://{login}{at}{host}/{database}?{urlencode(options)}"

    def of_sentinel(self, host: str) -> str:
        """Return the URL of a Sentinel: with its own user, and with the certificates of Redis."""
        options = dict(parse_qsl(urlsplit(self.url).query))
        user, password = (options.pop(name, "") for name in ("sentinel_username", "sentinel_password"))
        login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if password else ""
        return f"{self._scheme}://{login}{host}?{urlencode(options)}"

    @property
    def _scheme(self) -> str:
        return urlsplit(self.url).scheme.partition("+")[0]


def redis_address(url: str) -> RedisAddress:
    """Return a URL taken apart. Raises: ValueError, whose text omits the URL, unless it has one of ``FORMS``.

    >>> redis_address("redis+sentinel://worker:pw@a:1,b/main").of_server("c:6379")
    'redis://worker:pw@c:6379/0?'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"must be {FORMS}") from None
    base, _, kind = parts.scheme.partition("+")
    if base not in ("redis", "rediss") or kind not in ("", *_PORTS):
        if parts.scheme == "unix" and parts.path:
            return RedisAddress("server", url)
        raise ValueError(f"must be {FORMS}")
    if not kind:
        _port(url)
        return RedisAddress("server", url)
    hosts = tuple(_host(host, _PORTS[kind]) for host in parts.netloc.rpartition("@")[2].split(","))
    service, _, database = parts.path.strip("/").partition("/")
    if kind == "cluster":
        if service not in ("", "0") or database:
            raise ValueError("names a database; a cluster has database 0 only, leave it out")
        return RedisAddress("cluster", url, hosts)
    if not service or not (database or "0").isdecimal():
        raise ValueError(
            f"names no primary; write the name that the Sentinels know: {base}+sentinel://.../name"
        )
    return RedisAddress("sentinel", url, hosts, service)


def with_certificates(url: str, ca: Path | None, certificate: Path | None, key: Path | None) -> str:
    """Return a URL that names the files of TLS, too. Raises: ValueError for a connection without TLS."""
    if not url.startswith("rediss"):
        raise ValueError("connects without TLS; write rediss:// or leave redis.tls out")
    named = {"ssl_ca_certs": ca, "ssl_certfile": certificate, "ssl_keyfile": key}
    options = urlencode({name: str(file) for name, file in named.items() if file is not None})
    return f"{url}{'&' if urlsplit(url).query else '?'}{options}"


def _host(text: str, usual_port: int) -> str:
    return text if _port(f"redis://{text}") is not None else f"{text}:{usual_port}"


def _port(url: str) -> int | None:
    """Return the port of a URL, if it names one. Raises: ValueError if it names no host, or a wrong port."""
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0:
            return parts.port
    except ValueError:  # a port that is no number, or brackets around something that is not an address
        pass
    raise ValueError(f"must be {FORMS}")
