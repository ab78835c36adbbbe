"""The privacy unit of a stream: one event, or one user with a limited number of events."""

from __future__ import annotations

from typing import Literal

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.settings import StreamSettings
from stream_app.core.bounding import PerUser

MOST_EVENTS = 10_000


def read_unit(privacy: Section) -> Literal["event"] | PerUser:
    """Read ``privacy.unit``: ``event``, or a mapping that names the user. Raises: ConfigError."""
    if not privacy.holds_keys("unit"):
        return privacy.take("unit", _event, "event")
    section = privacy.section("unit")
    settings = PerUser(
        field=section.take("user", values.text),
        max_events=section.take("max_events", _max_events),
    )
    section.finish()
    return settings


def check_unit(section: Section, stream: StreamSettings) -> None:
    """Refuse a user field that is also the time field. Raises: ConfigError."""
    unit, time = stream.declared.privacy.per_user, stream.declared.time.field
    if unit is None:
        return
    if unit.field == time or unit.field.startswith(f"{time}.") or time.startswith(f"{unit.field}."):
        raise section.error(
            "privacy.unit.user", f'"{unit.field}" is where time.field reads; name another field'
        )


def _event(value: object) -> Literal["event"]:
    if value != "event":
        raise ValueError("must be event, or {user: the field that names the user, max_events: 4}")
    return "event"


def _max_events(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_EVENTS:
        raise ValueError(
            f"must be a whole number from 1 to {MOST_EVENTS}: a user's events of an epoch that count"
        )
    return value
