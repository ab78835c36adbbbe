"""A stream's section ``privacy``: its unit, caps, totals, and ``delta``, which is the approximate mode."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, get_args

from dphist.caps import Caps
from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.source import MOST_OF_VISITOR, check_signed
from stream_app.core.budget import Total
from stream_app.core.counting.bounding import Period, PerUser
from stream_app.core.declaration import Counted, Log, Privacy
from stream_app.core.ledger import ACCEPTED, LARGEST_PRIVATE_EPSILON
from stream_app.core.visits import VISITOR

_MOST_OF_USER = 10_000
_MAX_EVENTS = values.whole(1, _MOST_OF_USER, more=": a user's events of an epoch that count")
_MAX_KEYS = values.whole(1, 1_000, more=": the keys in which a user's events count")

LARGEST_DELTA = Fraction(1, 1000)


def read_privacy(section: Section, count: Counted, log: Log) -> tuple[Privacy, str | None, Total | None]:
    """Return the guarantee, the text that accepts a second measurement, and the total.

    Args: count, what is counted; log, an access log has another default unit.
    """
    epsilon = section.take("epsilon", values.positive_fraction)
    privacy = Privacy(
        epsilon=epsilon,
        unit=_unit(section, count, log),
        neighbours=section.take("neighbours", values.one_of("add_remove", "substitute"), "add_remove"),
        private=not section.take("not_private", values.flag, False),
        delta=read_delta(section),
        propose_caps=section.take("propose_caps", values.positive_fraction, None),
    )
    accept = section.take("accept", values.one_of(ACCEPTED), None)
    check_signed(section, privacy, log)
    total = _total(section, privacy)
    section.finish()
    if privacy.private and epsilon > LARGEST_PRIVATE_EPSILON:
        number = epsilon if epsilon.denominator == 1 else f"{float(epsilon):g}"
        raise section.error(
            "epsilon",
            f"{number} protects nobody; use at most {LARGEST_PRIVATE_EPSILON}, "
            "or say not_private: true and every answer will say so too",
        )
    if not privacy.private and epsilon <= LARGEST_PRIVATE_EPSILON:
        raise section.error("not_private", f"is for epsilon above {LARGEST_PRIVATE_EPSILON}; take it out")
    return privacy, accept, total


def _total(privacy: Section, own: Privacy) -> Total | None:
    """Read ``privacy.total``, the largest cost of all epochs. Args: own, the cost of one epoch."""
    section = privacy.section("total")
    if not section.names():
        return None
    total = Total(
        epsilon=section.take("epsilon", values.positive_fraction),
        delta=section.take("delta", values.positive_fraction, None),
        per=section.take("per", values.one_of("source", "stream"), "source"),
    )
    section.finish()
    if total.delta is not None and total.delta >= 1:
        raise section.error("delta", "must be below 1, for example 1e-6")
    if total.delta is None and own.delta is not None:
        raise section.error("delta", "is missing: each epoch has a delta; write for example 1e-6")
    if total.epsilon > LARGEST_PRIVATE_EPSILON:
        raise section.error("epsilon", f"protects nobody above {LARGEST_PRIVATE_EPSILON}; lower it")
    return total


def _unit(privacy: Section, count: Counted, log: Log) -> Literal["event"] | PerUser:
    """Read ``privacy.unit``: ``event``, or a mapping that names the user.

    An access log has the unit of a visitor's day if nothing is written.
    """
    is_web = log.is_of_web_server
    if not privacy.holds_keys("unit") and not (is_web and "unit" not in privacy.names()):
        event: Literal["event"] = privacy.take("unit", _event, "event")
        if count == "users":
            text = "must name the field of the user for count: users, for example unit: {user: user.id}"
            raise privacy.error("unit", text)
        return event
    section = privacy.section("unit")
    field = section.take("user", values.text, VISITOR) if is_web else section.take("user", values.text)
    if is_web and not section.names() and count is None:
        caps = Caps(MOST_OF_VISITOR)
    else:
        caps = _caps(section) if count is None else _one_event(section)
    per = section.take("per", values.one_of(*get_args(Period)), None)
    if per is not None and count == "users":
        text = "is for count: events; write count: events and max_events: 1 to count each user once in it"
        raise section.error("per", text)
    section.finish()
    return PerUser(field, caps.max_events, caps.max_keys, caps.max_per_key, per)


def _one_event(section: Section) -> Caps:
    """Return the cap of a count of users. Raises: ConfigError if another cap is written."""
    for key in ("max_events", "max_keys", "max_per_key"):
        section.refuse(key, "is for count: events; take it out, a user counts once per epoch")
    return Caps(max_events=1)


def _caps(section: Section) -> Caps:
    keys = section.take("max_keys", _MAX_KEYS, None)
    of_key = section.take("max_per_key", _MAX_EVENTS, None)
    if keys is None and of_key is None:
        return Caps(section.take("max_events", _MAX_EVENTS))
    events = section.take("max_events", _MAX_EVENTS, None)
    if keys is None:
        raise section.error("max_per_key", "needs max_keys beside it: in how many keys a user's events count")
    if of_key is None:
        raise section.error(
            "max_keys", "needs max_per_key beside it: how many of a user's events count in a key"
        )
    caps = Caps(events, keys, of_key)
    if caps.l1 > _MOST_OF_USER:
        text = f"times max_per_key is {caps.l1:,} events of a user; at most {_MOST_OF_USER:,}"
        raise section.error("max_keys", text)
    return caps


def _event(value: object) -> Literal["event"]:
    if value != "event":
        raise ValueError("must be event, or {user: the field that names the user, max_events: 4}")
    return "event"


def read_delta(privacy: Section) -> Fraction | None:
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
