"""The section ``redis``: the store's address, and the user of each process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from stream_app.config import values
from stream_app.config.document import ConfigError, Section
from stream_app.config.settings import EMBEDDED, RedisSettings
from stream_app.ports import ACCEPT_LOSS

REDIS_URL = "STREAM_APP_REDIS_URL"
REDIS_API_URL = "STREAM_APP_REDIS_API_URL"
REDIS_ALERTS_URL = "STREAM_APP_REDIS_ALERTS_URL"

_CLOCK_SKEW = values.duration_between("10ms", "5m", "beyond it a wrong clock would close bins unnoticed")


def read_redis(section: Section, path: Path, environment: Mapping[str, str]) -> RedisSettings:
    """Read the section ``redis``; environment variables override it. Raises: ConfigError."""
    written = section.take("url", _redis_url, f"{EMBEDDED}./state/redis")
    written_api = section.take("api_url", _redis_url, None)
    written_alerts = section.take("alerts_url", _redis_url, None)
    accept = section.take("accept", values.one_of(ACCEPT_LOSS), None)
    skew_us = section.take("largest_clock_skew", _CLOCK_SKEW, 5_000_000)
    section.finish()
    url = _from_environment(environment, REDIS_URL) or written
    api_url = _from_environment(environment, REDIS_API_URL) or written_api
    alerts_url = _from_environment(environment, REDIS_ALERTS_URL) or written_alerts
    if not url.startswith(EMBEDDED):
        return RedisSettings(url, api_url or url, None, accept, alerts_url or url, skew_us)
    for key, other in (("api_url", api_url), ("alerts_url", alerts_url)):
        if other is not None:
            raise section.error(key, "belongs to a server elsewhere; take it out or change url")
    directory = (path.parent / url.removeprefix(EMBEDDED)).absolute()
    return RedisSettings(None, None, directory, accept, largest_clock_skew_us=skew_us)


def _redis_url(value: object) -> str:
    url = values.text(value)
    if url.startswith(EMBEDDED) and len(url) > len(EMBEDDED):
        return url
    if url.startswith("unix://") and not re.search(r"\s", url) and urlsplit(url).path:
        return url
    wanted = "must be redis://host:port/0, rediss://..., unix://... or embedded:./directory"
    try:
        parts = values.url(url, ("redis", "rediss"))
    except ValueError:
        raise ValueError(wanted) from None
    if re.fullmatch(r"/?|/[0-9]{1,6}", parts.path):
        return url
    raise ValueError(f"{wanted}; the database is a number")


def _from_environment(environment: Mapping[str, str], name: str) -> str | None:
    value = environment.get(name)
    if value is None:
        return None
    try:
        return _redis_url(value)
    except ValueError as refusal:
        raise ConfigError(f"environment: {name}: {refusal}") from None  # the value may hold a password
