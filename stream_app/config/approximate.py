"""``privacy.delta``: the approximate mode, and the settings that it excludes."""

from __future__ import annotations

from fractions import Fraction

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.core.declaration import Declaration

LARGEST_DELTA = Fraction(1, 1000)
MOST_COLUMNS = 1 << 16  # the state between two bins holds some ten numbers for each


def read_delta(privacy: Section) -> Fraction | None:
    """Read ``privacy.delta``; None if the promise is pure. Raises: ConfigError."""
    return privacy.take("delta", _delta, None)


def _delta(value: object) -> Fraction:
    try:
        delta = values.positive_fraction(value)
    except ValueError:
        raise ValueError("must be a small number above zero, for example 1e-6") from None
    if delta > LARGEST_DELTA:
        raise ValueError(
            "must be at most 0.001: up to this probability the promise may fail; write less than one over "
            "the number of people, for example 1e-6"
        )
    return delta


def check_approximate(section: Section, declared: Declaration) -> None:
    """Refuse the settings that an approximate stream cannot have. Raises: ConfigError."""
    if declared.privacy.delta is None:
        return
    keys, instead = declared.keys, "take it out, or take privacy.delta out"
    if section.section("tree").written:
        raise section.error("tree", f"is for streams without privacy.delta, which have a tree: {instead}")
    user = declared.privacy.per_user
    for key, present in (
        ("privacy.unit.per", user is not None and user.per is not None),
        ("value", declared.value is not None),
        ("sum", declared.amounts is not None),
        ("keys.mode", keys is not None and keys.mode == "window"),
        ("keys.total", keys is not None and bool(keys.total)),
    ):
        if present:
            raise section.error(key, f"is not built yet beside privacy.delta: {instead}")
    if keys is not None and len(keys.labels) > MOST_COLUMNS:
        many = f"{len(keys.labels):,} keys; at most {MOST_COLUMNS:,} beside privacy.delta"
        raise section.error("keys", f"names {many}")
