"""The section ``dead_letters``: how refused records are kept, and for how long."""

from __future__ import annotations

import re

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.settings import DAY_US, DeadLetterSettings

LEAST_BYTES = 1_000_000
_LEAST_KEEP_US = 60_000_000
_SIZE = re.compile(r"(\d{1,6})(kB|MB|GB)", flags=re.ASCII)
_BYTES = {"kB": 10**3, "MB": 10**6, "GB": 10**9}


def read_dead_letters(section: Section) -> DeadLetterSettings:
    """Read the section; all of it may be left out."""
    settings = DeadLetterSettings(
        keep_us=section.take("keep", _keep_us, 7 * DAY_US),
        most_bytes=section.take("max_size", _size, 100 * 10**6),
        content=section.take("content", values.flag, False),
    )
    section.finish()
    return settings


def _keep_us(value: object) -> int:
    keep_us = values.positive_duration_us(value)
    if keep_us < _LEAST_KEEP_US:
        raise ValueError("is too short; write at least 1m, or content: false")
    return keep_us


def _size(value: object) -> int:
    """Read a size as bytes.

    >>> _size("100MB")
    100000000
    """
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("must be a size with its unit, for example 100MB")
    size = int(found[1]) * _BYTES[found[2]]
    if size < LEAST_BYTES:
        raise ValueError("must be at least 1MB; with content: false letters are small")
    return size
