"""Where the service keeps its data: the sections ``redis``, ``ledger`` and ``dead_letters``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from stream_app.config import values
from stream_app.config.document import Section, from_environment
from stream_app.config.kafka import cluster_name, topic_name
from stream_app.config.settings import DAY_US, DeadLetterSettings, LedgerSettings, RedisSettings
from stream_app.ports import ACCEPT_LOSS, ACCEPT_MANAGED
from stream_app.state.address import FORMS, redis_address, with_certificates

REDIS_URL = "STREAM_APP_REDIS_URL"
REDIS_API_URL = "STREAM_APP_REDIS_API_URL"
REDIS_ALERTS_URL = "STREAM_APP_REDIS_ALERTS_URL"

_EMBEDDED = "embedded:"  # before the directory of a server that the service starts itself
_CLOCK_SKEW = values.duration_between("10ms", "5m", "beyond it a wrong clock would close bins unnoticed")
_MOST_REPLICAS = 5
_LEAST_KEEP_US = 60_000_000
_LEAST_BYTES = 1_000_000
_SIZE = re.compile(r"(\d{1,6})(kB|MB|GB)", flags=re.ASCII)
_BYTES = {"kB": 10**3, "MB": 10**6, "GB": 10**9}


def read_redis(
    section: Section, directory: Path, state_dir: Path, environment: Mapping[str, str]
) -> RedisSettings:
    """Read the store's addresses, one for each process; environment variables override the section.

    Args: directory, of the configuration; state_dir, where an embedded server is if no place is written.
    """

    def address(key: str, name: str) -> str | None:
        written = section.take(key, _redis_url, None)
        return from_environment(environment, name, _redis_url) or written

    url = address("url", REDIS_URL) or f"{_EMBEDDED}{_place_of_embedded(directory, state_dir)}"
    api_url, alerts_url = address("api_url", REDIS_API_URL), address("alerts_url", REDIS_ALERTS_URL)
    tls = section.section("tls")
    certified = _read_certificates(tls, directory)
    replicas = section.take("replicas", values.whole(0, _MOST_REPLICAS), 0)
    accept = section.take("accept", values.one_of(ACCEPT_LOSS, ACCEPT_MANAGED), None)
    skew_us = section.take("largest_clock_skew", _CLOCK_SKEW, 5_000_000)
    section.finish()
    if not url.startswith(_EMBEDDED):
        worker, api, alerts = map(certified, (url, api_url or url, alerts_url or url))
        return RedisSettings(worker, api, None, accept, alerts, skew_us, replicas)
    for key, other in (("api_url", api_url), ("alerts_url", alerts_url)):
        if other is not None:
            raise section.error(key, "belongs to a server elsewhere; take it out or change url")
    if tls.written:
        raise tls.error("ca", "has no use: an embedded server has no TLS; leave redis.tls out")
    if replicas:
        raise section.error("replicas", "has no use: an embedded server has none; leave it out")
    embedded = (directory / url.removeprefix(_EMBEDDED)).absolute()
    return RedisSettings(None, None, embedded, accept, largest_clock_skew_us=skew_us)


def _place_of_embedded(directory: Path, state_dir: Path) -> Path:
    """Return where an embedded server is if the configuration does not say: in ``state.dir``.

    Earlier builds had it in ./state for every ``state.dir``. A service that began there goes on there.
    """
    before, now = directory / "state" / "redis", state_dir / "redis"
    return before if before.exists() and state_dir.exists() and not now.exists() else now


def _read_certificates(section: Section, directory: Path) -> Callable[[str], str]:
    """Read the files of TLS; return the function that adds them to a URL."""
    ca, certificate, key = (section.path_of(one, directory) for one in ("ca", "certificate", "key"))
    section.finish()
    if (certificate is None) != (key is None):
        raise section.error("certificate", "and redis.tls.key belong together; write both or neither")

    def certified(url: str) -> str:
        if not section.written:
            return url
        try:
            return with_certificates(url, ca, certificate, key)
        except ValueError as refusal:
            raise section.error("ca", f"has no use: a URL {refusal}") from None

    return certified


def _redis_url(value: object) -> str:
    url = values.text(value)
    if url.startswith(_EMBEDDED) and len(url) > len(_EMBEDDED):
        return url
    wanted = f"must be {FORMS} or embedded:./directory"
    if re.search(r"[\s\x00-\x20\x7f]", url):
        raise ValueError(wanted)
    try:
        address = redis_address(url)
    except ValueError as refusal:
        raise ValueError(wanted if FORMS in str(refusal) else str(refusal)) from None
    has_database = address.kind == "server" and not url.startswith("unix:")
    if has_database and not re.fullmatch(r"/?|/[0-9]{1,6}", urlsplit(url).path):
        raise ValueError(f"{wanted}; the database is a number")
    return url


def check_ledgers_node(section: Section, redis: RedisSettings) -> None:
    """Refuse a cluster that may lose a source's ledger alone. Args: section, ``redis``."""
    if redis.url is not None and redis_address(redis.url).kind == "cluster" and not redis.replicas:
        raise section.error(
            "replicas",
            "0: a cluster may lose the node of a source's ledger alone, and nobody would notice; write "
            "replicas: 1 or more, or the key ledger",
        )


def read_ledger(
    section: Section, directory: Path, lost_together: tuple[Path | None, ...]
) -> LedgerSettings | None:
    """Read where a copy of the ledger is kept; None if the section is not written.

    Args: lost_together, directories of the original ledger; the copy would be lost with them.
    """
    copy = section.path_of("file", directory)
    topic = section.take("topic", topic_name, None)
    cluster = section.take("cluster", cluster_name, "")
    section.finish()
    if not section.written:
        return None
    if (copy is None) == (topic is None):
        raise section.error("file", "or ledger.topic must be written, and not both; write one of them")
    if copy is None:
        return LedgerSettings(None, topic, cluster)
    section.refuse("cluster", "is given beside file; keep one")
    for lost in filter(None, lost_together):
        if copy.resolve().is_relative_to(lost.resolve()):
            raise section.error(
                "file", f"{copy} is inside {lost}, and would be lost with it; name another disk"
            )
    return LedgerSettings(copy, None)


READ_LETTERS = "whoever may read the topic reads refused records"


def read_dead_letters(section: Section) -> DeadLetterSettings:
    """Read how refused records are kept, and for how long. Their content in a topic needs ``accept``."""
    settings = DeadLetterSettings(
        keep_us=section.take("keep", _keep_us, 7 * DAY_US),
        most_bytes=section.take("max_size", _letters_size, 100 * 10**6),
        content=section.take("content", values.flag, False),
        topic=section.take("topic", topic_name, None),
        cluster=section.take("cluster", cluster_name, ""),
    )
    accept = section.take("accept", values.one_of(READ_LETTERS), None)
    if settings.topic is None:
        for key in ("cluster", "accept"):
            section.refuse(
                key, "is of a topic, and dead_letters.topic is missing; write it, or take this out"
            )
    elif settings.content and accept is None:
        said = (
            f'would put whole records into {settings.topic}; leave it out, or write accept: "{READ_LETTERS}"'
        )
        raise section.error("content", said)
    section.finish()
    return settings


def _keep_us(value: object) -> int:
    keep_us = values.positive_duration_us(value)
    if keep_us < _LEAST_KEEP_US:
        raise ValueError("is too short; write at least 1m, or content: false")
    return keep_us


def read_size(value: object) -> int:
    """Read a size as bytes.

    >>> read_size("100MB")
    100000000
    """
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("must be a size with its unit, for example 100MB")
    return int(found[1]) * _BYTES[found[2]]


def _letters_size(value: object) -> int:
    size = read_size(value)
    if size < _LEAST_BYTES:
        raise ValueError("must be at least 1MB; with content: false letters are small")
    return size
