"""``keys.normalise`` and ``keys.none``: how values become keys."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.plain_yaml import as_written
from stream_app.core.counting.normalise import NONE, Normalise, check_pattern
from stream_app.core.counting.unlisted import LONGEST_NAME

_MOST_PARAMETERS, _MOST_REPLACED, _MOST_PATTERNS = 20, 10_000, 50


def read_normalise(keys: Section) -> Normalise | None:
    """Read how values of ``keys.field`` become keys; None if they stay as they are. Raises: ConfigError."""
    section = keys.section("normalise")
    rule = Normalise(
        query=section.take("query", _parameters, None),
        percent=section.take("percent", values.flag, False),
        nfc=section.take("nfc", values.flag, False),
        lower=section.take("lower", values.flag, False),
        strip_slash=section.take("strip_slash", values.flag, False),
        patterns=_pairs(section.section("patterns"), _MOST_PATTERNS),
        replace=_pairs(section.section("replace"), _MOST_REPLACED),
        none=keys.take("none", values.flag, False),
    )
    for pattern, becomes in rule.patterns:
        try:
            check_pattern(pattern, becomes)
        except ValueError as refusal:
            raise section.error("patterns", str(refusal)) from None
    section.finish()
    return None if rule == Normalise() else rule


def listed_by(section: Section, rule: Normalise | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return a list of keys, with ``none`` if events without the field have it. Raises: ConfigError.

    A key that no event can have after ``normalise`` would stay at 0 for ever.
    """
    if rule is None:
        return tuple(names)
    for name in names:
        if (becomes := structs.replace(rule, none=False).of(name)) != name:
            text = f"holds {name}, which no event has after keys.normalise; write {becomes}"
            raise section.error("list", text)
    return (*names, NONE) if rule.none and NONE not in names else tuple(names)


def _pairs(section: Section, most: int) -> tuple[tuple[str, str], ...]:
    if len(section.names()) > most:
        raise section.error("", f"holds more than {most:,} entries; write fewer")
    return tuple((name, section.take(name, _text, read=as_written)) for name in section.names())


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        raise ValueError(f"must be a text of at most {LONGEST_NAME} characters")
    return value


def _parameters(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_PARAMETERS or len(set(map(str, value))) < len(value):
        raise ValueError(f"must be a list of at most {_MOST_PARAMETERS} different names; [] keeps none")
    return tuple(map(str, value))
