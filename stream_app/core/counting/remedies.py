"""What each reason of a refusal means, and what the operator can do about it."""

from __future__ import annotations

from collections.abc import Mapping

from stream_app.core.incoming import Reason

_FIELD = "correct time.field"

# (what these records are, the remedy)
REMEDIES: Mapping[str, tuple[str, str]] = {
    Reason.UNDECODABLE: (
        "they are not in the format of the source",
        "correct source.format, or write each event on one line, as a JSON object or a value for each column",
    ),
    Reason.UNREADABLE_BATCH: ("their batch of the topic is damaged", "see what its producer sent"),
    Reason.UNKNOWN_SCHEMA: ("the registry has no such schema", "register it before events are sent"),
    Reason.MISSING_FIELD: ("they have no such time field", _FIELD),
    Reason.NULL: ("their time is null", _FIELD),
    Reason.BAD_TIME: ("their time cannot be read", "correct time.field or time.format"),
    Reason.LOCAL_TIME: ("their time does not say its offset from UTC", "name its zone in time.zone"),
    Reason.BEFORE_FIRST_BIN: (
        "they are dated before the first bin",
        (
            "to count the past, set time.first; after a loss or restore of the store nothing is wrong: they "
            "have counted before; if the events are newer, correct time.field or time.format"
        ),
    ),
    Reason.FUTURE: ("they are dated in the future", "correct time.format, or the producers' clocks"),
    Reason.LATE: ("they come after their bin closed", "set a longer time.grace"),
    Reason.NO_USER: ("they name no user", "correct privacy.unit.user"),
    Reason.UNKNOWN_KEY: ("their key is not on the list", "correct keys, or set keys.other: true"),
    Reason.BAD_VALUE: (
        "they have no number to count",
        "correct the field of value or sum, or the rows of the engine (docs/how-to/engine.md)",
    ),
    Reason.UNKNOWN_ORIGIN: ("source.origins has no such partition", "correct it, or the rows of the engine"),
    Reason.OTHER_CAP: ("they say no cap on users, or a larger one", "let the engine cap as max_events says"),
    Reason.REPEATED: ("their engine has sent them before", "give an engine that begins anew a larger epoch"),
    Reason.OVER_CAP: ("their user has reached the cap", "see max_events"),
}


def refused_because(reason: str) -> str:
    """Return a reason in words, with the remedy.

    >>> refused_because("late")
    'late: they come after their bin closed; set a longer time.grace'
    """
    what, remedy = REMEDIES[reason]
    return f"{reason}: {what}; {remedy}"
