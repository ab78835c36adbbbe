"""Where the service listens, who may read and who may send: sections ``api``, ``operator``, ``ingest``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from stream_app.config import values
from stream_app.config.document import ConfigError, Section
from stream_app.config.plain_yaml import as_written
from stream_app.config.settings import (
    DAY_US,
    ApiSettings,
    IngestSettings,
    OperatorSettings,
    SourceSettings,
    StreamSettings,
    TlsSettings,
)
from stream_app.config.storage import read_size
from stream_app.core.visits import OF_SCRIPTS, TIME
from stream_app.ports.access import Limits, Scrapes, digest_of
from stream_app.receiving.field_map import ARRIVED, FieldMap, steps_of

OPERATOR_TOKEN = "STREAM_APP_OPERATOR_TOKEN"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,}")  # characters that a header carries unchanged
_NO_TOKEN = "must be at least 16 letters, digits or .-_~+/=, for example from openssl rand -hex 32"
_HOW_MANY = values.whole(1, 100_000)
_HOW_MANY_SERIES = values.whole(1, 10_000_000)
_PATIENCE_US = values.duration_between("1s", "1h")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
ALL_MAY_READ = "everybody who reaches it may read"
# Headers that any client may send, so a proxy cannot use them to name the reader it authenticated.
OF_EVERY_CLIENT = frozenset(
    """
    accept accept-charset accept-encoding accept-language cache-control connection content-length content-type
    cookie date dnt expect forwarded from host if-match if-modified-since if-none-match if-range
    if-unmodified-since keep-alive origin pragma priority range referer sec-fetch-dest sec-fetch-mode
    sec-fetch-site te trailer transfer-encoding upgrade upgrade-insecure-requests user-agent via
    x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto x-real-ip
    """.split()  # noqa: SIM905 (a list of strings would take a screen)
)

ALL_MAY_SEND = "everybody who reaches it may write"
LARGEST_BODY_BYTES = 16 << 20
_MOST_KEYS = values.whole(1, 10_000_000)


def read_api(section: Section, directory: Path, operator: OperatorSettings | None) -> ApiSettings:
    """Read the section ``api``. An address beyond loopback needs keys, a proxy or ``accept``.

    Args: operator, as ``read_operator_port``.
    """
    proxy, tls = section.section("proxy"), section.section("tls")
    settings = ApiSettings(
        host=section.take("host", values.text, "127.0.0.1"),
        port=section.take("port", values.port, 8088),
        keys=section.path_of("keys", directory),
        proxy_header=proxy.take("header", _header) if proxy.written else None,
        proxies=proxy.take("addresses", read_addresses) if proxy.written else (),
        origins=section.take("origins", read_origins, ()),
        requests_per_s=section.take("requests_per_s", values.positive, None),
        tls=read_tls(tls, directory) if tls.written else None,
        hosts=section.take("hosts", read_hosts, frozenset()),
        limits=read_limits(section.section("limits"), followers=True),
        url=section.take("url", _page_url, None),
        timezone=section.take("timezone", values.timezone, "UTC"),
        operator=read_operator_port(section, operator),
        scrapes=_read_scrapes(section.section("metrics")),
    )
    proxy.finish()
    accept = section.take("accept", values.one_of(ALL_MAY_READ), None)
    section.finish()
    asks = settings.keys is not None or settings.proxy_header is not None
    if not (asks or accept or is_loopback(settings.host)):
        raise section.error(
            "host",
            f"{settings.host} is not loopback and no key is required; name a keys file or a proxy, "
            f'or write accept: "{ALL_MAY_READ}"',
        )
    return settings


def read_operator(section: Section, environment: Mapping[str, str]) -> OperatorSettings | None:
    """Read where the operator's metrics are served; None if the section is not written.

    ``check_operator`` checks that there is a token when the endpoint opens, because a process that does not
    serve it need not know the token.
    """
    host = section.take("host", values.text, "127.0.0.1")
    port = section.take("port", values.port, 0)
    token = section.take("token", str, None, as_written)
    otlp = section.take("otlp", _page_url, None)
    if otlp is not None and not (otlp.startswith("https:") or is_loopback(urlsplit(otlp).hostname or "")):
        raise section.error(
            "otlp",
            f"{otlp} is not loopback, and the metrics pushed there are secret; write an address with https://",
        )
    section.finish()
    if not section.written:
        return None
    if not port:
        raise section.error(
            "port", "is missing; say where the operator's figures are served, or take operator out"
        )
    if token is not None and not _TOKEN.fullmatch(token):
        raise section.error("token", _NO_TOKEN)
    if (given := environment.get(OPERATOR_TOKEN)) is not None and not _TOKEN.fullmatch(given):
        raise ConfigError(f"environment: {OPERATOR_TOKEN} {_NO_TOKEN}")
    return OperatorSettings(host, port, given or token, otlp=otlp)


def check_operator(operator: OperatorSettings | None) -> None:
    """Check that only the operator can read the metrics: beyond loopback a token is needed."""
    if operator is None or operator.token_digest is not None:
        return
    if operator.token is None and not is_loopback(operator.host):
        raise ConfigError(
            f"operator.host: {operator.host} is not loopback, and the metrics there are secret; put a token "
            f"into {OPERATOR_TOKEN} (openssl rand -hex 32) and let the scraper send it as its bearer token"
        )


def read_operator_port(section: Section, operator: OperatorSettings | None) -> OperatorSettings | None:
    """Read where a process beside the worker serves its metrics; None: nowhere. It can only check the token.

    Args: operator, where a worker's metrics are served: this process's are at that host, with that token.
    """
    port = section.take("operator_port", values.port, 0)
    if not port:
        return None
    if operator is None:
        raise section.error(
            "operator_port", "needs the section operator, which says who may read the metrics"
        )
    digest = None if operator.token is None else digest_of(f"Bearer {operator.token}")
    return OperatorSettings(operator.host, port, token_digest=digest, otlp=operator.otlp)


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_tls(section: Section, directory: Path) -> TlsSettings:
    settings = TlsSettings(
        certificate=(directory / section.take("certificate", values.text)).absolute(),
        key=(directory / section.take("key", values.text)).absolute(),
    )
    section.finish()
    return settings


def read_limits(section: Section, *, followers: bool) -> Limits:
    """Read limits on connections. Args: followers, whether streams of events can be followed there."""
    usual = Limits()
    limits = Limits(
        connections=section.take("connections", _HOW_MANY, usual.connections),
        connections_per_address=section.take(
            "connections_per_address", _HOW_MANY, usual.connections_per_address
        ),
        followers=section.take("followers", _HOW_MANY, usual.followers) if followers else 0,
        idle_s=section.take("idle", _patience_s, usual.idle_s),
        slow_s=section.take("slow", _patience_s, usual.slow_s),
    )
    section.finish()
    return limits


def _read_scrapes(section: Section) -> Scrapes:
    usual = Scrapes()
    scrapes = Scrapes(
        keys_of=section.take("keys_of", _streams, usual.keys_of),
        most_series=section.take("most_series", _HOW_MANY_SERIES, usual.most_series),
    )
    section.finish()
    return scrapes


def _streams(value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise ValueError("must be a list of streams, for example [clicks]")
    return frozenset(map(values.name, value))


def _patience_s(value: object) -> float:
    return _PATIENCE_US(value) / 1e6


def read_hosts(value: object) -> frozenset[str]:
    names = value if isinstance(value, list) else []
    if names and all(isinstance(name, str) and _HOST.fullmatch(name) for name in names):
        return frozenset(name.lower() for name in names)
    raise ValueError("must be a list of names without ports, for example [counts.example.org]")


def read_addresses(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of addresses, for example [10.0.0.7]")
    try:
        return tuple(str(ipaddress.ip_address(address)) for address in value)
    except ValueError:
        raise ValueError("must be a list of addresses, for example [10.0.0.7]; names are not") from None


def header_name(value: object) -> str:
    name = values.text(value)
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        raise ValueError("is not a header name; write one such as X-Forwarded-User")
    return name


def _header(value: object) -> str:
    name = header_name(value)
    if name.lower() in OF_EVERY_CLIENT:
        raise ValueError(
            "is sent by every client, so it does not say whom the proxy let in; name a header that the proxy "
            "sets, such as X-Forwarded-User"
        )
    return name


def _page_url(value: object) -> str:
    parts = values.url(value, ("http", "https"))
    if parts.query or parts.fragment or parts.username or parts.password:
        raise ValueError("must end with a host or a path, for example https://counts.example.org")
    return str(value).rstrip("/")


def read_origins(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(map(_is_origin, value)):
        raise ValueError("must be a list of origins, for example [https://charts.example.org], without paths")
    return tuple(map(_as_browsers_write, value))


def _as_browsers_write(origin: str) -> str:
    """Return an origin in lower case, without a slash at its end and the port that its scheme has anyway."""
    origin = origin.rstrip("/").lower()
    return origin.removesuffix(":443" if origin.startswith("https:") else ":80")


def _is_origin(value: object) -> bool:
    try:
        parts = values.url(value, ("http", "https"))
    except ValueError:
        return False
    rest = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    return not rest and "*" not in parts.netloc and not str(value).endswith(("?", "#", "//"))


def read_ingest(section: Section, directory: Path, operator: OperatorSettings | None) -> IngestSettings:
    """Read the section ``ingest``. An address beyond loopback needs keys or ``accept``.

    Args: operator, as ``read_operator_port``.
    """
    proxy, tls = section.section("proxy"), section.section("tls")
    settings = IngestSettings(
        host=section.take("host", values.text, "127.0.0.1"),
        port=section.take("port", values.port, 8089),
        directory=(directory / section.take("dir", values.text, "./spool")).absolute(),
        keys=section.path_of("keys", directory),
        origins=section.take("origins", read_origins, ()),
        hosts=section.take("hosts", read_hosts, frozenset()),
        most_body_bytes=section.take("max_body", _body, 10**6),
        most_bytes=section.take("max_size", read_size, 10 * 10**9),
        remember_us=section.take("remember", values.positive_duration_us, DAY_US),
        most_keys=section.take("most_keys", _MOST_KEYS, 1_000_000),
        limits=read_limits(section.section("limits"), followers=False),
        tls=read_tls(tls, directory) if tls.written else None,
        operator=read_operator_port(section, operator),
        maps=_maps(section.section("map")),
        sites=_sites(section.section("sites")),
        proxy_header=proxy.take("header", header_name) if proxy.written else None,
        proxies=proxy.take("addresses", read_addresses) if proxy.written else (),
    )
    proxy.finish()
    accept = section.take("accept", values.one_of(ALL_MAY_SEND), None)
    section.finish()
    if not (settings.keys or accept or is_loopback(settings.host)):
        raise section.error(
            "host",
            f"{settings.host} is not loopback and no key is required; name a keys file, or write "
            f'accept: "{ALL_MAY_SEND}"',
        )
    return settings


def _maps(section: Section) -> dict[str, FieldMap]:
    maps = {}
    for spool in section.names():
        fields = section.section(spool)
        paths = {field: fields.take(field, _path) for field in fields.names()}
        try:
            maps[spool] = FieldMap(paths)
        except ValueError as refusal:
            raise section.error(spool, str(refusal)) from None
    return maps


def field_warnings(ingest: IngestSettings, stream: StreamSettings) -> Iterator[str]:
    """Yield a line for each field that a stream reads and no event of its spool has as it is read.

    A start refuses none: lines of a pipe (``stream-app ingest --stdin``) may have all fields.
    """
    source, time = stream.source, stream.declared.time
    if not isinstance(source, SourceSettings) or source.keep_us is None:
        return
    spool = source.file.name
    field_map, of_site = ingest.maps.get(spool), spool in ingest.sites.values()
    if of_site == (field_map is not None):
        return
    if field_map is None:
        maker, units = "a page's script", dict.fromkeys(OF_SCRIPTS, "") | {TIME: "us"}
    else:
        arrived = {field: "ms" if path == ARRIVED else "" for field, path in field_map.paths.items()}
        maker, units = f"ingest.map.{spool}", arrived
    for field in dict.fromkeys((time.field, *stream.declared.cell_fields)):
        if field not in units and not (of_site and field.startswith("props.")):
            yield f"streams.{stream.name}: {maker} makes no field {field}; it makes {', '.join(units)}"
    if (unit := units.get(time.field) or time.format) != time.format:
        yield f"streams.{stream.name}.time.format: {maker} writes {time.field} in {unit}; write {unit}"


def _path(value: object) -> str:
    path = values.text(value)
    if path != ARRIVED:
        steps_of(path)
    return path


def _sites(section: Section) -> dict[str, str]:
    return {site: section.take(site, values.name) for site in section.names()}


def _body(value: object) -> int:
    size = read_size(value)
    if size > LARGEST_BODY_BYTES:
        raise ValueError("must be at most 16 MB; send several requests")
    return size
