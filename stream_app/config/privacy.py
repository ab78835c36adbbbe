"""The section ``privacy`` of a stream: epsilon, neighbours, and the unit that is protected."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.core.bounding import PerUser
from stream_app.core.declaration import Privacy
from stream_app.core.ledger import ACCEPTED, LARGEST_PRIVATE_EPSILON

MOST_EVENTS = 10_000
_MAX_EVENTS = values.whole(1, MOST_EVENTS, like=": a user's events of an epoch that count")


def read_privacy(section: Section) -> tuple[Privacy, str | None]:
    """Return the guarantee, and the text that accepts a second measurement. Raises: ConfigError."""
    epsilon = section.take("epsilon", values.positive_fraction)
    privacy = Privacy(
        epsilon=epsilon,
        unit=_unit(section),
        neighbours=section.take("neighbours", values.one_of("add_remove", "substitute"), "add_remove"),
        private=not section.take("not_private", values.flag, False),
    )
    accept = section.take("accept", values.one_of(ACCEPTED), None)
    section.finish()
    if privacy.private and epsilon > LARGEST_PRIVATE_EPSILON:
        raise section.error(
            "epsilon",
            f"{_decimal(epsilon)} protects nobody; use at most {LARGEST_PRIVATE_EPSILON}, "
            "or say not_private: true and every answer will say so too",
        )
    if not privacy.private and epsilon <= LARGEST_PRIVATE_EPSILON:
        raise section.error("not_private", f"is for epsilon above {LARGEST_PRIVATE_EPSILON}; take it out")
    return privacy, accept


def _decimal(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else f"{float(number):g}"


def _unit(privacy: Section) -> Literal["event"] | PerUser:
    """Read ``privacy.unit``: ``event``, or a mapping that names the user. Raises: ConfigError."""
    if not privacy.holds_keys("unit"):
        return privacy.take("unit", _event, "event")
    section = privacy.section("unit")
    settings = PerUser(
        field=section.take("user", values.text),
        max_events=section.take("max_events", _MAX_EVENTS),
    )
    section.finish()
    return settings


def _event(value: object) -> Literal["event"]:
    if value != "event":
        raise ValueError("must be event, or {user: the field that names the user, max_events: 4}")
    return "event"
