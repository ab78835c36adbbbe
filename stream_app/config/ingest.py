"""The section ``ingest``: where events are received over HTTP, from whom, and how long spools keep them."""

from __future__ import annotations

from pathlib import Path

from stream_app.config import values
from stream_app.config.access import (
    header_name,
    is_loopback,
    read_addresses,
    read_hosts,
    read_limits,
    read_operator_port,
    read_origins,
    read_tls,
)
from stream_app.config.document import Section
from stream_app.config.settings import DAY_US, IngestSettings, OperatorSettings
from stream_app.config.storage import read_size
from stream_app.receiving.field_map import ARRIVED, FieldMap, steps_of

EVERYBODY = "everybody who reaches it may write"
LARGEST_BODY_BYTES = 16 << 20
_MOST_KEYS = values.whole(1, 10_000_000)


def read_ingest(section: Section, directory: Path, operator: OperatorSettings | None) -> IngestSettings:
    """Read the section ``ingest``. An address beyond loopback needs keys or ``accept``.

    Args: operator, as ``read_operator_port``.
    """
    keys, tls = section.take("keys", values.text, None), section.section("tls")
    proxy = section.section("proxy")
    settings = IngestSettings(
        host=section.take("host", values.text, "127.0.0.1"),
        port=section.take("port", values.port, 8089),
        directory=(directory / section.take("dir", values.text, "./spool")).absolute(),
        keys=None if keys is None else (directory / keys).absolute(),
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
    accept = section.take("accept", values.one_of(EVERYBODY), None)
    section.finish()
    if not (settings.keys or accept or is_loopback(settings.host)):
        raise section.error(
            "host",
            f"{settings.host} is not loopback and no key is required; name a keys file, or write "
            f'accept: "{EVERYBODY}"',
        )
    return settings


def _maps(section: Section) -> dict[str, FieldMap]:
    """Read the paths of the fields of events, by spool. Raises: ConfigError."""
    maps = {}
    for spool in section.names():
        fields = section.section(spool)
        paths = {field: fields.take(field, _path) for field in fields.names()}
        try:
            maps[spool] = FieldMap(paths)
        except ValueError as refusal:
            raise section.error(spool, str(refusal)) from None
    return maps


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
