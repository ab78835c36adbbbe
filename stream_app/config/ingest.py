"""The section ``ingest``: where events are received over HTTP, from whom, and how long spools keep them."""

from __future__ import annotations

from pathlib import Path

from stream_app.config import values
from stream_app.config.access import (
    is_loopback,
    read_hosts,
    read_limits,
    read_operator_port,
    read_origins,
    read_tls,
)
from stream_app.config.document import Section
from stream_app.config.settings import DAY_US, IngestSettings, OperatorSettings
from stream_app.config.storage import read_size

EVERYBODY = "everybody who reaches it may write"
LARGEST_BODY_BYTES = 16 << 20
_MOST_KEYS = values.whole(1, 10_000_000)


def read_ingest(section: Section, directory: Path, operator: OperatorSettings | None) -> IngestSettings:
    """Read the section ``ingest``. An address beyond loopback needs keys or ``accept``.

    Args: operator, as ``read_operator_port``.
    """
    keys, tls = section.take("keys", values.text, None), section.section("tls")
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
    )
    accept = section.take("accept", values.one_of(EVERYBODY), None)
    section.finish()
    if not (settings.keys or accept or is_loopback(settings.host)):
        raise section.error(
            "host",
            f"{settings.host} is not loopback and no key is required; name a keys file, or write "
            f'accept: "{EVERYBODY}"',
        )
    return settings


def _body(value: object) -> int:
    size = read_size(value)
    if size > LARGEST_BODY_BYTES:
        raise ValueError("must be at most 16 MB; send several requests")
    return size
