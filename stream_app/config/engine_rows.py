"""Streams over the rows of an engine that counts events: their settings, and the signed sentence."""

from __future__ import annotations

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.core.counting.count_rows import FIELDS
from stream_app.core.declaration import Declaration, Log, Privacy

SIGNED_EVENT = "each event adds 1 to one row and changes nothing else"
SIGNED_USER = "each user adds at most max_events to the rows of a period and changes nothing else"


def check_signed(section: Section, privacy: Privacy, log: Log) -> None:
    """Read ``privacy.signed``, which streams over rows of an engine need. Raises: ConfigError."""
    if not log.origins:
        section.refuse("signed", "is for source.counts, whose rows an engine makes; take it out")
        return
    needed = SIGNED_EVENT if privacy.per_user is None else SIGNED_USER
    if section.take("signed", values.one_of(needed), None) is None:
        text = "is missing: the service cannot check what the engine counts"
        raise section.error("signed", f'{text}; if it holds, write signed: "{needed}"')


def check_engine_rows(section: Section, declared: Declaration) -> None:
    """Refuse settings that need single events, and fields whose values depend on several events.

    Raises: ConfigError.
    """
    if not declared.source.origins:
        return
    for key, asked in (("where", declared.where), ("value", declared.value), ("sum", declared.amounts)):
        if asked is not None:
            raise section.error(key, "is for events; let the engine choose and count, and name keys")
    if (field := declared.time.field) in (*FIELDS, "@timestamp"):
        raise section.error("time.field", f"{field} says nothing about events; name the field of their bin")
    user, keys = declared.privacy.per_user, declared.keys
    if declared.finds_keys:
        raise section.error("keys.discover", "is for events; list the keys")
    if used := [field for field in (keys.columns if keys else ()) if field in FIELDS]:
        raise section.error("keys.field", f"{used[0]} is a field of every row of counts, and no key")
    if user is not None and (user.per is None or user.max_keys is not None or declared.count == "users"):
        text = "must have per and max_events only: an engine caps by hour, day or week, not by epoch"
        raise section.error("privacy.unit", f"{text}; for example {{user: user, per: 1d, max_events: 10}}")
